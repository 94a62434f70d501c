//! The real thing: the braid binary as daemon and as client, on files, in a folder of its own.

use crate::mock::Run;
use crate::tools::{self, Need};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a FUSE share needs.
pub(crate) const FUSE: [Need; 2] = [Need::Root, Need::Node("/dev/fuse")];
/// What a loop share needs.
pub(crate) const LOOP: [Need; 3] = [Need::Root, Need::Node("/dev/fuse"), Need::Node("/dev/loop-control")];

/// A shell line, how it ended and what it said.
pub(crate) fn shell(line: &str) -> Run {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).env("PATH", tools::path()).stdin(Stdio::null());
    crate::mock::finish(command)
}

/// A daemon on a socket, with state and disks in a temporary folder. When it is dropped, or the test fails, what was
/// mounted or attached below that folder goes first.
pub(crate) struct Real {
    pub(crate) dir: tempfile::TempDir,
    child: Option<Child>,
    /// For `--state-dir`, below the folder; else `state` by the environment.
    pub(crate) state_dir: Option<String>,
    /// Further words for `braid daemon`.
    pub(crate) flags: Vec<String>,
}

impl Real {
    pub(crate) fn start() -> Real {
        let mut real =
            Real { dir: tempfile::tempdir().expect("tempdir"), child: None, state_dir: None, flags: Vec::new() };
        fs::create_dir(real.path("run")).expect("mkdir");
        real.restart();
        real
    }

    /// A path below the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same as a word of a command line.
    pub(crate) fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/braid.sock")
    }

    /// A sparse file.
    pub(crate) fn disk(&self, name: &str, bytes: u64) -> String {
        File::create(self.path(name)).and_then(|f| f.set_len(bytes)).expect("a sparse file");
        self.word(name)
    }

    /// Starts the daemon, after the one before has ended, and waits until it answers.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let log = File::options().create(true).append(true).open(self.path("log")).expect("log");
        let mut command = self.command();
        command.arg("daemon");
        if let Some(folder) = &self.state_dir {
            command.arg("--state-dir").arg(self.path(folder));
        }
        command.args(&self.flags).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("the daemon starts"));
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.as_mut().and_then(|c| c.try_wait().expect("wait"));
            assert!(ended.is_none(), "the daemon ended ({ended:?}):\n{}", self.log());
            assert!(begin.elapsed() < Duration::from_secs(20), "the daemon does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the daemon in order, as a service manager would.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // SAFETY: our own child, not yet waited for, so the number is still its.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let begin = Instant::now();
        while child.try_wait().expect("wait").is_none() {
            if begin.elapsed() > Duration::from_secs(15) {
                child.kill().expect("kill");
                child.wait().expect("wait");
                assert!(std::thread::panicking(), "the daemon did not end:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// `braid`, with this daemon's surroundings.
    pub(crate) fn command(&self) -> Command {
        let mut command = crate::mock::command(&self.socket());
        command.env("PATH", tools::path()).env("BRAID_STATE_DIR", self.path("state")).env("HOME", self.dir.path());
        command
    }

    /// `braid` with these words.
    pub(crate) fn braid(&self, line: &str) -> Run {
        self.words(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// The same for words with spaces in them.
    pub(crate) fn words(&self, words: &[&str]) -> Run {
        let mut command = self.command();
        command.args(words);
        crate::mock::finish(command)
    }

    /// `braid` with these words, which must succeed; what it printed, without the end of the line.
    pub(crate) fn ok(&self, line: &str) -> String {
        let run = self.braid(line);
        assert_eq!(run.code, 0, "braid {line}: {run:?}\n{}", self.log());
        run.out.trim_end().to_string()
    }

    /// `data` of `braid --json` with these words.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        let out = self.ok(&format!("-j {line}"));
        let mut value: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{line}: {e}: {out}"));
        value["data"].take()
    }

    /// A pool named tank with one volume.
    pub(crate) fn tank(&self, profile: &str, disks: &[u64], volume_bytes: u64) {
        let disks: Vec<String> = disks.iter().enumerate().map(|(i, n)| self.disk(&format!("d{i}.img"), *n)).collect();
        let metadata = if disks.len() > 1 { "raid1" } else { "dup" };
        self.ok(&format!("create tank -d {profile} -m {metadata} {}", disks.join(" ")));
        self.ok(&format!("volume create tank/v {volume_bytes}"));
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let dir = self.dir.path().to_path_buf();
        let below = |path: &str| Path::new(path).starts_with(&dir);
        let mounts = || -> Vec<String> {
            let all = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            all.lines().rev().filter_map(|l| l.split(' ').nth(1)).filter(|p| below(p)).map(String::from).collect()
        };
        // File systems on our devices, then the daemon, then what it may have left.
        for mount in mounts().iter().filter(|m| !below_run(m, &dir)) {
            shell(&format!("umount {mount} || umount -l {mount}"));
        }
        self.stop();
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if below(backing.trim()) {
                shell(&format!("losetup -d /dev/{}", entry.file_name().display()));
            }
        }
        for mount in mounts() {
            shell(&format!("umount -l {mount}"));
        }
    }
}

/// A mount of the daemon's own.
fn below_run(mount: &str, dir: &Path) -> bool {
    Path::new(mount).starts_with(dir.join("run"))
}
