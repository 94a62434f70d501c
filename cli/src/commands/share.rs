//! `share`, `unshare`, `shares`: standard output gets the URI or path and nothing else, so that
//! `mkfs.ext4 $(braid share tank/vm0 loop)` works; everything for people goes to standard error.

use super::status::yes_no;
use super::{Context, Outcome, print};
use crate::args::{ListArgs, ShareArgs, UnshareArgs};
use crate::render;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use braid_host::control::check;
use std::os::unix::process::ExitStatusExt;

fn kind(word: &str) -> Result<ShareKind, ApiError> {
    const KINDS: &[&str] = &["nbd", "fuse", "loop"];
    match word {
        "nbd" => Ok(ShareKind::Nbd),
        "fuse" => Ok(ShareKind::Fuse),
        "loop" => Ok(ShareKind::Loop),
        "ublk" | "vhost-user" => Err(ApiError::not_yet(&format!("sharing over {word}"))),
        _ => {
            let message = format!("there is no share kind '{word}'; known are {}", KINDS.join(" "));
            let error = ApiError::usage("share.unknown_kind", message);
            Err(match check::nearest(word, KINDS) {
                Some(near) => error.hint(format!("you may mean {near}")),
                None => error,
            })
        }
    }
}

pub(crate) fn share(context: &Context, args: ShareArgs) -> Outcome {
    // Either order: the one with a '/' is the volume.
    let (word, how) = match args.volume.contains('/') || !args.kind.contains('/') {
        true => (&args.volume, &args.kind),
        false => (&args.kind, &args.volume),
    };
    let (pool, volume) = resolve::volume(word)?;
    let kind = kind(how)?;
    let tls = match args.tls.as_str() {
        "off" => Tls::Off,
        "allow" => Tls::Allow,
        "require" => Tls::Require,
        other => {
            let message = format!("--tls is require, allow or off, not '{other}'");
            return Err(ApiError::usage("share.bad_tls", message));
        }
    };
    if kind != ShareKind::Nbd && (tls != Tls::Off || args.unix.is_some() || args.tcp.is_some()) {
        let message = format!("--unix, --tcp and --tls are about nbd; a {} share has no network side", kind.name());
        return Err(ApiError::usage("share.not_nbd", message));
    }
    let listen = match (&args.unix, &args.tcp) {
        (Some(path), _) if path.is_empty() => Listen::Unix,
        (Some(path), _) => Listen::UnixPath(resolve::absolute(path.as_ref())?),
        (None, Some(address)) => Listen::Tcp(tcp_address(address)?),
        (None, None) => Listen::Unix,
    };
    let tls_directory = args.tls_certificates.as_deref().map(resolve::absolute).transpose()?;
    let temporary = args.temporary || args.run.is_some();
    let read_only = args.read_only;
    let request = CreateShare { pool, volume, kind, listen, tls, tls_directory, read_only, temporary };
    let share = context.client.call(request)?;
    if let Some(command) = &args.run {
        return run(context, command, &share);
    }
    if context.json {
        print(&render::json::<CreateShare>(&share, false));
        return Ok(0);
    }
    print(&format!("{}\n", render::printable(&share.uri)));
    for note in &share.notes {
        eprintln!("  {}", render::printable(note));
    }
    if share.notes.is_empty() {
        hints(&share);
    }
    Ok(0)
}

fn hints(share: &ShareInfo) {
    let undo = format!("undo: braid unshare {}/{}", share.pool, share.volume);
    match share.kind {
        ShareKind::Nbd => {
            eprintln!("  try:  nbdinfo URI · qemu-img info URI · fio --ioengine=nbd --uri=URI        {undo}")
        }
        ShareKind::Fuse | ShareKind::Loop => eprintln!("  {undo}"),
    }
}

/// `10.0.0.1:10809`, `10.0.0.1`, `:10809` or `[::1]:10809`, made complete.
fn tcp_address(text: &str) -> Result<String, ApiError> {
    const PORT: u16 = 10809;
    let bad = || {
        ApiError::usage(
            "share.bad_address",
            format!("--tcp {text}: write ADDR:PORT, such as 127.0.0.1:{PORT} or [::1]:{PORT}"),
        )
    };
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Ok(address.to_string());
    }
    if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>() {
        return Ok(std::net::SocketAddr::new(address, PORT).to_string());
    }
    match text.strip_prefix(':').or_else(|| text.strip_prefix("localhost:")) {
        Some(port) => Ok(format!("127.0.0.1:{}", port.parse::<u16>().map_err(|_| bad())?)),
        None if text == "localhost" => Ok(format!("127.0.0.1:{PORT}")),
        None => Err(bad()),
    }
}

/// The share lives as long as the command.
fn run(context: &Context, command: &str, share: &ShareInfo) -> Outcome {
    // An interrupt is for the command; this process must live to take the share back.
    // SAFETY: SIG_IGN is a valid disposition, and no other thread changes signals.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let mut shell = std::process::Command::new("/bin/sh");
    shell.arg("-c").arg(command).env("uri", &share.uri).env("braid_volume", format!("{}/{}", share.pool, share.volume));
    // SAFETY: signal is async-signal-safe; the command gets the usual dispositions back.
    unsafe {
        use std::os::unix::process::CommandExt;
        shell.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let status = shell.status();
    // One that was there before stays.
    if !share.existing {
        let target = share.id.to_string();
        context.client.call(RemoveShare { target, force: true, ..RemoveShare::default() })?;
    }
    let status = status.map_err(|e| ApiError::failed("share.run_failed", format!("running /bin/sh failed: {e}")))?;
    let code = status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

pub(crate) fn unshare(context: &Context, args: UnshareArgs) -> Outcome {
    let kind = args.kind.as_deref().map(kind).transpose()?;
    let (force, dry_run) = (args.change.force, args.change.dry_run);
    context.change(RemoveShare { target: args.target, kind, force, dry_run })
}

pub(crate) fn shares(context: &Context, args: ListArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.words)?;
    context.repeat(interval, || ListShares { pool: pool.clone() }, |shares| table(shares, SHARES, &args.flags))
}

const SHARES: &[Column<ShareInfo>] = &[
    extra("id", |s| Cell::Number(s.id.into())),
    shown("volume", |s| Cell::text(format!("{}/{}", s.pool, s.volume))),
    shown("kind", |s| Cell::text(s.kind.name())),
    shown("uri", |s| Cell::text(&s.uri)),
    shown("clients", |s| s.clients.map_or(Cell::Empty, |n| Cell::Number(n.into()))),
    shown("mode", |s| Cell::text(if s.read_only { "ro" } else { "rw" })),
    extra("tls", |s| Cell::text(s.tls.name())),
    extra("readonly", |s| Cell::text(yes_no(s.read_only))),
    extra("remembered", |s| Cell::text(yes_no(s.remembered))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_made_complete() {
        for (text, address) in [
            ("127.0.0.1:10809", "127.0.0.1:10809"),
            ("10.0.0.7", "10.0.0.7:10809"),
            (":0", "127.0.0.1:0"),
            ("localhost:99", "127.0.0.1:99"),
            ("[::1]:10809", "[::1]:10809"),
            ("::1", "[::1]:10809"),
        ] {
            assert_eq!(tcp_address(text).expect(text), address);
        }
        for bad in ["", "host", "1.2.3.4:99999", ":x", "/run/x"] {
            assert!(tcp_address(bad).is_err(), "{bad}");
        }
    }
}
