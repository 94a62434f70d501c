//! NBD against an engine in memory.

mod accept;
mod commands;
mod fuzz;
mod handshake;
mod hostile;
mod interop;
#[cfg(feature = "tls")]
mod tls;
pub mod world;

use crate::tools::{Need, have};
use std::process::Command;

/// Whether one program is there; see [`have`].
fn tool(name: &'static str, test: &str) -> bool {
    have(test, &[Need::Tool(name)])
}

/// Runs it to its end; panics with its output unless it succeeds.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
