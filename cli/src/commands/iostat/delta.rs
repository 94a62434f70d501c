//! What happened between two snapshots, by pool, member, class and reason.

use braid_host::control::api::*;
use std::collections::BTreeMap;

/// The same pool in an earlier snapshot, and when that was. A pool that was opened in between counts from its opening.
pub(crate) fn earlier<'a>(before: Option<&'a IoSnapshot>, pool: &PoolIo) -> Option<(u64, &'a PoolIo)> {
    let before = before?;
    let old = before.pools.iter().find(|p| p.name == pool.name)?;
    (old.opened_monotonic_ns == pool.opened_monotonic_ns).then_some((before.monotonic_ns, old))
}

/// Operations of clients or of a device.
pub(crate) fn operations(now: &IoCounters, old: &IoCounters) -> IoCounters {
    let time = |now: Option<u64>, old: Option<u64>| now.map(|now| now.saturating_sub(old.unwrap_or(0)));
    IoCounters {
        reads: now.reads.saturating_sub(old.reads),
        writes: now.writes.saturating_sub(old.writes),
        flushes: now.flushes.saturating_sub(old.flushes),
        discards: now.discards.saturating_sub(old.discards),
        read_bytes: now.read_bytes.saturating_sub(old.read_bytes),
        write_bytes: now.write_bytes.saturating_sub(old.write_bytes),
        read_ns: time(now.read_ns, old.read_ns),
        write_ns: time(now.write_ns, old.write_ns),
    }
}

/// Counters by name. One that fell back began anew.
pub(crate) fn counts(now: &BTreeMap<String, u64>, old: Option<&BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let before = |name: &String| old.and_then(|o| o.get(name)).copied().unwrap_or(0);
    now.iter().map(|(name, n)| (name.clone(), n.checked_sub(before(name)).unwrap_or(*n))).collect()
}

/// Classes of one member: what there is now, and what was counted in between.
pub(crate) fn classes(now: &QueueIo, old: Option<&QueueIo>) -> BTreeMap<String, ClassIo> {
    let nothing = ClassIo::default();
    let before = |name: &String| old.and_then(|o| o.classes.get(name)).unwrap_or(&nothing);
    now.classes.iter().map(|(name, class)| (name.clone(), minus(class, before(name)))).collect()
}

fn minus(now: &ClassIo, old: &ClassIo) -> ClassIo {
    ClassIo {
        queued: now.queued,
        active: now.active,
        commands: now.commands,
        left: now.left.saturating_sub(old.left),
        waited: now.waited.saturating_sub(old.waited),
        waited_ns: now.waited_ns.saturating_sub(old.waited_ns),
        ios: now.ios.saturating_sub(old.ios),
        bytes: now.bytes.saturating_sub(old.bytes),
        queue_ns: now.queue_ns.saturating_sub(old.queue_ns),
        device_ns: now.device_ns.saturating_sub(old.device_ns),
        total_ns: now.total_ns.saturating_sub(old.total_ns),
        histograms: now.histograms.as_ref().map(|now| {
            let nothing = ClassHistograms::default();
            let old = old.histograms.as_ref().unwrap_or(&nothing);
            ClassHistograms {
                queue_ns: histogram(&now.queue_ns, &old.queue_ns),
                device_ns: histogram(&now.device_ns, &old.device_ns),
                total_ns: histogram(&now.total_ns, &old.total_ns),
                size_before: histogram(&now.size_before, &old.size_before),
                size_after: histogram(&now.size_after, &old.size_after),
            }
        }),
    }
}

fn histogram(now: &HistogramIo, old: &HistogramIo) -> HistogramIo {
    let before = |i: usize| old.counts.get(i).copied().unwrap_or(0);
    let counts = now.counts.iter().enumerate().map(|(i, n)| n.saturating_sub(before(i))).collect();
    HistogramIo { counts, sum: now.sum.saturating_sub(old.sum) }
}

/// Adds another member's classes, for the line of the pool.
pub(crate) fn add(sum: &mut BTreeMap<String, ClassIo>, more: &BTreeMap<String, ClassIo>) {
    for (name, class) in more {
        let to = sum.entry(name.clone()).or_default();
        let numbers = [
            (&mut to.left, class.left),
            (&mut to.waited, class.waited),
            (&mut to.waited_ns, class.waited_ns),
            (&mut to.ios, class.ios),
            (&mut to.bytes, class.bytes),
            (&mut to.queue_ns, class.queue_ns),
            (&mut to.device_ns, class.device_ns),
            (&mut to.total_ns, class.total_ns),
        ];
        numbers.into_iter().for_each(|(to, n)| *to = to.saturating_add(n));
        for (to, n) in
            [(&mut to.queued, class.queued), (&mut to.active, class.active), (&mut to.commands, class.commands)]
        {
            *to = to.saturating_add(n);
        }
        if let Some(more) = &class.histograms {
            let to = to.histograms.get_or_insert_default();
            for (to, more) in [
                (&mut to.queue_ns, &more.queue_ns),
                (&mut to.device_ns, &more.device_ns),
                (&mut to.total_ns, &more.total_ns),
                (&mut to.size_before, &more.size_before),
                (&mut to.size_after, &more.size_after),
            ] {
                to.counts.resize(to.counts.len().max(more.counts.len()), 0);
                to.counts.iter_mut().zip(&more.counts).for_each(|(to, n)| *to += n);
                to.sum = to.sum.saturating_add(more.sum);
            }
        }
    }
}
