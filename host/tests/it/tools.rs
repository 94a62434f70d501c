//! What a test needs from the machine, and what happens when it is not there.

use std::fs::File;
use std::process::{Command, Stdio};

/// Something that is not everywhere.
pub(crate) enum Need {
    /// Effective user 0.
    Root,
    /// A device node that we may read and write.
    File(&'static str),
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
            Need::File(path) => File::options().read(true).write(true).open(path).is_err().then_some(*path),
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

fn in_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir: std::path::PathBuf| dir.join(tool).is_file())
}

/// Runs a shell line; panics with its output when it fails.
pub(crate) fn sh(line: &str) -> String {
    let output = Command::new("sh")
        .args(["-ec", &format!("PATH=$PATH:/usr/sbin:/sbin\n{line}")])
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed ({}):\n{text}{errors}", output.status);
    text
}

/// Whether one program is there; see [`have`].
pub fn tool(name: &'static str, test: &str) -> bool {
    have(test, &[Need::Tool(name)])
}

/// Runs it to its end; panics with its output unless it succeeds.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
