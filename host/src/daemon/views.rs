//! What a pool says about itself, in the words of the API. Only maps; asks nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use braid_core::device::Role;
use braid_core::report::{ChunkReport, DeviceReport, PoolReport, SumsReport};
use braid_core::units::{DeviceId, UNIT};
use braid_core::{ChunkType, DeviceState};

use braid_core::regions::REGION;

use super::events::kind_name;
use super::{jobs, problems, scrub, seen, spares};
use crate::control::api::*;

/// Chunk types in the order of the reports' tables.
pub(super) const KINDS: [ChunkType; 3] = [ChunkType::Data, ChunkType::Metadata, ChunkType::System];

/// What the daemon knows of an open pool and its engine does not.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) opened_at: SystemTime,
    pub(super) opened_ns: u64,
    pub(super) members: BTreeMap<DeviceId, MemberFacts>,
    /// Members that are taken back by themselves when they are there again.
    pub(super) away: BTreeSet<DeviceId>,
    /// How disks are talked to: `io_uring`, or `threads: ` and why.
    pub(super) reactor: String,
    /// Records that a power cut took back.
    pub(super) forgotten: u64,
}

/// What the host found out about a member when it was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberFacts {
    pub(super) path: String,
    pub(super) model: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) diskseq: Option<u64>,
    pub(super) notes: Vec<String>,
}

/// A clock that never jumps; its origin means nothing.
pub(super) fn monotonic_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(ORIGIN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn allocated(device: &DeviceReport) -> u64 {
    device.allocated.iter().sum()
}

pub(super) fn free(device: &DeviceReport) -> u64 {
    device.size.saturating_sub(allocated(device))
}

/// Who holds content, or may: all but spares that are held back.
fn members(report: &PoolReport) -> impl Iterator<Item = &DeviceReport> {
    report.devices.iter().filter(|d| d.role != Role::Spare)
}

pub(super) fn gone(report: &PoolReport) -> BTreeSet<DeviceId> {
    members(report).filter(|d| !d.state.is_used()).map(|d| d.id).collect()
}

/// Who is there and may lack something that was written: of what it has nobody can be sure from outside.
fn behind(report: &PoolReport) -> BTreeSet<DeviceId> {
    members(report).filter(|d| d.state.is_used() && d.stale.is_behind).map(|d| d.id).collect()
}

/// Device failures that a chunk is sure to survive from now on; `None` when some of it cannot be reached already.
pub(super) fn survives(chunk: &ChunkReport, gone: &BTreeSet<DeviceId>) -> Option<u32> {
    let facts = chunk.profile.facts();
    let left = if facts.parity > 0 {
        let lost = chunk.columns.iter().filter(|(d, _)| gone.contains(d)).count();
        facts.tolerated_failures.checked_sub(lost)?
    } else {
        // Each set of copies stands on its own; the weakest decides.
        let sets = chunk.columns.chunks(facts.copies.max(1));
        let alive = |set: &[(DeviceId, u64)]| {
            set.iter().map(|(d, _)| d).filter(|d| !gone.contains(d)).collect::<BTreeSet<_>>().len()
        };
        sets.map(alive).min().unwrap_or(0).checked_sub(1)?
    };
    Some(u32::try_from(left).unwrap_or(u32::MAX))
}

fn is_degraded(chunk: &ChunkReport, gone: &BTreeSet<DeviceId>) -> bool {
    chunk.columns.iter().any(|(d, _)| gone.contains(d))
}

/// The state word.
pub(super) fn state(report: &PoolReport) -> PoolState {
    let gone = gone(report);
    match () {
        () if report.suspended => PoolState::Suspended,
        () if report.chunks.iter().any(|c| survives(c, &gone).is_none()) => PoolState::Unavailable,
        () if !gone.is_empty() || !behind(report).is_empty() => PoolState::Degraded,
        () => PoolState::Online,
    }
}

pub(super) fn property(report: &PoolReport, name: &str) -> String {
    report.properties.iter().find(|(n, _, _)| *n == name).map(|(_, value, _)| value.clone()).unwrap_or_default()
}

/// Last part of a path.
pub(super) fn short_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_string()
}

pub(super) fn path_of(device: &DeviceReport, about: &About) -> String {
    about.members.get(&device.id).map_or_else(|| seen::parts(&device.path).0.to_string(), |m| m.path.clone())
}

fn profile_name(report: &PoolReport, kind: ChunkType) -> String {
    report.profiles[kind as usize].name().to_string()
}

/// A line of `list`.
pub(super) fn summary(report: &PoolReport) -> PoolSummary {
    PoolSummary {
        name: report.name.clone(),
        uuid: report.uuid.to_string(),
        state: state(report),
        size_bytes: members(report).map(|d| d.size).sum(),
        allocated_bytes: members(report).map(allocated).sum(),
        free_bytes: members(report).map(free).sum(),
        writable_bytes: report.writable_data,
        devices: report.devices.len() as u32,
        volumes: report.volumes.len() as u32,
        data: profile_name(report, ChunkType::Data),
        metadata: profile_name(report, ChunkType::Metadata),
        not_open: None,
    }
}

/// `status`.
pub(super) fn status(report: &PoolReport, about: &About) -> PoolStatus {
    let gone = gone(report);
    let unsure: BTreeSet<DeviceId> = gone.union(&behind(report)).copied().collect();
    let per_chunk = report.chunks.iter().map(|c| survives(c, &unsure).unwrap_or(0));
    // Chunks that are still to come count too, or an empty pool would promise more than a full one.
    let promised = [ChunkType::Data, ChunkType::Metadata].map(|kind| {
        let facts = report.profiles[kind as usize].facts();
        facts.tolerated_failures as u32
    });
    let degraded = report.chunks.iter().filter(|c| is_degraded(c, &gone)).count() as u64;
    let spilled = KINDS.into_iter().filter(|kind| report.spilled[*kind as usize] > 0).map(|kind| Spill {
        kind: kind_name(kind).into(),
        bytes: report.spilled[kind as usize],
        count: report.counters.spills,
    });
    PoolStatus {
        name: report.name.clone(),
        uuid: report.uuid.to_string(),
        state: state(report),
        opened_at: rfc3339(about.opened_at),
        uptime_ns: monotonic_ns().saturating_sub(about.opened_ns),
        survivable_failures: per_chunk.chain(promised).min().unwrap_or(0),
        data: profile_name(report, ChunkType::Data),
        metadata: profile_name(report, ChunkType::Metadata),
        read_policy: property(report, "read_policy"),
        mode: property(report, "allocation"),
        checksum: property(report, "checksum"),
        checksum_cache: report.sums.into(),
        lost: lost(report),
        chunks: report.chunks.len() as u64,
        degraded_chunks: degraded,
        volumes: report.volumes.len() as u32,
        generation: report.generation,
        writable_data_bytes: report.writable_data,
        writable_metadata_bytes: report.writable_metadata,
        spilled: spilled.collect(),
        problems: problems::of(report, about, degraded).into_iter().chain(scrub::problem(report)).collect(),
        notes: notes(report, about),
        scrub: scrub::info(report, about),
        job: jobs::info(report),
        spares: spares::spares(report, about),
        devices: devices(report, about),
    }
}

/// What no copy holds any more.
fn lost(report: &PoolReport) -> Vec<LostRange> {
    let name = |id| report.volumes.iter().find(|v| v.id == id).map(|v| v.name.clone());
    let range = |&(volume, offset, bytes)| Some(LostRange { volume: name(volume)?, offset, bytes });
    report.lost.iter().filter_map(range).collect()
}

impl From<SumsReport> for ChecksumCache {
    fn from(sums: SumsReport) -> Self {
        ChecksumCache { used_bytes: sums.cached, unwritten_bytes: sums.dirty, limit_bytes: sums.limit }
    }
}

fn notes(report: &PoolReport, about: &About) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = about.reactor.strip_prefix("threads") {
        let why = why.trim_start_matches(':').trim();
        let why = if why.is_empty() { "as asked" } else { why };
        notes.push(format!("disks are served by threads, not by io_uring: {why}"));
    }
    if report.resync.regions_left > 0 {
        notes.push(format!(
            "after an unclean stop copies are compared and made alike where something was being written: {} MiB of volumes to \
             look at, {} MiB done",
            report.resync.regions_left * (REGION >> 20),
            report.resync.units_done * UNIT / (1 << 20)
        ));
    }
    if about.forgotten > 0 {
        notes.push(format!(
            "a power cut took back {} changes that nobody had asked to flush, when the pool was last opened",
            about.forgotten
        ));
    }
    notes
}

/// Members of a pool.
pub(super) fn devices(report: &PoolReport, about: &About) -> Vec<DeviceStatus> {
    report.devices.iter().map(|d| device(report, d, about)).collect()
}

fn device(report: &PoolReport, d: &DeviceReport, about: &About) -> DeviceStatus {
    let path = path_of(d, about);
    let facts = about.members.get(&d.id);
    let note = match d.state {
        DeviceState::Missing => Some(format!("was {path}")),
        DeviceState::Failed => Some("given up, out of date".into()),
        DeviceState::Suspect => Some("missed something".into()),
        DeviceState::Rebuilding => Some(spares::rebuilding(report, d)),
        DeviceState::Removing => Some("its content moves off".into()),
        DeviceState::Online => facts.filter(|f| !f.notes.is_empty()).map(|f| f.notes.join("; ")),
    };
    let missed = d.stale.is_to_come.then(|| d.rebuilt.unwrap_or_default());
    let tiers = [("data", d.tiers.data), ("metadata", d.tiers.metadata), ("system", d.tiers.metadata)];
    DeviceStatus {
        pool: report.name.clone(),
        id: d.id.0,
        uuid: d.uuid.to_string(),
        name: short_name(&path),
        path,
        class: d.class.name().into(),
        state: state_word(d).into(),
        usable: d.state.is_used(),
        rotational: d.rotational,
        read_preferred: d.read_preferred,
        tiers: tiers.map(|(kind, tier)| (kind.to_string(), tier)).into(),
        size_bytes: d.size,
        allocated_bytes: allocated(d),
        read_errors: d.io.read_errors,
        write_errors: d.io.write_errors,
        repaired: d.io.repaired,
        checksum_errors: d.io.checksum_errors,
        slow_ios: d.io.slow,
        read_latency_ns: d.read_latency_ns,
        rebuilt_bytes: missed.map(|progress| progress.done),
        to_rebuild_bytes: missed.map(|progress| progress.total),
        note,
        model: facts.and_then(|f| f.model.clone()),
        serial: facts.map_or_else(|| seen::parts(&d.path).1.map(str::to_string), |f| f.serial.clone()),
    }
}

/// The word for what a member is; one that is being emptied says so while it is well.
fn state_word(device: &DeviceReport) -> &'static str {
    match (device.state, device.role) {
        (DeviceState::Online, Role::Leaving | Role::Parting) => "REMOVING",
        (DeviceState::Online, Role::Spare) => "AVAIL",
        (DeviceState::Missing | DeviceState::Failed, Role::Spare) => "UNAVAIL",
        (state, _) => state.name(),
    }
}

/// `usage`.
pub(super) fn usage(report: &PoolReport, about: &About) -> PoolUsage {
    let mut groups: BTreeMap<(usize, &str), GroupUsage> = BTreeMap::new();
    for chunk in &report.chunks {
        let key = (chunk.kind as usize, chunk.profile.name());
        let group = groups.entry(key).or_insert_with(|| GroupUsage {
            kind: kind_name(chunk.kind).into(),
            profile: chunk.profile.name().into(),
            chunks: 0,
            raw_bytes: 0,
            size_bytes: 0,
            used_bytes: 0,
        });
        group.chunks += 1;
        group.raw_bytes += chunk.stripe.saturating_mul(chunk.columns.len() as u64);
        group.size_bytes += chunk.length;
        group.used_bytes += chunk.used;
    }
    let device = |d: &DeviceReport| DeviceUsage {
        id: d.id.0,
        name: short_name(&path_of(d, about)),
        class: d.class.name().into(),
        size_bytes: d.size,
        data_bytes: d.allocated[ChunkType::Data as usize],
        metadata_bytes: d.allocated[ChunkType::Metadata as usize],
        system_bytes: d.allocated[ChunkType::System as usize],
        unallocated_bytes: free(d),
    };
    PoolUsage {
        name: report.name.clone(),
        raw_bytes: members(report).map(|d| d.size).sum(),
        unallocated_bytes: members(report).map(free).sum(),
        writable_data_bytes: report.writable_data,
        writable_metadata_bytes: report.writable_metadata,
        data: profile_name(report, ChunkType::Data),
        metadata: profile_name(report, ChunkType::Metadata),
        groups: groups.into_values().collect(),
        devices: report.devices.iter().map(device).collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use braid_core::queue::stats::QueueStats;
    use braid_core::report::{Counters, DeviceCounters, QueueReport, StaleReport};
    use braid_core::units::{ChunkId, GIB, Uuid};
    use braid_core::{DeviceClass, Profile, Tiers};

    fn device(id: u32, state: DeviceState) -> DeviceReport {
        DeviceReport {
            id: DeviceId(id),
            uuid: Uuid([id as u8; 16]),
            path: format!("/dev/sd{}", char::from(b'a' + id as u8)),
            class: DeviceClass::of_rotational(true),
            rotational: true,
            tiers: Tiers { data: 0, metadata: 2 },
            read_preferred: false,
            state,
            faults: 0,
            last_error: None,
            role: Role::Member,
            spare: false,
            size: 10 * GIB,
            allocated: [GIB, 0, GIB],
            io: DeviceCounters::default(),
            in_flight: 1,
            read_latency_ns: 7,
            stale: StaleReport::default(),
            rebuilt: None,
            queue: QueueReport {
                settings: Vec::new(),
                stats: QueueStats::default(),
                reasons: Vec::new(),
                left_behind: Vec::new(),
            },
        }
    }

    fn chunk(id: u32, kind: ChunkType, profile: Profile, devices: &[u32]) -> ChunkReport {
        let columns = devices.iter().map(|d| (DeviceId(*d), GIB)).collect();
        let (length, used, stripe) = (GIB, GIB / 4, GIB);
        ChunkReport { id: ChunkId(id), kind, profile, length, used, columns, stripe, spilled: false }
    }

    pub(in crate::daemon) fn report(
        profile: Profile,
        states: [DeviceState; 4],
        chunks: Vec<ChunkReport>,
    ) -> PoolReport {
        PoolReport {
            name: "tank".into(),
            uuid: Uuid([9; 16]),
            profiles: [profile, profile, profile.system()],
            devices: states.into_iter().enumerate().map(|(i, s)| device(i as u32 + 1, s)).collect(),
            chunks,
            volumes: Vec::new(),
            properties: vec![("read_policy", "latency".into(), true), ("allocation", "tiers".into(), true)],
            read_reasons: vec![("only-copy", 3)],
            counters: Counters { spills: 4, ..Counters::default() },
            spilled: [0, 5 * GIB, 0],
            writable_data: GIB,
            writable_metadata: GIB,
            generation: 12,
            scrub: Default::default(),
            job: None,
            resync: Default::default(),
            suspended: false,
            lost: Vec::new(),
            sums: SumsReport::default(),
        }
    }

    pub(in crate::daemon) fn about() -> About {
        let facts = MemberFacts { path: "/srv/moved.img".into(), notes: vec!["buffered".into()], ..Default::default() };
        About {
            opened_at: SystemTime::UNIX_EPOCH,
            opened_ns: 0,
            members: BTreeMap::from([(DeviceId(1), facts)]),
            away: BTreeSet::new(),
            reactor: "threads: io_uring_setup: Operation not permitted".into(),
            forgotten: 0,
        }
    }

    #[test]
    fn states_and_what_is_survivable() {
        use DeviceState::{Failed, Missing, Online};
        use Profile::*;
        let all = [Online; 4];
        let one = [Online, Failed, Online, Online];
        let pair = [Missing, Missing, Online, Online];
        let across = [Online, Missing, Missing, Online];
        for (profile, columns, states, word, left, degraded) in [
            (Single, vec![1], all, "ONLINE", 0, 0),
            (Single, vec![1], one, "DEGRADED", 0, 0),
            (Single, vec![2], one, "UNAVAIL", 0, 1),
            (Dup, vec![1, 1], all, "ONLINE", 0, 0),
            (Raid1, vec![1, 2], all, "ONLINE", 1, 0),
            (Raid1, vec![1, 2], one, "DEGRADED", 0, 1),
            (Raid1, vec![1, 2], pair, "UNAVAIL", 0, 1),
            (Raid1c3, vec![1, 2, 3], all, "ONLINE", 2, 0),
            (Raid1c3, vec![1, 2, 3], pair, "DEGRADED", 0, 1),
            (Raid10, vec![1, 2, 3, 4], across, "DEGRADED", 0, 1),
            (Raid10, vec![1, 2, 3, 4], pair, "UNAVAIL", 0, 1),
            (Raid0, vec![1, 2, 3], one, "UNAVAIL", 0, 1),
            (Raid6, vec![1, 2, 3, 4], all, "ONLINE", 2, 0),
            (Raid6, vec![1, 2, 3, 4], pair, "DEGRADED", 0, 1),
        ] {
            let report = report(profile, states, vec![chunk(1, ChunkType::Data, profile, &columns)]);
            let status = status(&report, &about());
            let got = (status.state.name(), status.survivable_failures, status.degraded_chunks);
            assert_eq!(got, (word, left, degraded), "{profile:?} {states:?}");
            assert_eq!(status.problems.is_empty(), word == "ONLINE", "{:?}", status.problems);
        }
        // One that has everything but for a checkpoint that says so, or lacks records only, is not counted on.
        let mut behind = report(Profile::Raid6, all, vec![chunk(1, ChunkType::Data, Profile::Raid6, &[1, 2, 3, 4])]);
        behind.devices[1].stale.is_behind = true;
        let told = status(&behind, &about());
        assert_eq!((told.state.name(), told.survivable_failures, told.degraded_chunks), ("DEGRADED", 1, 0));
        behind.suspended = true;
        assert_eq!(status(&behind, &about()).state.name(), "SUSPENDED");
        // Also where some content cannot be reached: it says what to do.
        let away = [Online, Missing, Online, Online];
        let mut suspended = report(Raid0, away, vec![chunk(1, ChunkType::Data, Raid0, &[1, 2, 3])]);
        suspended.suspended = true;
        let told = status(&suspended, &About { away: BTreeSet::from([DeviceId(2)]), ..about() });
        assert_eq!(told.state.name(), "SUSPENDED");
        let actions: Vec<&str> = told.problems.iter().filter_map(|p| p.action.as_deref()).collect();
        assert!(actions.iter().all(|action| !action.contains("import")), "{actions:?}");
        assert!(!actions.iter().any(|action| action.contains("by itself")), "{actions:?}");
        assert_eq!(actions.iter().filter(|action| action.ends_with("braid clear tank")).count(), 3, "{actions:?}");
        let empty = status(&report(Profile::Raid0, all, vec![]), &about());
        assert_eq!(empty.survivable_failures, 0, "an empty pool promises what a full one keeps");
    }

    #[test]
    fn status_says_spill_fallback_and_where_devices_are() {
        let mut states = [DeviceState::Online; 4];
        states[3] = DeviceState::Missing;
        let status = status(&report(Profile::Raid1, states, vec![]), &about());
        assert_eq!(status.spilled, [Spill { kind: "metadata".into(), bytes: 5 * GIB, count: 4 }]);
        assert_eq!(
            status.notes,
            ["disks are served by threads, not by io_uring: io_uring_setup: Operation not permitted"]
        );
        let rows: Vec<_> = status.devices.iter().map(|d| (d.name.as_str(), d.note.as_deref(), d.usable)).collect();
        let expected = [
            ("moved.img", Some("buffered"), true),
            ("sdc", None, true),
            ("sdd", None, true),
            ("sde", Some("was /dev/sde"), false),
        ];
        assert_eq!(rows, expected);
        assert_eq!(status.devices[0].tiers["system"], 2);
        assert!(status.problems[0].message.starts_with("device 4 (last seen at /dev/sde"), "{:?}", status.problems);
    }

    #[test]
    fn space_and_counters_add_up() {
        let chunks = vec![
            chunk(1, ChunkType::System, Profile::Raid1, &[1, 2]),
            chunk(2, ChunkType::Data, Profile::Raid1, &[1, 2]),
            chunk(3, ChunkType::Data, Profile::Raid1, &[3, 4]),
        ];
        let report = report(Profile::Raid1, [DeviceState::Online; 4], chunks);
        let usage = usage(&report, &about());
        let groups: Vec<_> =
            usage.groups.iter().map(|g| (g.kind.as_str(), g.chunks, g.raw_bytes / GIB, g.size_bytes / GIB)).collect();
        assert_eq!(groups, [("data", 2, 4, 2), ("system", 1, 2, 1)]);
        assert_eq!((usage.raw_bytes, usage.unallocated_bytes), (40 * GIB, 32 * GIB));
        let io = crate::daemon::stats::io(&report, &about(), false);
        assert_eq!((io.allocated_bytes, io.devices.len(), io.read_reasons["only-copy"]), (8 * GIB, 4, 3));
        assert_eq!(summary(&report).free_bytes, 32 * GIB);
    }
}
