//! `scrub`: reads every copy of everything and compares.

use super::progress::{self, Progress, duration};
use super::{Context, Outcome, print};
use crate::args::ScrubArgs;
use crate::render::{self, printable};
use braid_host::control::api::*;
use braid_host::control::size;
use std::fmt::Write as _;

/// Words of `braid scrub WORD POOL`; no pool can be named like one.
const ACTIONS: [(&str, Option<ScrubAction>); 7] = [
    ("start", Some(ScrubAction::Start)),
    ("status", None),
    ("pause", Some(ScrubAction::Pause)),
    ("resume", Some(ScrubAction::Resume)),
    ("cancel", Some(ScrubAction::Cancel)),
    ("stop", Some(ScrubAction::Cancel)),
    ("limit", Some(ScrubAction::Limit)),
];

/// What was asked for.
#[derive(Debug, PartialEq)]
struct Asked {
    /// None is status.
    action: Option<ScrubAction>,
    pool: Option<String>,
    limit: Option<String>,
}

fn usage(message: impl Into<String>) -> ApiError {
    ApiError::usage("usage", message)
        .hint("for example: braid scrub tank   braid scrub status tank   braid scrub -w tank")
}

/// A verb and a pool, in btrfs's order, or only a pool as zpool has it, with -p for pause and -s for stop.
fn understand(args: &ScrubArgs) -> Result<Asked, ApiError> {
    let mut words = args.words.as_slice();
    let mut action = Some(ScrubAction::Start);
    if let [first, rest @ ..] = words {
        let exact = ACTIONS.iter().filter(|(word, _)| word == first);
        // A prefix will do, as with btrfs, when a pool follows.
        let prefixed = ACTIONS.iter().filter(|(word, _)| !rest.is_empty() && word.starts_with(first.as_str()));
        let mut found: Vec<_> = exact.collect();
        if found.is_empty() {
            found = prefixed.collect();
        }
        match found.as_slice() {
            [] => {}
            [(_, one)] => (action, words) = (*one, rest),
            more => {
                let names: Vec<&str> = more.iter().map(|(word, _)| *word).collect();
                return Err(usage(format!("'scrub {first}' may be {}", names.join(" or "))));
            }
        }
    }
    let said = words.len() < args.words.len();
    match (args.pause, args.stop) {
        (false, false) => {}
        _ if said || args.pause && args.stop => return Err(usage("one thing at a time: a verb, -p or -s")),
        (true, _) => action = Some(ScrubAction::Pause),
        (_, true) => action = Some(ScrubAction::Cancel),
    }
    let is_start = matches!(action, Some(ScrubAction::Start | ScrubAction::Resume));
    if args.wait && !is_start && action.is_some() {
        return Err(usage("-w waits for a scrub that was started or resumed"));
    }
    let (pool, limit) = match (action, words) {
        (Some(ScrubAction::Limit), [pool, limit]) => (Some(pool.clone()), Some(limit.clone())),
        (Some(ScrubAction::Limit), _) => return Err(usage("scrub limit needs a pool and a number")),
        (None, []) => (None, None),
        (_, [pool]) => (Some(pool.clone()), None),
        _ => return Err(usage("scrub needs one pool")),
    };
    Ok(Asked { action, pool, limit })
}

pub(crate) fn scrub(context: &Context, args: &ScrubArgs) -> Outcome {
    let Asked { action, pool, limit } = understand(args)?;
    let (Some(action), Some(pool)) = (action, pool.clone()) else {
        if args.wait {
            let pool = pool.ok_or_else(|| usage("-w needs a pool"))?;
            return wait(context, &pool);
        }
        return context.show(ScrubStatus { pool }, |all| Ok(all.iter().map(report).collect::<Vec<_>>().join("\n")));
    };
    let request = Scrub { pool: pool.clone(), action, limit };
    if args.wait {
        context.client.call(request)?;
        return wait(context, &pool);
    }
    let follows = matches!(action, ScrubAction::Start | ScrubAction::Resume);
    context.show(request, |change| {
        let mut text = render::change(change);
        if follows {
            let _ =
                writeln!(text, "  see how far it is: braid scrub status {0}   wait: braid scrub status -w {0}", pool);
        }
        Ok(text)
    })
}

/// Until it does not run any more; exit 1 when it found something, or did not get to its end.
fn wait(context: &Context, pool: &str) -> Outcome {
    let info = until_it_rests(context, pool)?;
    let fine = info.state == "finished" && info.differences == 0 && info.read_errors == 0;
    print(&match context.json {
        true => render::json::<ScrubStatus>(&vec![info], false),
        false => report(&info),
    });
    Ok(u8::from(!fine))
}

/// Looks at the scrub until it does not run, and shows how far it is.
pub(crate) fn until_it_rests(context: &Context, pool: &str) -> Result<ScrubInfo, ApiError> {
    let look = || {
        let mut all = context.client.call(ScrubStatus { pool: Some(pool.into()) })?;
        all.pop().ok_or_else(|| ApiError::no_pool(pool))
    };
    progress::until_it_rests(look, |info| (info.state == "running").then(|| progress_of(info)))
}

fn progress_of(info: &ScrubInfo) -> Progress {
    let note = if info.differences + info.read_errors > 0 { found(info) } else { String::new() };
    let (done, total) = (info.done_bytes, info.total_bytes);
    Progress { done, total, rate: info.rate_bytes_per_s, eta_ns: info.eta_ns, note }
}

fn found(info: &ScrubInfo) -> String {
    match (info.differences, info.read_errors) {
        (0, 0) => "nothing found".into(),
        (d, 0) => format!("{} not alike", size::blocks(d)),
        (0, e) => format!("{} unreadable", size::blocks(e)),
        (d, e) => format!("{} not alike, {} unreadable", size::blocks(d), size::blocks(e)),
    }
}

/// What was made of it, in a clause of its own.
fn repaired(info: &ScrubInfo) -> String {
    match info.repaired {
        0 => String::new(),
        n => format!(", {} of copies written anew", size::blocks(n)),
    }
}

/// What stands behind `scan:`.
pub(crate) fn scan(info: &ScrubInfo) -> String {
    let started = info.started_at.as_deref().unwrap_or("an unknown time");
    let ended = info.ended_at.as_deref().unwrap_or("an unknown time");
    let mut text = match info.state.as_str() {
        "running" => format!("scrub in progress since {started}: {}", progress_of(info).line()),
        "paused" => format!("scrub paused at {ended}: {}", progress_of(info).line()),
        "canceled" => format!("scrub canceled at {ended} at {}: {}", progress_of(info).percent(), found(info)),
        "finished" => format!(
            "scrub finished at {ended}: {} read in {}, {}",
            size::long(info.done_bytes.saturating_sub(info.unread_bytes)),
            duration(info.running_ns),
            found(info) + &repaired(info)
        ),
        _ => return "none requested".into(),
    };
    if info.unread_bytes > 0 {
        let _ = write!(text, "; {} of copies not read: their device was away or behind", size::long(info.unread_bytes));
    }
    if info.undecided > 0 {
        let _ = write!(
            text,
            "; {} of the pool's own records in doubt, checkpoints came between each time: scrub again",
            size::blocks(info.undecided)
        );
    }
    text
}

fn report(info: &ScrubInfo) -> String {
    let mut out = format!("  pool: {}\n  scan: {}\n", printable(&info.pool), printable(&scan(info)));
    for device in &info.devices {
        let _ = writeln!(
            out,
            "        device {} ({}): {} not alike, {} unreadable",
            device.id,
            printable(&device.path),
            size::blocks(device.differences),
            size::blocks(device.read_errors)
        );
    }
    if info.differences + info.read_errors > 0 {
        let _ = writeln!(
            out,
            "action: every place, and whether it was repaired, is in: braid events {}",
            printable(&info.pool)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> ScrubArgs {
        let has = |flags: &[&str]| line.split(' ').any(|w| flags.contains(&w));
        let words = line.split(' ').filter(|w| !w.starts_with('-') && !w.is_empty()).map(String::from).collect();
        ScrubArgs { words, pause: has(&["-p"]), stop: has(&["-s"]), wait: has(&["-w", "-B"]) }
    }

    #[test]
    fn the_words_of_zpool_and_of_btrfs() {
        use ScrubAction::*;
        for (line, action, pool) in [
            ("tank", Some(Start), Some("tank")),
            ("start tank", Some(Start), Some("tank")),
            ("start -B tank", Some(Start), Some("tank")),
            ("-w tank", Some(Start), Some("tank")),
            ("-p tank", Some(Pause), Some("tank")),
            ("-s tank", Some(Cancel), Some("tank")),
            ("stop tank", Some(Cancel), Some("tank")),
            ("cancel tank", Some(Cancel), Some("tank")),
            ("can tank", Some(Cancel), Some("tank")),
            ("stat tank", None, Some("tank")),
            ("status", None, None),
            ("res tank", Some(Resume), Some("tank")),
            ("p", Some(Start), Some("p")),
            ("limit tank 2", Some(Limit), Some("tank")),
        ] {
            let asked = understand(&args(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!((asked.action, asked.pool.as_deref()), (action, pool), "{line}");
        }
        for line in
            ["", "sta tank", "tank pool2", "limit tank", "pause -s tank", "-p -s tank", "pause -w tank", "start"]
        {
            assert!(understand(&args(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn progress_has_a_rate_and_an_end_when_they_are_known() {
        let mut info = ScrubInfo {
            pool: "tank".into(),
            state: "running".into(),
            started_at: Some("2026-11-21T08:00:00Z".into()),
            done_bytes: 1 << 30,
            total_bytes: 3 << 30,
            ..ScrubInfo::default()
        };
        assert_eq!(scan(&info), "scrub in progress since 2026-11-21T08:00:00Z: 33.3 % of 3GiB");
        (info.rate_bytes_per_s, info.eta_ns, info.differences) = (Some(1 << 20), Some(2_048_000_000_000), 1);
        assert_eq!(progress_of(&info).line(), "33.3 % of 3GiB, 1MiB/s, 34 min left, 1 block not alike");
        assert!(
            progress_of(&info).bar().starts_with("[=========                     ] 33.3 %"),
            "{}",
            progress_of(&info).bar()
        );
        info.total_bytes = 0;
        assert_eq!(progress_of(&info).percent(), "0.0 %");
        assert_eq!(scan(&ScrubInfo::default()), "none requested");
    }
}
