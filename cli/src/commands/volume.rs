//! `volume`: thin volumes.

use super::{Context, Outcome, confirm, print, property};
use crate::args::*;
use crate::foreign;
use crate::render::json;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use braid_host::control::size;

pub(crate) fn volume(context: &Context, command: VolumeCommand, commands: &[String]) -> Outcome {
    match command {
        VolumeCommand::Create(args) => {
            let (volume, size) = volume_and_size(&args.words, "volume create tank/vm0 100G")?;
            create_one(context, &volume, &size, args.class, args.change)
        }
        VolumeCommand::List(args) => list(context, args),
        VolumeCommand::Resize(args) => resize(context, args),
        VolumeCommand::Rename(args) => rename(context, args),
        VolumeCommand::Destroy(args) => destroy(context, args),
        VolumeCommand::Set(args) => property::set(context, args),
        VolumeCommand::Get(args) => property::get(context, args),
        VolumeCommand::Map(args) => map(context, args),
        VolumeCommand::Other(words) => Err(foreign::unknown_group("braid volume", &words, commands)),
    }
}

fn bytes(text: &str) -> Result<u64, ApiError> {
    size::parse(text).map_err(|message| ApiError::usage("size.invalid", message))
}

/// A volume and a size, in either order.
fn volume_and_size(words: &[String], example: &str) -> Result<(String, String), ApiError> {
    match words {
        [a, b] if a.contains('/') && !b.contains('/') => Ok((a.clone(), b.clone())),
        [a, b] if b.contains('/') && !a.contains('/') => Ok((b.clone(), a.clone())),
        [one] | [one, _] if !one.contains('/') => Err(resolve::volume(one).err().unwrap_or_else(|| usage(example))),
        _ => Err(usage(example)),
    }
}

fn usage(example: &str) -> ApiError {
    ApiError::usage("usage", "one volume and one size are needed").hint(format!("for example: braid {example}"))
}

pub(crate) fn create_one(
    context: &Context,
    word: &str,
    size: &str,
    class: Option<String>,
    change: ChangeFlags,
) -> Outcome {
    let (pool, volume) = resolve::volume(word)?;
    let size_bytes = bytes(size)?;
    let (dry_run, force) = (change.dry_run, change.force);
    context.change(CreateVolume { pool, volume, size_bytes, class, dry_run, force })
}

pub(crate) fn list(context: &Context, args: ListArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.words)?;
    context.repeat(interval, || ListVolumes { pool: pool.clone() }, |volumes| table(volumes, VOLUMES, &args.flags))
}

const VOLUMES: &[Column<VolumeInfo>] = &[
    shown("name", |v| Cell::text(format!("{}/{}", v.pool, v.name))),
    shown("size", |v| Cell::Bytes(v.size_bytes)),
    shown("used", |v| Cell::Bytes(v.data_bytes.saturating_add(v.metadata_bytes))),
    shown("data", |v| Cell::Bytes(v.data_bytes)),
    shown("metadata", |v| Cell::Bytes(v.metadata_bytes)),
    shown("class", |v| Cell::text(&v.class)),
    shown("shares", |v| Cell::text(v.shares.join(","))),
    extra("id", |v| Cell::Number(v.id.into())),
    extra("pool", |v| Cell::text(&v.pool)),
    extra("volume", |v| Cell::text(&v.name)),
];

pub(crate) fn resize(context: &Context, args: ResizeArgs) -> Outcome {
    let words: Vec<String> = std::iter::once(args.first).chain(args.second).collect();
    let (word, size) = volume_and_size(&words, "resize tank/v +5G")?;
    let (pool, volume) = resolve::volume(&word)?;
    let (sign, digits) = match size.split_at_checked(1) {
        Some(("+", rest)) => (Some(1), rest),
        Some(("-", rest)) => (Some(-1), rest),
        _ => (None, size.as_str()),
    };
    let amount = i64::try_from(bytes(digits)?)
        .map_err(|_| ApiError::usage("volume.too_large", format!("{size} is larger than any volume can be")))?;
    let (dry_run, force) = (args.change.dry_run, args.change.force);
    let (size_bytes, relative) = (amount * sign.unwrap_or(1), sign.is_some());
    context.change(ResizeVolume { pool, volume, size_bytes, relative, dry_run, force })
}

fn rename(context: &Context, args: RenameArgs) -> Outcome {
    let (pool, volume) = resolve::volume(&args.volume)?;
    let to = match args.to.split_once('/') {
        Some((other, to)) if other == pool => to.to_string(),
        Some((other, _)) => {
            let message = format!("a volume cannot move from pool {pool} to pool {other}");
            return Err(ApiError::usage("volume.bad_name", message));
        }
        None => args.to,
    };
    context.change(RenameVolume { pool, volume, to, dry_run: args.dry_run })
}

pub(crate) fn destroy(context: &Context, args: DestroyArgs) -> Outcome {
    let (pool, volume) = resolve::volume(&args.name)?;
    if !args.change.dry_run {
        let volumes = context.client.call(ListVolumes { pool: Some(pool.clone()) })?;
        let found = volumes.iter().find(|v| v.name == volume).ok_or_else(|| ApiError::no_volume(&pool, &volume))?;
        let used = size::long(found.data_bytes.saturating_add(found.metadata_bytes));
        let question =
            format!("This forgets volume {}: {}, {used} of it written.", args.name, size::long(found.size_bytes));
        confirm(&question, args.yes)?;
    }
    context.change(DestroyVolume { pool, volume, force: args.change.force, dry_run: args.change.dry_run })
}

fn map(context: &Context, args: MapArgs) -> Outcome {
    let (pool, volume) = resolve::volume(&args.volume)?;
    // A large map comes in parts.
    let mut all: Vec<MapExtent> = Vec::new();
    loop {
        let offset_bytes = all.last().map_or(0, |e| e.offset_bytes.saturating_add(e.length_bytes));
        let request = MapVolume { pool: pool.clone(), volume: volume.clone(), offset_bytes, limit: 0 };
        let part = context.client.call(request)?;
        if part.is_empty() {
            break;
        }
        all.extend(part);
    }
    print(&if context.json { json::<MapVolume>(&all, false) } else { table(&all, EXTENTS, &args.flags)? });
    Ok(0)
}

/// `DEVICE@OFFSET` of each place, in exact bytes: what `dd` and `blkdiscard` take.
fn places(extent: &MapExtent) -> Cell {
    let places = extent.places.iter().map(|p| format!("{}@{}", p.device, p.offset_bytes));
    Cell::text(places.collect::<Vec<_>>().join(","))
}

const EXTENTS: &[Column<MapExtent>] = &[
    shown("offset", |e| Cell::Bytes(e.offset_bytes)),
    shown("length", |e| Cell::Bytes(e.length_bytes)),
    shown("type", |e| Cell::text(&e.kind)),
    shown("chunk", |e| e.chunk.map_or(Cell::Empty, |c| Cell::Number(c.into()))),
    shown("profile", |e| Cell::maybe(&e.profile)),
    shown("places", places),
    extra("chunk_offset", |e| e.chunk_offset_bytes.map_or(Cell::Empty, Cell::Bytes)),
    extra("strip", |e| e.strip_bytes.map_or(Cell::Empty, Cell::Bytes)),
];
