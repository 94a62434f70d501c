//! Manual pages and completions, from the command definitions.

use crate::args::Cli;
use crate::commands::{Outcome, print};
use braid_host::control::api::ApiError;
use clap::{Command, CommandFactory};
use std::path::Path;

fn failed(e: std::io::Error) -> ApiError {
    ApiError::failed("manual.failed", format!("writing the manual failed: {e}"))
}

/// The page of braid, or of one command.
pub(crate) fn man(words: &[String]) -> Outcome {
    let mut command = tree();
    for word in words.iter().flat_map(|w| w.split_whitespace()) {
        let found = command.get_subcommands().find(|c| c.get_name() == word || c.get_all_aliases().any(|a| a == word));
        command = found.cloned().ok_or_else(|| {
            ApiError::not_found("command.unknown", format!("there is no command '{}'", words.join(" ")))
        })?;
    }
    print(&page(command)?);
    Ok(0)
}

/// All pages, as packages want them: `braid.1`, `braid-volume-create.1`.
pub(crate) fn man_all(directory: &Path) -> Outcome {
    std::fs::create_dir_all(directory).map_err(failed)?;
    write_pages(&tree(), directory)?;
    Ok(0)
}

fn write_pages(command: &Command, directory: &Path) -> Result<(), ApiError> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
    std::fs::write(directory.join(format!("{name}.1")), page(command.clone())?).map_err(failed)?;
    command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
        .try_for_each(|c| write_pages(c, directory))
}

fn tree() -> Command {
    let mut command = Cli::command();
    // Gives every command its full name.
    command.build();
    command
}

fn page(command: Command) -> Result<String, ApiError> {
    let mut roff = Vec::new();
    clap_mangen::Man::new(command).render(&mut roff).map_err(failed)?;
    Ok(String::from_utf8_lossy(&roff).into_owned())
}

/// Completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "braid", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(0)
}

/// The command that these words begin with, in full: `braid lab what-if`.
pub(crate) fn path(words: &[String]) -> String {
    let (mut command, mut path) = (Cli::command(), "braid".to_string());
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let Some(below) = command.find_subcommand(word).cloned() else { break };
        path = format!("{path} {}", below.get_name());
        command = below;
    }
    path
}

/// Names and aliases below a command; for "you may mean".
pub(crate) fn names(group: Option<&str>) -> Vec<String> {
    let command = Cli::command();
    let group = match group {
        None => Some(&command),
        Some(name) => command.find_subcommand(name),
    };
    let below = group.into_iter().flat_map(Command::get_subcommands).filter(|c| !c.is_hide_set());
    below.flat_map(|c| std::iter::once(c.get_name()).chain(c.get_visible_aliases())).map(String::from).collect()
}
