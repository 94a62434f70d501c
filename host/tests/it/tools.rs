//! What a test needs from the machine, and what happens when it is not there. The command line's tests include this file.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Something that is not everywhere.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// Effective user 0.
    Root,
    /// A device node that we may read and write.
    Node(&'static str),
    /// A program in PATH.
    Tool(&'static str),
}

/// True when everything is there. Else prints `SKIP name: needs X`, or panics when BRAID_REQUIRE_TOOLS=1.
pub(crate) fn have(name: &str, needs: &[Need]) -> bool {
    let missing: Vec<&str> = needs
        .iter()
        .filter_map(|need| match need {
            // SAFETY: no arguments, always succeeds.
            Need::Root => (unsafe { libc::geteuid() } != 0).then_some("root"),
            Need::Node(path) => File::options().read(true).write(true).open(path).is_err().then_some(*path),
            Need::Tool(tool) => (!in_path(tool)).then_some(*tool),
        })
        .collect();
    if missing.is_empty() {
        return true;
    }
    let missing = missing.join(", ");
    assert!(std::env::var("BRAID_REQUIRE_TOOLS").as_deref() != Ok("1"), "{name} needs {missing}");
    println!("SKIP {name}: needs {missing}");
    false
}

/// Where tools are: `$PATH`, and the folders that an ordinary user's lacks.
pub(crate) fn path() -> OsString {
    let folders = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::env::split_paths(&path).chain(folders)).expect("no colon in a folder of PATH")
}

fn in_path(tool: &str) -> bool {
    std::env::split_paths(&path()).any(|dir| dir.join(tool).is_file())
}

/// Runs a shell line; panics with its output when it fails.
pub(crate) fn sh(line: &str) -> String {
    let output =
        Command::new("sh").args(["-ec", line]).env("PATH", path()).stdin(Stdio::null()).output().expect("sh runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed ({}):\n{text}{errors}", output.status);
    text
}
