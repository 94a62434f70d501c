//! braid, the command line: it parses, asks the daemon, and shows the answer.
//!
//! | where | what |
//! |---|---|
//! | `args/` | the command tree; help, completions and manual pages come from it |
//! | `foreign.rs` | words from zpool, btrfs, mdadm, lvm; commands that are not there yet |
//! | `resolve.rs` | what a bare word means: pool, volume, device, interval |
//! | `numbers.rs` | what options take as a number |
//! | `files.rs` | files that are read whole |
//! | `client.rs` | the control socket |
//! | `commands/` | one file a noun: ask, show |
//! | `render/` | columns, JSON, errors |
//! | `daemon.rs` | `braid daemon` |
//! | `bench.rs` | `braid bench` |
//! | `lab/` | `braid lab` |
//! | `engine.rs` | what is behind its socket |
//! | `manual.rs`, `tls.rs` | what needs no daemon |
//!
//! Exit codes: 0 done, 1 failed, 2 usage, 3 daemon not reachable, 4 no such object, 5 refused for safety, 130 interrupted
//! (by the signal itself, which shells show as 130).

mod args;
mod bench;
mod client;
mod commands;
mod daemon;
mod demo;
mod engine;
mod files;
mod foreign;
mod lab;
mod manual;
mod models;
mod numbers;
mod render;
mod resolve;
mod tls;

use args::{Cli, Command, FilesystemCommand, InternalCommand, LabCommand, TlsCommand};
use braid_host::control::api::ApiError;
use clap::Parser;
use clap::error::ErrorKind as ClapKind;
use commands::{Context, Outcome};
use std::process::ExitCode;

/// Counts for `braid lab fuzz`, and for nobody else.
#[global_allocator]
static ALLOCATOR: lab::fuzz::meter::Meter = lab::fuzz::meter::Meter;

fn main() -> ExitCode {
    let words: Vec<String> = words();
    let json = asks_for_json(&words);
    match start(&words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprint!("{}", render::error(&error, json));
            ExitCode::from(error.kind.exit_code())
        }
    }
}

/// The arguments; `braidd` is `braid daemon`.
fn words() -> Vec<String> {
    let mut all = std::env::args_os().map(|w| w.to_string_lossy().into_owned());
    let own = all.next().unwrap_or_default();
    let daemon = own.rsplit('/').next() == Some("braidd");
    daemon.then(|| "daemon".to_string()).into_iter().chain(all).collect()
}

/// `-j` counts even when the rest cannot be parsed: the error is for the same reader as the answer.
fn asks_for_json(words: &[String]) -> bool {
    let flag = |w: &String| w == "--json" || (w.starts_with('-') && !w.starts_with("--") && w[1..].starts_with('j'));
    words.iter().take_while(|w| *w != "--").any(flag)
}

fn start(words: &[String]) -> Outcome {
    // Options for all commands may stand first; foreign grammar starts after them.
    let first = words.iter().position(|w| w != "-j" && w != "--json").unwrap_or(0);
    if let Some(error) = foreign::hint(&words[first..]) {
        return Err(error);
    }
    match Cli::try_parse_from(std::iter::once("braid").chain(words.iter().map(String::as_str))) {
        Ok(cli) => dispatch(cli),
        Err(e) if matches!(e.kind(), ClapKind::DisplayHelp | ClapKind::DisplayVersion) => {
            commands::print(&e.to_string());
            Ok(0)
        }
        Err(e) if e.kind() == ClapKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{e}");
            Ok(2)
        }
        Err(e) => Err(usage(&e, words)),
    }
}

/// What clap says, in the form of all our errors.
fn usage(e: &clap::Error, words: &[String]) -> ApiError {
    let text = e.to_string();
    let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let message = lines.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let tip = rest.lines().map(str::trim).find(|l| l.starts_with("tip:"));
    let usage = rest.lines().map(str::trim).find(|l| l.starts_with("Usage:"));
    let error = ApiError::usage("usage", message);
    match tip.or(usage) {
        Some(hint) => error.hint(hint),
        None => error.hint(format!("see: {} --help", manual::path(words))),
    }
}

fn dispatch(cli: Cli) -> Outcome {
    if !matches!(cli.command, Command::Daemon(_)) {
        // A reader that has seen enough (head) ends us quietly, as it does other tools.
        // SAFETY: SIG_DFL is a valid disposition, and no thread was started yet.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let json = cli.json;
    let connect = || Ok::<_, ApiError>(Context { client: client::Client::new(cli.socket.clone())?, json });
    match cli.command {
        Command::Create(args) => commands::pool::create(&connect()?, args),
        Command::Destroy(args) => commands::pool::destroy(&connect()?, args),
        Command::Import(args) => commands::pool::import(&connect()?, args),
        Command::Export(args) => commands::pool::export(&connect()?, args),
        Command::List(args) => commands::pool::list(&connect()?, args),
        Command::Status(args) | Command::Filesystem(FilesystemCommand::Show(args)) => {
            commands::status::status(&connect()?, args)
        }
        Command::Usage(args) | Command::Filesystem(FilesystemCommand::Usage(args)) => {
            commands::pool::usage(&connect()?, args)
        }
        Command::Filesystem(FilesystemCommand::Other(words)) => {
            Err(foreign::unknown_group("braid filesystem", &words, &manual::names(Some("filesystem"))))
        }
        Command::Iostat(args) => commands::iostat::iostat(&connect()?, args),
        Command::Why(args) => commands::why::why(&connect()?, args),
        Command::Metrics => commands::metrics(&connect()?),
        Command::Inherit(args) => commands::property::inherit(&connect()?, args),
        Command::Get(args) => commands::property::get(&connect()?, args),
        Command::Set(args) => commands::property::set(&connect()?, args),
        Command::Scrub(args) => commands::scrub::scrub(&connect()?, &args),
        Command::Online(args) => commands::device::online(&connect()?, args),
        Command::Offline(args) => commands::device::offline(&connect()?, args),
        Command::Clear(args) => commands::device::clear(&connect()?, args),
        Command::Wait(args) => commands::jobs::wait_for(&connect()?, &args),
        Command::Add(args) => commands::jobs::add(&connect()?, &args),
        Command::Remove(args) => commands::jobs::remove(&connect()?, &args),
        Command::Replace(args) => commands::jobs::replace(&connect()?, &args),
        Command::Balance(args) => commands::jobs::balance(&connect()?, &args),
        Command::Device(command) => commands::device::device(&connect()?, command, &manual::names(Some("device"))),
        Command::Volume(command) => commands::volume::volume(&connect()?, command, &manual::names(Some("volume"))),
        Command::Resize(args) => commands::volume::resize(&connect()?, args),
        Command::Share(args) => commands::share::share(&connect()?, args),
        Command::Unshare(args) => commands::share::unshare(&connect()?, args),
        Command::Shares(args) => commands::share::shares(&connect()?, args),
        Command::Events(args) => commands::pool::events(&connect()?, args),
        Command::Daemon(args) => daemon::daemon(cli.socket, &args),
        Command::Demo(args) => demo::demo(&args),
        Command::Tls(TlsCommand::Init { dir, names, force }) => tls::init(dir, &names, force, json),
        Command::Bench(args) => bench::bench(&args, json),
        Command::Trace(command) => commands::trace::trace(cli.socket, json, &command),
        Command::Lab(LabCommand::WhatIf(args)) => lab::what_if::what_if(cli.socket, json, &args),
        Command::Lab(command) => lab::lab(&command, json),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command } => manual::man(&command),
        Command::Internal(InternalCommand::BenchServe(args)) => bench::serve(&args),
        Command::Internal(InternalCommand::Man { dir }) => manual::man_all(&dir),
        Command::Other(words) => Err(foreign::unknown(&words, &manual::names(None))),
    }
}
