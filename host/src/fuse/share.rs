//! A share from its mount to its end: started whole or not at all, stopped when idle or by force.

use std::fs;
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fuser::{Config, Notifier, Session, SessionACL};

use super::file::{FILE, VolumeFile};
use super::permit::Shared;
use super::{Sink, mount};

/// Threads that read requests. They only copy, so two keep up with any disk; more contend for the same queue.
const SESSION_THREADS: usize = 2;

/// A program that has just closed the file, or udev looking at a loop device, is gone within this time.
const BUSY_PATIENCE: Duration = Duration::from_millis(600);

/// After an abort the session threads get ENODEV at once; one that does not come back is left alone.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// Who may use a share, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShareOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Users other than the daemon's may reach the file (its mode still applies, so: root). For ordinary users it needs
    /// `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
}

/// How to end a share that may be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Refuse when something has the file open.
    IfIdle,
    /// Whoever waits for an answer gets an error, open files give errors from now on, the mount leaves the tree.
    Force,
}

/// A mounted volume. Dropping it stops it by force.
#[derive(Debug)]
pub struct FuseShare {
    dir: PathBuf,
    file: PathBuf,
    shared: Arc<Shared>,
    made_dir: bool,
    /// None once stopped.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    notifier: Notifier,
    device: (u32, u32),
}

impl FuseShare {
    /// Mounts at `mount_dir` (made when missing; a dead mount of an earlier daemon is removed first). The file is
    /// there when this returns. Must not be called on a thread that the sink needs.
    pub fn start(
        mount_dir: &Path,
        file_name: &str,
        size: u64,
        read_only: bool,
        sink: Arc<dyn Sink>,
    ) -> io::Result<FuseShare> {
        Self::start_with(mount_dir, file_name, size, ShareOptions { read_only, allow_other: false }, sink)
    }

    /// As [`start`](Self::start), with all options.
    pub fn start_with(
        mount_dir: &Path,
        file_name: &str,
        size: u64,
        options: ShareOptions,
        sink: Arc<dyn Sink>,
    ) -> io::Result<FuseShare> {
        check_name(file_name)?;
        if i64::try_from(size).is_err() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{size} bytes are too many for a file")));
        }
        let dir = mount::absolute(mount_dir)?;
        mount::clear_leftover(&dir)?;
        let made_dir = prepare_dir(&dir)?;

        let shared = Arc::new(Shared {
            size: AtomicU64::new(size),
            dead: AtomicBool::new(false),
            in_flight: Mutex::new(0),
            freed: Condvar::new(),
        });
        let device = mount::mount(
            &dir,
            &mount::MountOptions { read_only: options.read_only, allow_other: options.allow_other },
        )?;
        // From here on the mount exists: an error must take it away again.
        let mut undo = Undo { dir: &dir, armed: true };

        let volume = VolumeFile {
            name: file_name.into(),
            read_only: options.read_only,
            // SAFETY: no arguments, always succeeds.
            owner: unsafe { (libc::geteuid(), libc::getegid()) },
            since: SystemTime::now(),
            shared: shared.clone(),
            sink,
        };
        let mut config = Config::default();
        config.n_threads = Some(SESSION_THREADS);
        config.clone_fd = true;
        // Who may come in is the kernel's decision (allow_other); fuser's own check would refuse the loop driver's
        // threads, which run as root, in a share of an ordinary user.
        let session = Session::from_fd(volume, device, SessionACL::All, config)?;
        let notifier = session.notifier();
        let name = format!("fuse-{file_name}");
        let thread = std::thread::Builder::new().name(name.chars().take(15).collect()).spawn(move || {
            // Inherited by the threads that the session starts.
            if let Err(note) = crate::loopdev::set_io_flusher() {
                tracing::debug!("{note}");
            }
            if let Err(error) = session.run() {
                tracing::warn!("FUSE session ended: {error}");
            }
        })?;

        let file = dir.join(file_name);
        let stat = fs::metadata(&file)
            .map_err(|e| Error::new(e.kind(), format!("{} does not answer after mounting: {e}", file.display())))?;
        undo.armed = false;
        drop(undo);
        let device = (libc::major(stat.dev()), libc::minor(stat.dev()));
        Ok(FuseShare { dir, file, shared, made_dir, running: Some(Running { thread, notifier, device }) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// The directory that it is in.
    pub fn mount_dir(&self) -> &Path {
        &self.dir
    }

    /// The volume has another size now: the next stat shows it, the next request is checked against it.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        self.shared.size.store(size, Ordering::Release);
        match &self.running {
            // A negative offset: attributes only; there are no cached pages.
            Some(running) => running.notifier.inval_inode(FILE, -1, 0),
            None => Ok(()),
        }
    }

    /// Bytes of requests not answered yet.
    pub fn in_flight_bytes(&self) -> u64 {
        *self.shared.lock()
    }

    /// Ends the share. A refusal leaves it as it was, and it can be tried again. Must not be called on a thread that
    /// the sink needs.
    pub fn stop(&mut self, how: Stop) -> io::Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        // Not ours any more when the operator has unmounted it: then nothing is left but to collect the threads.
        // The device number alone does not tell: a mount made since may have got the same. While the session lives, the
        // number is taken.
        let mounted = !running.thread.is_finished()
            && mount::at(&self.dir)?.is_some_and(|m| m.device == running.device && m.fs_type == mount::FS_TYPE);
        match how {
            Stop::IfIdle if mounted => self.unmount_patiently()?,
            Stop::IfIdle => {}
            Stop::Force => {
                self.shared.dead.store(true, Ordering::Relaxed);
                // Under the lock, so that no session thread goes to sleep between its check and this.
                drop(self.shared.lock());
                self.shared.freed.notify_all();
                if mounted {
                    mount::abort(&self.dir, running.device)?;
                }
            }
        }
        if let Some(Running { thread, notifier, .. }) = self.running.take() {
            drop(notifier);
            let patience = Instant::now() + ABORT_PATIENCE;
            while !thread.is_finished() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!("{} is still open somewhere; it gives errors from now on", self.file.display());
            }
        }
        if self.made_dir {
            let _ = fs::remove_dir(&self.dir);
        }
        Ok(())
    }

    fn unmount_patiently(&self) -> io::Result<()> {
        let patience = Instant::now() + BUSY_PATIENCE;
        loop {
            match mount::unmount(&self.dir) {
                Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(30));
                }
                Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                    return Err(Error::new(
                        ErrorKind::ResourceBusy,
                        format!(
                            "{} is in use: unmount what is on it, detach its loop device and close it, or stop it by \
                             force",
                            self.file.display()
                        ),
                    ));
                }
                other => return other,
            }
        }
    }
}

impl Drop for FuseShare {
    fn drop(&mut self) {
        if let Err(error) = self.stop(Stop::Force) {
            tracing::warn!("unmounting {}: {error}", self.dir.display());
        }
    }
}

/// Takes a mount away again when the start fails half-way.
struct Undo<'a> {
    dir: &'a Path,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.armed {
            let _ = mount::detach(self.dir);
        }
    }
}

fn check_name(name: &str) -> io::Result<()> {
    if matches!(name, "" | "." | "..") || name.len() > 255 || name.contains(['/', '\0']) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name:?} cannot be the name of a file")));
    }
    Ok(())
}

/// True when it had to be made. A directory with something in it is not hidden under a mount.
fn prepare_dir(dir: &Path) -> io::Result<bool> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => match fs::read_dir(dir)?.next() {
            None => Ok(false),
            Some(_) => Err(Error::new(
                ErrorKind::DirectoryNotEmpty,
                format!("{} is not empty; a share needs a directory of its own", dir.display()),
            )),
        },
        Err(e) => Err(Error::new(e.kind(), format!("making {}: {e}", dir.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        for name in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["vm0", "...", "a b", "ü", &"x".repeat(255)] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
