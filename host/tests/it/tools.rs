//! Programs that a test needs and that are not ours.

use std::process::Command;

/// Whether the program is installed; says so by name when not, and panics when all tools are required.
pub fn tool(name: &str, test: &str) -> bool {
    let found =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    if !found {
        assert!(std::env::var("BRAID_REQUIRE_TOOLS").as_deref() != Ok("1"), "{test} needs {name}");
        println!("SKIP {test}: needs {name}");
    }
    found
}

/// Runs it to its end; panics with its output unless it succeeds.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
