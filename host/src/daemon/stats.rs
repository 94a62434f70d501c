//! Counters of a pool, in the words of the API. Only maps; asks nobody.

use std::collections::BTreeMap;

use braid_core::queue::stats::{ClassStats, Histogram};
use braid_core::report::{DeviceReport, PoolReport, QueueReport, VolumeReport, Waits};

use super::views::{About, allocated, free, path_of, short_name};
use crate::control::api::*;

/// `iostat`, one pool.
pub(super) fn io(report: &PoolReport, about: &About, histograms: bool) -> PoolIo {
    let c = &report.counters;
    PoolIo {
        name: report.name.clone(),
        opened_monotonic_ns: about.opened_ns,
        allocated_bytes: report.devices.iter().map(allocated).sum(),
        free_bytes: report.devices.iter().map(free).sum(),
        client: IoCounters {
            reads: c.reads,
            writes: c.writes,
            flushes: c.flushes,
            discards: c.discards,
            read_bytes: c.read_bytes,
            write_bytes: c.write_bytes,
            read_ns: Some(c.read_ns),
            write_ns: Some(c.write_ns),
        },
        errors: c.errors,
        translations: c.translations,
        retries: c.retries,
        read_reasons: report.read_reasons.iter().map(|(name, n)| ((*name).to_string(), *n)).collect(),
        waits: PoolWaits {
            busy: c.busy,
            no_space: c.no_space,
            parked: wait(c.parked),
            space: wait(c.space),
            log: wait(c.log),
            flush: wait(c.flush),
        },
        volumes: report.volumes.iter().map(volume).collect(),
        devices: report.devices.iter().map(|d| device(d, about, histograms)).collect(),
    }
}

fn wait(waits: Waits) -> WaitIo {
    WaitIo { count: waits.count, wait_ns: waits.ns }
}

fn volume(v: &VolumeReport) -> VolumeIo {
    let io = IoCounters {
        reads: v.io.reads,
        writes: v.io.writes,
        flushes: v.io.flushes,
        discards: v.io.discards,
        read_bytes: v.io.read_bytes,
        write_bytes: v.io.write_bytes,
        read_ns: Some(v.io.read_ns),
        write_ns: Some(v.io.write_ns),
    };
    VolumeIo { id: v.id.0, name: v.name.clone(), io }
}

fn device(d: &DeviceReport, about: &About, histograms: bool) -> DeviceIo {
    DeviceIo {
        id: d.id.0,
        name: short_name(&path_of(d, about)),
        class: d.class.name().into(),
        allocated_bytes: allocated(d),
        free_bytes: free(d),
        io: IoCounters {
            reads: d.io.reads,
            writes: d.io.writes,
            flushes: d.io.flushes,
            discards: d.io.discards,
            read_bytes: d.io.read_bytes,
            write_bytes: d.io.write_bytes,
            read_ns: Some(d.io.read_ns),
            write_ns: Some(d.io.write_ns),
        },
        ios: d.io.ios,
        merged: d.io.merged,
        read_errors: d.io.read_errors,
        write_errors: d.io.write_errors,
        checksum_errors: d.io.checksum_errors,
        chosen: d.io.chosen,
        in_flight: d.in_flight,
        read_latency_ns: d.read_latency_ns,
        queue: queue(&d.queue, histograms),
    }
}

fn queue(queue: &QueueReport, histograms: bool) -> QueueIo {
    let scheduler = queue.settings.iter().find(|(name, ..)| *name == "scheduler");
    let used = queue.stats.all().filter(|(_, stats)| **stats != ClassStats::default());
    let mut left_behind: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (class, reason, ns) in &queue.left_behind {
        left_behind.entry(class.name().into()).or_default().insert(format!("{reason}_ns"), *ns);
    }
    QueueIo {
        scheduler: scheduler.map(|(_, value, _)| value.clone()).unwrap_or_default(),
        classes: used.map(|(class, stats)| (class.name().to_string(), one_class(stats, histograms))).collect(),
        reasons: queue.reasons.iter().map(|(name, n)| ((*name).to_string(), *n)).collect(),
        left_behind,
    }
}

fn one_class(stats: &ClassStats, histograms: bool) -> ClassIo {
    ClassIo {
        queued: stats.queued,
        active: stats.active,
        commands: stats.commands,
        left: stats.left,
        waited: stats.waited,
        waited_ns: stats.waited_ns,
        ios: stats.ios,
        bytes: stats.bytes,
        queue_ns: stats.queue_ns().sum,
        device_ns: stats.device_ns().sum,
        total_ns: stats.total_ns().sum,
        histograms: histograms.then(|| ClassHistograms {
            queue_ns: histogram(&stats.queue_ns()),
            device_ns: histogram(&stats.device_ns()),
            total_ns: histogram(&stats.total_ns()),
            size_before: histogram(&stats.size_before()),
            size_after: histogram(&stats.size_after()),
        }),
    }
}

fn histogram(h: &Histogram) -> HistogramIo {
    let end = h.counts.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    HistogramIo { counts: h.counts[..end].to_vec(), sum: h.sum }
}
