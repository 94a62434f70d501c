//! Pools: create, destroy, import, export, list.

use super::{Context, Outcome, confirm};
use crate::args::*;
use crate::commands::volume;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use braid_host::control::{check, size};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) fn create(context: &Context, args: CreateArgs) -> Outcome {
    if let Some(size) = &args.volume_size {
        let [word] = args.words.as_slice() else {
            return Err(ApiError::usage("usage", "create -V makes one volume: braid create -V 10G tank/v"));
        };
        let class = args.class.first().cloned();
        return volume::create_one(context, word, size, class, args.change);
    }
    context.change(plan(args)?)
}

/// The request that the arguments stand for.
fn plan(args: CreateArgs) -> Result<CreatePool, ApiError> {
    let (name, devices) = members(&args.words, &args.class, &args.tier)?;
    check::pool_name(&name)?;
    let mut properties = BTreeMap::new();
    for option in &args.option {
        let (name, value) = super::property::assignment(option)?;
        properties.insert(name, value);
    }
    if let Some(policy) = args.read_policy {
        properties.insert("read_policy".into(), policy);
    }
    let files = args.file.as_deref().map(|file| files(file, args.dir, &name)).transpose()?;
    let count = devices.len() + files.as_ref().map_or(0, |f| f.count as usize);
    let metadata = args.metadata.as_deref().map(profile);
    if let Some(spec) = &metadata
        && count > 1
        && matches!(spec.profile.as_str(), "single" | "raid0")
        && !args.change.force
    {
        let message = format!(
            "-m {} keeps one copy of the metadata on {count} devices: when any one is lost, the pool is lost",
            spec.profile
        );
        return Err(ApiError::usage("profile.one_copy", message)
            .hint("you may mean -m raid1 or -m dup; add -f if one copy is what you want"));
    }
    Ok(CreatePool {
        name,
        devices,
        files,
        data: args.data.as_deref().map(profile),
        metadata,
        mode: args.mode,
        strict: args.strict,
        properties,
        dry_run: args.change.dry_run,
        force: args.change.force,
    })
}

/// A pool and devices, with what rules say of their classes and tiers.
pub(crate) fn members(
    words: &[String],
    class: &[String],
    tier: &[String],
) -> Result<(String, Vec<NewDevice>), ApiError> {
    // Order does not matter: the first word that is no device is the pool.
    let pool = words.iter().position(|w| !resolve::is_device(w)).ok_or_else(|| {
        ApiError::usage("pool.no_name", "which pool? a name without '/' is missing")
            .hint("for example: braid create tank -d raid1 /dev/sdb /dev/sdc   braid add tank /dev/sdd")
    })?;
    let mut devices = Vec::<NewDevice>::new();
    for (i, word) in words.iter().enumerate() {
        if i != pool {
            let paths = if word.contains('/') { resolve::device_list(word)? } else { vec![resolve::device(word)?] };
            devices.extend(paths.into_iter().map(|path| NewDevice { path, ..NewDevice::default() }));
        }
    }
    for rule in class {
        classify(rule, &mut devices)?;
    }
    for rule in tier {
        assign_tier(rule, &mut devices)?;
    }
    same_twice(&devices)?;
    Ok((words[pool].clone(), devices))
}

/// `raid1@ssd,hdd`.
fn profile(text: &str) -> ProfileSpec {
    let (profile, classes) = text.split_once('@').unwrap_or((text, ""));
    let classes = classes.split(',').filter(|c| !c.is_empty()).map(String::from).collect();
    ProfileSpec { profile: profile.to_ascii_lowercase(), classes }
}

/// `ssd=/dev/a,/dev/b`: sets the class of members, and makes members of devices that are only named here.
fn classify(rule: &str, devices: &mut Vec<NewDevice>) -> Result<(), ApiError> {
    let Some((class, list)) = rule.split_once('=') else {
        return Err(ApiError::usage(
            "class.bad_rule",
            format!("--class {rule}: write CLASS=DEVICE,..., such as ssd=/dev/sdb"),
        ));
    };
    for path in resolve::device_list(list)? {
        match devices.iter_mut().find(|d| d.path == path && path.contains('/')) {
            Some(device) if device.class.as_deref().is_some_and(|c| c != class) => {
                let before = device.class.clone().unwrap_or_default();
                let message = format!("{path} cannot be of class {before} and of class {class}");
                return Err(ApiError::usage("device.twice", message));
            }
            Some(device) => device.class = Some(class.to_string()),
            None => devices.push(NewDevice { path, class: Some(class.to_string()), ..NewDevice::default() }),
        }
    }
    Ok(())
}

/// `metadata=0@ssd,/dev/sdb`.
fn assign_tier(rule: &str, devices: &mut [NewDevice]) -> Result<(), ApiError> {
    let bad = || {
        let message = format!("--tier {rule}: write TYPE=N@WHERE, such as metadata=0@ssd or data=255@/dev/sdb");
        ApiError::usage("tier.bad_rule", message)
    };
    let (what, places) = rule.split_once('@').ok_or_else(bad)?;
    let (kind, tier) = what.split_once('=').ok_or_else(bad)?;
    let tier = check::tier(kind, tier)?;
    for place in places.split(',').filter(|p| !p.is_empty()) {
        let path = if resolve::is_device(place) { Some(resolve::device(place)?) } else { None };
        let mut hits = 0;
        for device in devices.iter_mut() {
            let here = match &path {
                Some(path) => device.path == *path,
                None => device.class.as_deref() == Some(place),
            };
            if here {
                device.tiers.insert(kind.to_string(), tier);
                hits += 1;
            }
        }
        if hits == 0 {
            let message =
                format!("--tier {rule}: {place} is neither a device of this pool nor a class given with --class");
            return Err(ApiError::usage("tier.nowhere", message));
        }
    }
    Ok(())
}

/// One disk by two names is one disk.
fn same_twice(devices: &[NewDevice]) -> Result<(), ApiError> {
    let mut seen = BTreeMap::<PathBuf, &str>::new();
    for device in devices.iter().filter(|d| d.path.starts_with('/')) {
        let real = std::fs::canonicalize(&device.path).unwrap_or_else(|_| PathBuf::from(&device.path));
        if let Some(other) = seen.insert(real, &device.path) {
            let message = match other == device.path {
                true => format!("{other} is named twice"),
                false => format!("{other} and {} are the same device", device.path),
            };
            return Err(ApiError::usage("device.twice", message));
        }
    }
    Ok(())
}

/// `4x2G`.
fn files(text: &str, directory: Option<PathBuf>, pool: &str) -> Result<NewFiles, ApiError> {
    let bad =
        |why: &str| ApiError::usage("files.invalid", format!("--file {text}: {why}")).hint("for example: --file 4x2G");
    let (count, each) = text.split_once(['x', 'X', '*']).ok_or_else(|| bad("write a number, x, and a size"))?;
    let count = count.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(|| bad("1 to 64 files"))?;
    let size_bytes = size::parse(each).map_err(|why| bad(&why))?;
    let directory = match directory {
        Some(directory) => directory,
        None => data_home()?.join("braid").join(pool),
    };
    Ok(NewFiles { count, size_bytes, directory: resolve::absolute(&directory)? })
}

fn data_home() -> Result<PathBuf, ApiError> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share"))).ok_or_else(|| {
        ApiError::usage("files.no_home", "neither XDG_DATA_HOME nor HOME is set").hint("say where with: --dir DIR")
    })
}

pub(crate) fn destroy(context: &Context, args: DestroyArgs) -> Outcome {
    if args.name.contains('/') {
        return volume::destroy(context, args);
    }
    let pool = args.name;
    if !args.change.dry_run {
        let status = context.client.call(ListPools { pool: Some(pool.clone()) })?;
        let found = status.first().ok_or_else(|| ApiError::no_pool(&pool))?;
        let volumes = context.client.call(ListVolumes { pool: Some(pool.clone()) })?;
        let names: Vec<String> = volumes.iter().map(|v| format!("{pool}/{}", v.name)).collect();
        let volumes = match names.len() {
            0 => "no volume".to_string(),
            n if n <= 8 => names.join(" "),
            n => format!("{} and {} more", names[..8].join(" "), n - 8),
        };
        let question = format!(
            "This forgets pool {pool}: {} devices, {} in use, {volumes}.",
            found.devices,
            size::long(found.allocated_bytes)
        );
        confirm(&question, args.yes)?;
    }
    context.change(DestroyPool { pool, force: args.change.force, dry_run: args.change.dry_run })
}

pub(crate) fn export(context: &Context, args: ExportArgs) -> Outcome {
    if args.pool.contains('/') {
        let message = format!("export closes a whole pool, and '{}' is no pool", args.pool);
        return Err(
            ApiError::usage("pool.bad_name", message).hint(format!("to serve a volume: braid share {} nbd", args.pool))
        );
    }
    context.change(ExportPool { pool: args.pool, force: args.change.force, dry_run: args.change.dry_run })
}

pub(crate) fn import(context: &Context, args: ImportArgs) -> Outcome {
    let (mut names, mut devices) = (Vec::new(), Vec::new());
    for word in &args.words {
        if resolve::is_device(word) {
            devices.extend(resolve::device_list(word)?);
        } else {
            names.push(word.clone());
        }
    }
    if let Some(to) = &args.rename {
        check::pool_name(to)?;
        if names.len() != 1 {
            return Err(ApiError::usage("usage", "--as renames one pool; name the one to open"));
        }
    }
    let directories = args.directories.iter().map(|d| resolve::absolute(d)).collect::<Result<Vec<String>, _>>()?;
    let looking = !args.all && names.is_empty();
    let places = places(&directories, &devices);
    let request = ImportPools {
        names,
        all: args.all,
        directories,
        devices,
        rename: args.rename,
        force: args.change.force,
        dry_run: args.change.dry_run,
    };
    let found = context.client.call(request)?;
    super::print(&match context.json {
        true => crate::render::json::<ImportPools>(&found, false),
        false => table(&found, FOUND, &args.flags)?,
    });
    let next: Vec<&FoundPool> = found.iter().filter(|f| !f.imported).collect();
    if found.is_empty() && !context.json {
        eprintln!("no pool was found; name a folder with -d DIR, or devices");
    } else if looking && !next.is_empty() && !context.json && !args.flags.no_header {
        eprintln!("open one with: braid import{places} {}   or all with: braid import{places} -a", next[0].name);
    }
    Ok(0)
}

/// Where was searched, as words of a command: pools on files are found only there.
fn places(directories: &[String], devices: &[String]) -> String {
    let directories = directories.iter().map(|directory| format!(" -d {directory}"));
    let devices = devices.iter().map(|device| format!(" {device}"));
    directories.chain(devices).collect()
}

const FOUND: &[Column<FoundPool>] = &[
    shown("name", |f| Cell::text(&f.name)),
    shown("state", |f| Cell::text(f.state.name())),
    shown("imported", |f| Cell::text(if f.imported { "yes" } else { "no" })),
    shown("devices", |f| Cell::Number(f.devices.len() as u64)),
    shown("missing", |f| Cell::Number(f.missing.into())),
    shown("uuid", |f| Cell::text(&f.uuid)),
    shown("note", |f| Cell::maybe(&f.note)),
    extra("paths", |f| Cell::text(f.devices.iter().map(|d| d.path.as_str()).collect::<Vec<_>>().join(","))),
];

pub(crate) fn list(context: &Context, args: PoolListArgs) -> Outcome {
    if let ListKind::Volume = args.kind {
        return volume::list(context, args.list);
    }
    let (pool, interval) = resolve::pool_and_interval(&args.list.words)?;
    let flags = args.list.flags;
    context.repeat(
        interval,
        || ListPools { pool: pool.clone() },
        |pools| {
            if pools.is_empty() && !flags.plain() {
                eprintln!("no pool is open; make one with: braid create, or look for others with: braid import");
            }
            table(pools, POOLS, &flags)
        },
    )
}

const POOLS: &[Column<PoolSummary>] = &[
    shown("name", |p| Cell::text(&p.name)),
    shown("size", |p| Cell::Bytes(p.size_bytes)),
    shown("alloc", |p| Cell::Bytes(p.allocated_bytes)),
    shown("free", |p| Cell::Bytes(p.free_bytes)),
    shown("writable", |p| Cell::Bytes(p.writable_bytes)),
    shown("data", |p| Cell::text(&p.data)),
    shown("meta", |p| Cell::text(&p.metadata)),
    shown("devices", |p| Cell::Number(p.devices.into())),
    shown("volumes", |p| Cell::Number(p.volumes.into())),
    shown("health", |p| Cell::text(p.state.name())),
    extra("uuid", |p| Cell::text(&p.uuid)),
];

pub(crate) fn usage(context: &Context, args: ListArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.words)?;
    context.repeat(interval, || Usage { pool: pool.clone() }, |pools| show_usage(pools, &args.flags))
}

fn show_usage(pools: &[PoolUsage], flags: &ListFlags) -> Result<String, ApiError> {
    let rows = |p: &PoolUsage| p.devices.iter().map(|d| (p.name.clone(), d.clone())).collect::<Vec<_>>();
    if flags.plain() {
        return table(&pools.iter().flat_map(rows).collect::<Vec<_>>(), DEVICE_USAGE, flags);
    }
    let bytes = |n: u64| if flags.exact { n.to_string() } else { size::long(n) };
    let mut out = String::new();
    for pool in pools {
        out += &table(&rows(pool), DEVICE_USAGE, flags)?;
        out += "\n";
        out += &table(&pool.groups, GROUP_USAGE, flags)?;
        out += &format!(
            "\nwritable now: {} of {} data, {} of {} metadata (not {}: that is raw)\n",
            bytes(pool.writable_data_bytes),
            pool.data,
            bytes(pool.writable_metadata_bytes),
            pool.metadata,
            bytes(pool.unallocated_bytes),
        );
    }
    Ok(out)
}

const DEVICE_USAGE: &[Column<(String, DeviceUsage)>] = &[
    shown("pool", |r| Cell::text(&r.0)),
    shown("id", |r| Cell::Number(r.1.id.into())),
    shown("name", |r| Cell::text(&r.1.name)),
    shown("class", |r| Cell::text(&r.1.class)),
    shown("data", |r| Cell::Bytes(r.1.data_bytes)),
    shown("metadata", |r| Cell::Bytes(r.1.metadata_bytes)),
    shown("system", |r| Cell::Bytes(r.1.system_bytes)),
    shown("unalloc", |r| Cell::Bytes(r.1.unallocated_bytes)),
    shown("total", |r| Cell::Bytes(r.1.size_bytes)),
];

const GROUP_USAGE: &[Column<GroupUsage>] = &[
    shown("type", |g| Cell::text(&g.kind)),
    shown("profile", |g| Cell::text(&g.profile)),
    shown("chunks", |g| Cell::Number(g.chunks)),
    shown("size", |g| Cell::Bytes(g.size_bytes)),
    shown("used", |g| Cell::Bytes(g.used_bytes)),
    shown("raw", |g| Cell::Bytes(g.raw_bytes)),
];

pub(crate) fn events(context: &Context, args: EventsArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.list.words)?;
    let mut flags = args.list.flags;
    let follow = args.watch || interval.every.is_some();
    let pause = interval.every.unwrap_or(std::time::Duration::from_secs(1));
    let (mut after, mut limit, mut left) = (0, args.lines, interval.count);
    loop {
        let events = context.client.call(ListEvents { pool: pool.clone(), after, limit })?;
        if let Some(last) = events.last() {
            after = last.sequence;
        }
        if context.json {
            super::print(&crate::render::json::<ListEvents>(&events, follow));
        } else if !follow || !events.is_empty() {
            super::print(&table(&events, EVENTS, &flags)?);
            flags.no_header |= follow;
        }
        left = left.map(|n| n - 1);
        if !follow || left == Some(0) {
            return Ok(0);
        }
        limit = 0;
        std::thread::sleep(pause);
    }
}

const EVENTS: &[Column<EventInfo>] = &[
    extra("seq", |e| Cell::Number(e.sequence)),
    shown("time", |e| Cell::text(&e.time)),
    shown("pool", |e| Cell::maybe(&e.pool)),
    shown("severity", |e| Cell::text(&e.severity)),
    shown("event", |e| Cell::text(&e.code)),
    shown("message", |e| Cell::text(&e.message)),
];
