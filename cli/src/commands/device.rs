//! `device`: members, their errors, their space, and what could become one.

use super::status::{DEVICES, yes_no};
use super::{Context, Outcome, jobs, pool, print, probe, property};
use crate::args::{ClearArgs, DeviceCommand, ListArgs, OfflineArgs, OnlineArgs, ScanArgs, StatsArgs};
use crate::foreign;
use crate::render::json;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use std::collections::BTreeSet;

pub(crate) fn device(context: &Context, command: DeviceCommand, commands: &[String]) -> Outcome {
    match command {
        DeviceCommand::Add(args) => jobs::add(context, &args),
        DeviceCommand::Remove(args) => jobs::remove(context, &args),
        DeviceCommand::Replace(args) => jobs::replace(context, &args),
        DeviceCommand::List(args) => list(context, args),
        DeviceCommand::Stats(args) => stats(context, args),
        DeviceCommand::Usage(args) => pool::usage(context, args),
        DeviceCommand::Scan(args) => scan(context, args),
        DeviceCommand::Probe(args) => probe::probe(context.json, &args),
        DeviceCommand::Fit(args) => probe::fit(context.json, &args),
        DeviceCommand::Set(args) => property::set(context, args),
        DeviceCommand::Get(args) => property::get(context, args),
        DeviceCommand::Other(words) => Err(foreign::unknown_device(&words, commands)),
    }
}

/// `online`.
pub(crate) fn online(context: &Context, args: OnlineArgs) -> Outcome {
    let OnlineArgs { pool, device, path } = args;
    context.change(OnlineDevice { pool, device, path })
}

/// `offline`.
pub(crate) fn offline(context: &Context, args: OfflineArgs) -> Outcome {
    let OfflineArgs { pool, device } = args;
    context.change(OfflineDevice { pool, device })
}

/// `clear`.
pub(crate) fn clear(context: &Context, args: ClearArgs) -> Outcome {
    let ClearArgs { pool, device } = args;
    context.change(ClearErrors { pool, device, counts_only: false })
}

fn list(context: &Context, args: ListArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.words)?;
    let mut flags = args.flags;
    flags.columns.get_or_insert_with(|| "pool,id,name,class,state,size,alloc,tiers,path,note".into());
    context.repeat(interval, || ListDevices { pool: pool.clone() }, |devices| table(devices, DEVICES, &flags))
}

fn stats(context: &Context, args: StatsArgs) -> Outcome {
    let (pool, interval) = resolve::pool_and_interval(&args.list.words)?;
    let mut flags = args.list.flags;
    flags.columns.get_or_insert_with(|| "pool,id,name,read,write,cksum,slow".into());
    if !args.check && !args.reset {
        return context.repeat(
            interval,
            || ListDevices { pool: pool.clone() },
            |devices| table(devices, DEVICES, &flags),
        );
    }
    if interval.every.is_some() {
        let message = "-c and -z look once, an interval again and again";
        return Err(ApiError::usage("grammar.conflict", message).hint("leave one of them out"));
    }
    let devices = context.client.call(ListDevices { pool })?;
    print(&if context.json { json::<ListDevices>(&devices, false) } else { table(&devices, DEVICES, &flags)? });
    if args.reset {
        let pools: BTreeSet<&String> = devices.iter().map(|d| &d.pool).collect();
        for pool in pools {
            context.client.call(ClearErrors { pool: pool.clone(), device: None, counts_only: true })?;
        }
    }
    Ok(u8::from(args.check && !devices.iter().all(no_errors)))
}

fn no_errors(d: &DeviceStatus) -> bool {
    d.read_errors == 0 && d.write_errors == 0 && d.checksum_errors == 0
}

fn scan(context: &Context, args: ScanArgs) -> Outcome {
    let mut paths = Vec::new();
    for word in &args.devices {
        paths.extend(resolve::device_list(word)?);
    }
    context.show(ScanDevices { paths }, |found| table(found, SCANNED, &args.flags))
}

const SCANNED: &[Column<ScannedDevice>] = &[
    shown("path", |d| Cell::text(&d.path)),
    shown("size", |d| Cell::Bytes(d.size_bytes)),
    shown("class", |d| Cell::text(&d.class)),
    shown("usable", |d| Cell::text(yes_no(d.usable))),
    shown("content", |d| Cell::maybe(&d.content)),
    extra("pool", |d| Cell::maybe(&d.pool)),
    extra("rotational", |d| Cell::text(yes_no(d.rotational))),
    shown("model", |d| Cell::maybe(&d.model)),
    extra("serial", |d| Cell::maybe(&d.serial)),
];
