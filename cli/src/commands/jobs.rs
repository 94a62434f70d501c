//! `add`, `remove`, `balance`, `wait`: members that come and go, content that moves, and waiting for it.

use super::progress::{self, Progress, duration};
use super::{Context, Outcome, pool, print, scrub};
use crate::args::{Activity, AddArgs, BalanceArgs, RemoveArgs, ReplaceArgs, WaitArgs};
use crate::render::{self, printable};
use crate::resolve;
use braid_host::control::api::*;
use braid_host::control::size;
use std::fmt::Write as _;

/// What can be done to a job that was begun; `None` looks at it.
const VERBS: [(&str, Option<JobAction>); 5] = [
    ("status", None),
    ("pause", Some(JobAction::Pause)),
    ("resume", Some(JobAction::Resume)),
    ("cancel", Some(JobAction::Cancel)),
    ("stop", Some(JobAction::Cancel)),
];

fn usage(message: impl Into<String>, example: &str) -> ApiError {
    ApiError::usage("usage", message).hint(format!("for example: {example}"))
}

// ---- add --------------------------------------------------------------------------------------------------------------

pub(crate) fn add(context: &Context, args: &AddArgs) -> Outcome {
    // As zpool has it: `add tank spare /dev/sdg`.
    let is_verb = args.words.iter().skip(1).position(|word| word == "spare").map(|at| at + 1);
    let words: Vec<String> =
        args.words.iter().enumerate().filter(|(i, _)| Some(*i) != is_verb).map(|(_, word)| word.clone()).collect();
    let (pool, devices) = pool::members(&words, &args.class, &args.tier)?;
    let spare = args.spare || is_verb.is_some();
    context.change(AddDevices { pool, devices, spare, dry_run: args.change.dry_run, force: args.change.force })
}

// ---- remove -----------------------------------------------------------------------------------------------------------

pub(crate) fn remove(context: &Context, args: &RemoveArgs) -> Outcome {
    if args.stop {
        let [pool] = args.words.as_slice() else { return Err(usage("-s needs a pool", "braid remove -s tank")) };
        return context.change(JobControl { pool: pool.clone(), action: JobAction::Cancel });
    }
    if let Some((action, words)) = verb(&args.words) {
        return control(context, action, words, args.wait);
    }
    let (pool, device) = member(context, &args.words)?;
    let change = context.client.call(RemoveDevice { pool: pool.clone(), device, dry_run: args.change.dry_run })?;
    began(context, "remove", &pool, &change, args.wait)
}

/// The one member that is meant: `tank 3`, `3 tank`, `/dev/sdc`, `missing tank`.
fn member(context: &Context, words: &[String]) -> Result<(String, u32), ApiError> {
    let example = "braid remove tank 3   braid remove tank /dev/sdc";
    if let Some(at) = words.iter().position(|word| word == "missing") {
        let pool = words.iter().enumerate().find(|(i, _)| *i != at).map(|(_, pool)| pool.clone());
        let members = context.client.call(ListDevices { pool: pool.clone() })?;
        let gone: Vec<&DeviceStatus> = members.iter().filter(|d| !d.usable).collect();
        return match gone.as_slice() {
            [one] => Ok((one.pool.clone(), one.id)),
            [] => Err(ApiError::not_found("device.none_missing", "no member is missing")),
            _ => Err(usage("several members are missing; name one by its number", example)),
        };
    }
    let targets = resolve::targets(&context.client, words)?;
    match targets.as_slice() {
        [Target::Device { pool, device }] => Ok((pool.clone(), *device)),
        _ => Err(usage("remove takes one member of one pool", example)),
    }
}

// ---- replace ----------------------------------------------------------------------------------------------------------

pub(crate) fn replace(context: &Context, args: &ReplaceArgs) -> Outcome {
    if let Some((action, words)) = verb(&args.words) {
        return control(context, action, words, args.wait);
    }
    let words = match args.words.as_slice() {
        [first, rest @ ..] if first == "start" && !rest.is_empty() => rest,
        all => all,
    };
    let wrong = || {
        usage("replace takes a pool, the member that leaves and the device that comes", "braid replace tank 3 /dev/sdf")
    };
    // The pool may stand anywhere; of the others the first is old.
    let pools = context.client.call(ListPools::default())?;
    let is_pool = |word: &String| pools.iter().any(|p| p.name == *word);
    let named = words.iter().find(|word| is_pool(word)).cloned();
    let others: Vec<String> = words.iter().filter(|word| !is_pool(word)).cloned().collect();
    let [old, new] = others.as_slice() else { return Err(wrong()) };
    let of_old: Vec<String> = named.into_iter().chain([old.clone()]).collect();
    let (pool, device) = member(context, &of_old)?;
    let new = NewDevice { path: resolve::device(new)?, class: args.class.clone(), ..NewDevice::default() };
    let (dry_run, force) = (args.change.dry_run, args.change.force);
    let change = context.client.call(ReplaceDevice { pool: pool.clone(), device, new, dry_run, force })?;
    began(context, "replace", &pool, &change, args.wait)
}

// ---- balance ----------------------------------------------------------------------------------------------------------

pub(crate) fn balance(context: &Context, args: &BalanceArgs) -> Outcome {
    if let Some((action, words)) = verb(&args.words) {
        return control(context, action, words, args.wait);
    }
    let words = match args.words.as_slice() {
        [first, rest @ ..] if first == "start" && !rest.is_empty() => rest,
        all => all,
    };
    let [pool] = words else {
        return Err(usage("balance needs one pool", "braid balance start tank -d raid1   braid balance status tank"));
    };
    let data = args.data.as_deref().map(|text| choice("-d", text)).transpose()?;
    let metadata = args.metadata.as_deref().map(|text| choice("-m", text)).transpose()?;
    let (dry_run, force) = (args.change.dry_run, args.change.force);
    let change = context.client.call(Balance { pool: pool.clone(), data, metadata, dry_run, force })?;
    began(context, "balance", pool, &change, args.wait)
}

/// `raid1`, `raid1,soft`, or as btrfs writes it `convert=raid1,usage=50,devid=2,profiles=single|dup,limit=4`; `all`.
fn choice(flag: &str, text: &str) -> Result<BalanceChoice, ApiError> {
    let example = "braid balance start tank -d raid1,soft   braid balance start tank -dconvert=raid1,usage=50";
    let mut choice = BalanceChoice::default();
    let number = |name: &str, value: &str| {
        value.parse::<u32>().map_err(|_| usage(format!("{flag} {name}={value}: not a number"), example))
    };
    for word in text.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            None if word == "soft" => choice.soft = true,
            None if word == "all" => {}
            None | Some(("convert", _)) => {
                choice.convert = Some(word.strip_prefix("convert=").unwrap_or(word).to_ascii_lowercase());
            }
            Some(("usage", value)) => {
                let percent = number("usage", value)?;
                choice.usage = Some(u8::try_from(percent).unwrap_or(u8::MAX));
            }
            Some(("devid", value)) => choice.device = Some(number("devid", value)?),
            Some(("limit", value)) => choice.limit = Some(number("limit", value)?),
            Some(("profiles", value)) => choice.profiles = value.split('|').map(str::to_ascii_lowercase).collect(),
            Some((name, _)) => {
                let message = format!(
                    "{flag}: there is no filter '{name}'; there are convert, soft, usage, devid, profiles, limit"
                );
                return Err(usage(message, example));
            }
        }
    }
    Ok(choice)
}

// ---- what both have ---------------------------------------------------------------------------------------------------

/// A verb in front of a pool, or of nothing; a prefix will do when a pool follows, as with btrfs.
fn verb(words: &[String]) -> Option<(Option<JobAction>, &[String])> {
    let (first, rest) = words.split_first()?;
    let fits = |(word, _): &&(&str, _)| {
        word == first || rest.len() == 1 && first.len() > 2 && word.starts_with(first.as_str())
    };
    let (_, action) = VERBS.iter().find(fits)?;
    Some((*action, rest))
}

fn control(context: &Context, action: Option<JobAction>, words: &[String], wait: bool) -> Outcome {
    let pool = match words {
        [] => None,
        [pool] => Some(pool.clone()),
        _ => return Err(usage("one pool at a time", "braid balance status tank")),
    };
    let Some(action) = action else {
        return match (wait, pool) {
            (true, Some(pool)) => wait_and_report(context, &pool),
            (true, None) => Err(usage("-w needs a pool", "braid balance status -w tank")),
            (false, pool) => {
                context.show(JobStatus { pool }, |all| Ok(all.iter().map(report).collect::<Vec<_>>().join("\n")))
            }
        };
    };
    let pool = pool.ok_or_else(|| usage("which pool?", "braid balance pause tank"))?;
    if wait && action == JobAction::Resume {
        context.client.call(JobControl { pool: pool.clone(), action })?;
        return wait_and_report(context, &pool);
    }
    context.change(JobControl { pool, action })
}

/// A job was begun, or would be.
fn began(context: &Context, task: &str, pool: &str, change: &Change, wait: bool) -> Outcome {
    if wait && !change.dry_run {
        return wait_and_report(context, pool);
    }
    if context.json {
        print(&render::envelope(task, change, false));
        return Ok(0);
    }
    let mut text = render::change(change);
    if !change.dry_run {
        let _ = writeln!(text, "  see how far it is: braid {task} status {pool}   wait: braid wait {pool}");
    }
    print(&text);
    Ok(0)
}

/// Until it does not run any more; exit 1 when it did not get to its end.
fn wait_and_report(context: &Context, pool: &str) -> Outcome {
    let info = job_rests(context, pool)?;
    let fine = matches!(info.state.as_str(), "finished" | "none") && info.lost_bytes == 0;
    print(&match context.json {
        true => render::json::<JobStatus>(&vec![info], false),
        false => report(&info),
    });
    Ok(u8::from(!fine))
}

/// Looks at the job until it does not run, and shows how far it is.
fn job_rests(context: &Context, pool: &str) -> Result<JobInfo, ApiError> {
    let look = || {
        let mut all = context.client.call(JobStatus { pool: Some(pool.into()) })?;
        all.pop().ok_or_else(|| ApiError::no_pool(pool))
    };
    progress::until_it_rests(look, |info| (info.state == "running").then(|| progress_of(info)))
}

fn progress_of(info: &JobInfo) -> Progress {
    let note = info.note.clone().unwrap_or_default();
    let (done, total) = (info.done_bytes, info.total_bytes);
    Progress { done, total, rate: info.rate_bytes_per_s, eta_ns: info.eta_ns, note }
}

/// What stands behind `jobs:`; nothing when there never was one.
pub(crate) fn line(info: &JobInfo) -> Option<String> {
    let task = info.task.as_deref()?;
    let what = info.device.map_or_else(|| task.to_string(), |device| format!("{task} of device {device}"));
    let ended = info.ended_at.as_deref().unwrap_or("an unknown time");
    let mut text = match info.state.as_str() {
        "running" => format!(
            "{what} in progress since {}: {}",
            info.started_at.as_deref().unwrap_or("an unknown time"),
            progress_of(info).line()
        ),
        "paused" => format!("{what} paused at {ended}: {}", progress_of(info).line()),
        "canceled" => format!("{what} ended at {ended} before it was done: {}", progress_of(info).line()),
        _ => format!(
            "{what} finished at {ended}: {} moved in {}, {} chunks given back",
            size::long(info.done_bytes),
            duration(info.running_ns),
            info.chunks
        ),
    };
    if info.lost_bytes > 0 {
        let _ = write!(text, "; {} cannot be read and stay where they are", size::long(info.lost_bytes));
    }
    Some(text)
}

fn report(info: &JobInfo) -> String {
    let text = line(info).unwrap_or_else(|| "none requested".into());
    format!("  pool: {}\n  jobs: {}\n", printable(&info.pool), printable(&text))
}

/// `wait`: as zpool has it, without a word and without a look at how it ended.
pub(crate) fn wait_for(context: &Context, args: &WaitArgs) -> Outcome {
    let WaitArgs { activities, pool } = args;
    let asked = |one: Activity| activities.is_empty() || activities.contains(&one);
    let mut scrubbed = None;
    if asked(Activity::Scrub) {
        scrubbed = Some(scrub::until_it_rests(context, pool)?);
    }
    let look = || {
        let mut all = context.client.call(JobStatus { pool: Some(pool.clone()) })?;
        all.pop().ok_or_else(|| ApiError::no_pool(pool))
    };
    let is_asked = |info: &JobInfo| match info.task.as_deref() {
        Some("remove") => asked(Activity::Remove),
        Some("balance") => asked(Activity::Balance),
        Some("replace") => asked(Activity::Rebuild),
        // What goes on by itself is waited for when everything is.
        _ => activities.is_empty(),
    };
    let job =
        progress::until_it_rests(look, |info| (info.state == "running" && is_asked(info)).then(|| progress_of(info)))?;
    if asked(Activity::Rebuild) {
        let look = || context.client.call(ListDevices { pool: Some(pool.clone()) });
        progress::until_it_rests(look, |members| rebuild_of(members))?;
    }
    if context.json {
        print(&match scrubbed {
            Some(info) if activities.is_empty() || activities == &[Activity::Scrub] => {
                render::json::<ScrubStatus>(&vec![info], false)
            }
            _ => render::json::<JobStatus>(&vec![job], false),
        });
    }
    Ok(0)
}

/// How far members are that are being brought up to date.
fn rebuild_of(members: &[DeviceStatus]) -> Option<Progress> {
    let busy: Vec<&DeviceStatus> = members.iter().filter(|d| d.to_rebuild_bytes.is_some()).collect();
    let sum = |bytes: fn(&DeviceStatus) -> Option<u64>| busy.iter().filter_map(|d| bytes(d)).sum();
    let (done, total) = (sum(|d| d.rebuilt_bytes), sum(|d| d.to_rebuild_bytes));
    (!busy.is_empty()).then(|| Progress { done, total, ..Progress::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn filters_as_btrfs_writes_them_and_shorter() {
        let convert = |profile: &str| BalanceChoice { convert: Some(profile.into()), ..BalanceChoice::default() };
        for (text, expected) in [
            ("raid1", convert("raid1")),
            ("convert=RAID1", convert("raid1")),
            ("raid1,soft", BalanceChoice { soft: true, ..convert("raid1") }),
            ("all", BalanceChoice::default()),
            (
                "usage=50,limit=4,devid=2",
                BalanceChoice { usage: Some(50), limit: Some(4), device: Some(2), ..BalanceChoice::default() },
            ),
            ("profiles=single|dup", BalanceChoice { profiles: words("single dup"), ..BalanceChoice::default() }),
        ] {
            assert_eq!(choice("-d", text), Ok(expected), "{text}");
        }
        for bad in ["usage=half", "vrange=1..2", "devid="] {
            assert_eq!(choice("-d", bad).expect_err(bad).kind.exit_code(), 2);
        }
    }

    #[test]
    fn verbs_stand_in_front_and_may_be_short() {
        for (text, action) in [
            ("status tank", Some(None)),
            ("stat tank", Some(None)),
            ("pause tank", Some(Some(JobAction::Pause))),
            ("stop tank", Some(Some(JobAction::Cancel))),
            ("can tank", Some(Some(JobAction::Cancel))),
            ("tank", None),
            ("tank 3", None),
        ] {
            assert_eq!(verb(&words(text)).map(|(action, _)| action), action, "{text}");
        }
    }
}
