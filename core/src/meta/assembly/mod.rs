//! From superblocks to a pool: what to read next, what was found, what is wrong.
//!
//! The caller owns the devices. It asks [`Assembly::step`], reads what that wants, gives it to
//! [`Assembly::supply`] and asks again, until there is a pool or a reason why not. Every page and log block is taken
//! from the first copy that holds it intact.

mod again;
mod copies;
mod log;
mod marks;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::OnceCell;

use super::codec::Malformed;
use super::codec::Reader;
use super::journal::Lsn;
use super::pages::{Page, PageSpace};
use super::record::Record;
use super::superblock::{Age, Superblock};
use crate::chunk::{Chunk, Column};
use crate::device::{Device, DeviceState};
use crate::pool::Pool;
use crate::profile::slice;
use crate::regions::{ROWS, Region, Regions, UNITS, of_unit, row_of_unit, row_unit};
use crate::request::IoError;
use crate::units::{ChunkId, DeviceId, UNIT, Uuid, VolumeId};
use crate::volume::{Entry, LEAF};
pub(crate) use again::{Lacking, Replay, RowBlock};
use copies::{Held, check_runs};
use log::Log;
use marks::{apply_mark, is_mark};

/// Something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetaRead {
    /// The member, by id.
    pub device: DeviceId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What to do next.
pub enum Step {
    /// Read these, in any order, and supply each.
    Read(Vec<MetaRead>),
    /// Here it is.
    Ready(Box<Opened>),
    /// It cannot be opened; one sentence with cause and next step.
    Failed(String),
}

/// A pool that was read back, with what the engine needs to go on writing.
pub struct Opened {
    pub(crate) pool: Pool,
    pub(crate) superblock: Superblock,
    /// Members whose superblocks are not that one, and their generations.
    pub(crate) behind: BTreeMap<DeviceId, u64>,
    /// Members whose superblocks are older than they can be, and that nobody says were away: what they hold may be of any time.
    pub(crate) older: BTreeSet<DeviceId>,
    /// Copies of the log differ: with one of them something may go that was found.
    pub(crate) log_copies_differ: bool,
    pub(crate) pages: PageSpace,
    pub(crate) root: Vec<Page>,
    pub(crate) next_lsn: Lsn,
    pub(crate) next_seq: u64,
    /// Pages of leaves whose volumes the log took away: free with the next root.
    pub(crate) orphans: Vec<Page>,
    /// Where units were placed that no flush covers: a member that is not there may have lost them with its cache.
    pub(crate) unflushed: Regions,
    /// What the stripe journal says has to be written once more.
    pub(crate) replay: Replay,
    /// Members that are not there.
    pub missing: Vec<DeviceId>,
    /// To go on is to give something up for good, in one sentence that says what to do. Members that are there but were
    /// opened without those that count, and changed since: they are failed now and never read. Or a part of the log.
    pub gives_up: Option<String>,
    /// Copies of records that are not what was written there; another one was taken.
    pub(crate) damaged: Vec<Damage>,
    /// Records that a power cut took back: nobody had asked to flush what they were about.
    pub forgotten: u64,
}

/// A copy of the pool's own records that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) place: MetaRead,
    /// What the device said; nothing if it gave something else than was written.
    pub(crate) error: Option<IoError>,
}

impl Opened {
    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether those that are here say that the pool went on without this member: as a whole, or with something that it missed.
    pub fn was_without(&self, device: DeviceId) -> bool {
        self.superblock.without.contains(&device) || self.pool.stale.contains_key(&device)
    }
}

/// Where images are not counted: generations that a member in use may have missed. One with each opening that was cut short among its
/// claims, and a checkpoint.
const OLDER_BY: u64 = 8;

/// Whether the superblock that was found on a member is older than one that it has had.
pub(crate) fn is_older(found: Age, least: Age) -> bool {
    match least.image {
        0 => found.generation.saturating_add(OLDER_BY) <= least.generation,
        image => found.image < image,
    }
}

/// See the module.
pub struct Assembly {
    superblock: Superblock,
    /// Members that are there, with what they say they are.
    present: BTreeMap<DeviceId, Uuid>,
    /// How far their superblocks are.
    ages: BTreeMap<DeviceId, Age>,
    apart: BTreeSet<DeviceId>,
    /// They missed checkpoints, or have one that the others know nothing of; with the generations that they say.
    behind: BTreeMap<DeviceId, u64>,
    /// See [`Opened::older`].
    older: BTreeSet<DeviceId>,
    same_boot: bool,
    have: BTreeMap<MetaRead, Held>,
    /// What the records said, while the stripe journal is read.
    opened: Option<Box<Opened>>,
}

/// One superblock a member. A device whose way into the pool, or out of it, was cut short may say it is a member that
/// another one is by now: the one that was there at the last checkpoint counts.
fn without_leftovers(found: Vec<Superblock>) -> Result<Vec<Superblock>, String> {
    let mut members: BTreeMap<DeviceId, Superblock> = BTreeMap::new();
    for sb in found {
        match members.get(&sb.device) {
            Some(other) if other.device_uuid != sb.device_uuid && other.generation == sb.generation => {
                return Err(format!("two devices say they are device {} of pool {:?}", sb.device, sb.name));
            }
            Some(other) if other.generation > sb.generation => {}
            _ => drop(members.insert(sb.device, sb)),
        }
    }
    Ok(members.into_values().collect())
}

impl Assembly {
    /// From the superblocks of all members that were found; `boot` is the present boot of the machine.
    pub fn new(found: Vec<Superblock>, boot: Uuid) -> Result<Assembly, String> {
        let found = without_leftovers(found)?;
        let present: BTreeMap<DeviceId, Uuid> = found.iter().map(|sb| (sb.device, sb.device_uuid)).collect();
        // Where a power cut undid a checkpoint on some members and they went on without the rest, two sides have the same
        // generation: more members stand behind the one that went on.
        let mut of_opening: BTreeMap<Option<Uuid>, usize> = BTreeMap::new();
        found.iter().for_each(|sb| *of_opening.entry(sb.openings.first().copied()).or_default() += 1);
        let behind = |sb: &Superblock| {
            let known: BTreeSet<Option<Uuid>> = sb.openings.iter().copied().map(Some).chain([None]).collect();
            known.iter().filter_map(|opening| of_opening.get(opening)).sum::<usize>()
        };
        // Mostly who is said to be away is not here.
        let away: BTreeSet<DeviceId> = found.iter().flat_map(|sb| sb.without.iter().copied()).collect();
        let is_left =
            |sb: &&Superblock| away.contains(&sb.device) && found.iter().any(|other| other.went_on_without(sb));
        let order = |sb: &&Superblock| (!is_left(sb), sb.generation, behind(sb), core::cmp::Reverse(sb.device));
        let newest = found.iter().max_by_key(order).cloned();
        let mut superblock = newest.ok_or_else(|| String::from("no member of the pool was found"))?;
        check_runs(&superblock, &superblock.root)
            .map_err(|pages| format!("the root of pool {:?} is said to have {pages} pages", superblock.name))?;
        // Of a member that went its own way nothing is read, not even records: they may look like ours.
        let apart: BTreeSet<_> = found.iter().filter(|sb| !superblock.descends_from(sb)).map(|sb| sb.device).collect();
        let present = present.into_iter().filter(|(id, _)| !apart.contains(id)).collect();
        let is_behind = |sb: &&Superblock| sb.generation < superblock.generation || is_left(sb);
        let behind = found.iter().filter(is_behind).map(|sb| (sb.device, sb.generation)).collect();
        let is_older = |sb: &&Superblock| is_older(sb.age(), superblock.least_age(sb.device));
        let older = found.iter().filter(is_older).map(|sb| sb.device).filter(|id| !apart.contains(id)).collect();
        let ages = found.iter().map(|sb| (sb.device, sb.age())).collect();
        // What comes next counts against all of them, and goes to the slot that this one is not in.
        let most = found.iter().map(|sb| sb.generation).max().unwrap_or(superblock.generation);
        superblock.generation = most + (most - superblock.generation) % 2;
        let same_boot = superblock.boot == boot;
        Ok(Assembly { superblock, present, ages, apart, behind, older, same_boot, have: BTreeMap::new(), opened: None })
    }

    /// What a read of [`Step::Read`] gave.
    pub fn supply(&mut self, read: MetaRead, result: Result<Vec<u8>, IoError>) {
        self.have.insert(read, Held { result: result.map(Arc::new), is_sealed: OnceCell::new() });
    }

    /// As [`supply`](Self::supply), of bytes that the caller keeps as well: who opens many images that are alike need not
    /// copy them.
    pub fn supply_shared(&mut self, read: MetaRead, bytes: Arc<Vec<u8>>) {
        self.have.insert(read, Held { result: Ok(bytes), is_sealed: OnceCell::new() });
    }

    /// What to do next.
    pub fn step(&mut self) -> Step {
        match self.try_open() {
            Ok(opened) => Step::Ready(opened),
            Err(Stop::Need(reads)) => Step::Read(reads),
            Err(Stop::Because(reason)) => {
                Step::Failed(format!("pool {:?} cannot be opened: {reason}", self.superblock.name))
            }
        }
    }

    fn try_open(&mut self) -> Result<Box<Opened>, Stop> {
        let mut opened = match self.opened.take() {
            Some(opened) => opened,
            None => Box::new(self.records()?),
        };
        match self.replay(&opened.pool) {
            Ok(replay) => {
                opened.replay = replay;
                Ok(opened)
            }
            Err(stop) => {
                self.opened = Some(opened);
                Err(stop)
            }
        }
    }

    /// All but the stripe journal, which is found by what the records say.
    fn records(&self) -> Result<Opened, Stop> {
        let sb = &self.superblock;
        let mut space = PageSpace::default();
        let mut by_id = BTreeMap::new();
        for (i, chunk) in sb.system.iter().enumerate() {
            space.add(chunk, if i == 0 { u64::from(sb.log_blocks) } else { 0 });
            by_id.insert(chunk.id, chunk);
        }
        // The ring is asked for together with the first page: a wait less.
        let rings = self.rings();
        let (root, root_pages) = match (self.root(&by_id), &rings) {
            (Err(Stop::Need(mut reads)), Err(Stop::Need(ring))) => {
                reads.extend(ring);
                return Err(Stop::Need(reads));
            }
            (root, _) => root?,
        };
        let rings = rings?;
        take_all(&mut space, root_pages.iter().copied())?;
        let mut pool = Pool::new(sb.name.clone(), sb.pool);
        let mut leaves = Vec::new();
        let mut r = Reader::new(&root);
        while !r.is_empty() {
            match Record::decode(&mut r)? {
                Record::LeafPage { volume, leaf, page, crc } => leaves.push((volume, leaf, page, crc)),
                record => pool.apply(record).map_err(|c| Stop::Because(c.0))?,
            }
        }
        let addresses: Vec<_> = leaves.iter().map(|&(_, _, page, crc)| (page, Some(crc))).collect();
        let mut orphans: BTreeSet<Page> = leaves.iter().map(|&(_, _, page, _)| page).collect();
        take_all(&mut space, leaves.iter().map(|&(_, _, page, _)| page))?;
        let payloads = self.pages(&by_id, &addresses, 0)?;
        for ((volume, leaf, page, crc), payload) in leaves.into_iter().zip(payloads) {
            let table = decode_leaf(payload, volume, leaf)?;
            let volume = pool.volume_mut(volume).ok_or(Stop::because("a leaf belongs to no volume"))?;
            let used = table.iter().rposition(|e| e.is_mapped()).map_or(0, |last| last as u64 + 1);
            volume
                .check_inside(leaf.saturating_mul(LEAF as u64).saturating_add(used))
                .map_err(|c| Stop::Because(c.0))?;
            volume.map.load_table(leaf, page, crc, table);
        }
        let mut log = Log::read(sb, &rings);
        let keep = if self.same_boot { log.end } else { log.stable };
        let (mut forgotten, mut unflushed, mut moved) = (0, Regions::default(), BTreeSet::new());
        let mut placings = Regions::default();
        for (lsn, record) in core::mem::take(&mut log.records) {
            if (sb.first_lsn..keep).contains(&lsn) {
                placings.extend(placed(&record));
            }
            match lsn {
                _ if lsn < sb.first_lsn => {}
                _ if lsn < keep && lsn >= log.stable => {
                    unflushed.extend(placed(&record));
                    moved.extend(if let Record::Column { chunk, .. } = record { Some(chunk) } else { None });
                    pool.apply(record).map_err(|c| Stop::Because(format!("its log holds {}", c.0)))?;
                }
                _ if lsn < keep => pool.apply(record).map_err(|c| Stop::Because(format!("its log holds {}", c.0)))?,
                _ if is_mark(&record) => log.marks.push(record),
                _ => forgotten += 1,
            }
        }
        // They say that copies may differ or that one is behind, which is never wrong. And a write or the claim of a flush may
        // have relied on any of them.
        for mark in core::mem::take(&mut log.marks) {
            apply_mark(&mut pool, mark).map_err(|c| Stop::Because(c.0))?;
        }
        // What got a place, or more content, may have it at home before its sums.
        let summed = |region: &Region| pool.is_summed(region.0);
        let placings: Vec<Region> = placings.iter().filter(summed).collect();
        pool.intent.extend(placings);
        for chunk in &sb.system {
            let same = |c: &Chunk| (c.kind, &c.columns, c.stripe) == (chunk.kind, &chunk.columns, chunk.stripe);
            if chunk.kind != crate::ChunkType::System
                || chunk.profile.facts().striped
                || !pool.chunk(chunk.id).is_some_and(same)
            {
                return Err(Stop::because("its superblock and its root don't agree on the system chunks"));
            }
        }
        for volume in pool.volumes() {
            volume.map.slots().for_each(|(_, slot)| {
                orphans.remove(&slot.page);
            });
        }
        pool.count_units().map_err(|c| Stop::Because(c.0))?;
        unflushed.extend(regions_in(&pool, &moved));
        // System chunks made after the checkpoint hold no page yet.
        let known: BTreeSet<_> = by_id.keys().copied().collect();
        for chunk in pool.chunks().filter(|c| c.kind == crate::ChunkType::System && !known.contains(&c.id)) {
            space.add(chunk, 0);
        }
        let (mut missing, mut apart) = (Vec::new(), Vec::new());
        let stale: BTreeSet<DeviceId> = pool.stale.keys().copied().collect();
        for i in 0..pool.device_ids_end() {
            let id = DeviceId(i as u32);
            let Some(device) = pool.device_mut(id) else { continue };
            // Who is behind is so in what is noted, whatever a record said of it before.
            if device.state != DeviceState::Failed {
                let state = if stale.contains(&id) { DeviceState::Suspect } else { DeviceState::Online };
                device.state = state;
            }
            // Who was away and comes back lacks the leaves that were written meanwhile: the first checkpoint has them all.
            device.is_behind = self.behind.contains_key(&id);
            device.age = self.ages.get(&id).copied().unwrap_or_default();
            if self.present.get(&id) != Some(&device.uuid) {
                missing.push(id);
                device.age = sb.least_age(id);
                if device.state != DeviceState::Failed && self.apart.contains(&id) {
                    apart.push(format!("device {id} ({})", device.uuid));
                    device.state = DeviceState::Failed;
                } else if device.state != DeviceState::Failed {
                    device.state = DeviceState::Missing;
                }
            }
        }
        if let Some(why) = behind_everywhere(&pool) {
            return Err(Stop::Because(why));
        }
        if let Some(chunk) = pool.chunks().find(|c| !pool.chunk_available(c)) {
            let gone = chunk.columns.iter().filter(|c| !pool.is_online(c.device));
            let names = names(gone.filter_map(|c| pool.device(c.device)));
            let what_to_do = match apart.is_empty() {
                true => "connect that and import again",
                false => {
                    "which was opened and changed by itself; import each side without the other and copy what you need"
                }
            };
            return Err(Stop::Because(format!(
                "chunk {} has no copy left without {}; {what_to_do}",
                chunk.id,
                names.join(" or ")
            )));
        }
        Ok(Opened {
            superblock: sb.clone(),
            behind: self.behind.clone(),
            older: self.older.clone(),
            log_copies_differ: log.copies_differ,
            pages: space,
            root: root_pages,
            next_lsn: keep.max(sb.first_lsn),
            next_seq: log.next_seq.saturating_add(u64::from(sb.log_blocks)),
            orphans: orphans.into_iter().collect(),
            unflushed,
            replay: Replay::default(),
            missing,
            gives_up: if apart.is_empty() { self.gap_in(&log, &pool) } else { Some(self.other_side(&apart)) },
            damaged: log.damaged.into_iter().chain(self.bad_pages()).collect(),
            forgotten,
            pool,
        })
    }

    fn other_side(&self, apart: &[String]) -> String {
        format!(
            "pool {:?} has come apart: {} was opened without the others and went its own way, so the two sides hold different \
             content. To keep this side (generation {}) and give up what only the other has, use -f; to keep the other, \
             disconnect the members of this side and use -f",
            self.superblock.name,
            apart.join(" and "),
            self.superblock.generation
        )
    }

    /// Something in the middle of the log is on no copy that is here, though it was on stable media once.
    fn gap_in(&self, log: &Log, pool: &Pool) -> Option<String> {
        if !log.is_broken {
            return None;
        }
        let missing = pool.devices().filter(|d| d.state == DeviceState::Missing);
        let names: Vec<String> = missing.map(|d| format!("device {} (last seen at {})", d.id, d.path)).collect();
        let first = match names.is_empty() {
            true => String::new(),
            false => format!("connect {} and import again, or, ", names.join(" and ")),
        };
        Some(format!(
            "the log of pool {:?} is damaged in the middle on every copy that is here, so what was flushed after that is not \
             known any more; {first}to go on with what was there before it, use -f",
            self.superblock.name
        ))
    }
}

/// Marks pages as taken: each exists, and nothing refers to one twice.
fn take_all(space: &mut PageSpace, mut pages: impl Iterator<Item = Page>) -> Result<(), Stop> {
    match pages.find(|&page| !space.take_at(page)) {
        Some(page) => Err(Stop::Because(format!("page {page:x} is referred to twice or does not exist"))),
        None => Ok(()),
    }
}

/// Some content whose only good copies are on members that are not there: in words, with the member that would be enough.
fn behind_everywhere(pool: &Pool) -> Option<String> {
    for (device, region) in pool.stale.iter().flat_map(|(&device, set)| set.iter().map(move |region| (device, region)))
    {
        if region.0 == ROWS {
            if let Some(why) = rows_behind(pool, device, region.1) {
                return Some(why);
            }
            continue;
        }
        let Some(volume) = pool.volume(region.0) else { continue };
        let first = region.1 * UNITS;
        let entries = (first..first + UNITS).map(|unit| (unit, volume.map.get(unit)));
        for (unit, entry) in entries.filter(|(_, entry)| entry.written() != 0) {
            let Some(chunk) = pool.chunk(entry.chunk()).filter(|c| c.rows() == 0) else { continue };
            let part = slice(chunk.profile, chunk.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
            let columns = chunk.columns.get(part.first..part.first + part.copies).unwrap_or_default();
            let is_good = |id| pool.may_have_unit(id, region.0, unit);
            if columns.iter().any(|c| pool.is_online(c.device) && is_good(c.device)) {
                continue;
            }
            let absent = columns.iter().filter(|c| is_good(c.device)).filter_map(|c| pool.device(c.device));
            let what = format!("volume {:?}", volume.name);
            return Some(missed(device, &what, absent));
        }
    }
    None
}

/// The same for rows: fewer strips are good than it takes to make the others.
fn rows_behind(pool: &Pool, device: DeviceId, region: u64) -> Option<String> {
    let (id, first) = row_of_unit(region * UNITS);
    let chunk = pool.chunk(id)?;
    let is_lost = |row: &u32| {
        let unit = row_unit(id, *row);
        let is_bad = |c: &Column| !pool.is_online(c.device) || pool.is_unit_stale(c.device, ROWS, unit);
        chunk.is_live(*row) && !chunk.rows_survive(is_bad)
    };
    let lost = (first..first.saturating_add(UNITS as u32)).find(is_lost)?;
    let is_stale = |c: &Column| pool.is_unit_stale(c.device, ROWS, row_unit(id, lost));
    let is_good = |c: &&Column| !pool.is_online(c.device) && !is_stale(c);
    let absent = chunk.columns.iter().filter(is_good).filter_map(|c| pool.device(c.device));
    let absent = absent.filter(|d| d.state != DeviceState::Failed);
    Some(missed(device, &format!("chunk {id} ({})", chunk.profile.name()), absent))
}

fn names<'a>(devices: impl Iterator<Item = &'a Device>) -> Vec<String> {
    devices.map(|d| format!("device {} (last seen at {}, {})", d.id, d.path, d.uuid)).collect()
}

/// What a member missed, and which of those that are not there would do.
fn missed<'a>(device: DeviceId, what: &str, absent: impl Iterator<Item = &'a Device>) -> String {
    let names = names(absent);
    match names.is_empty() {
        true => format!("device {device} missed writes to {what}, and so did everyone else that could make up for it"),
        false => format!(
            "device {device} missed writes to {what} that cannot be made up for without {}; connect that and import again",
            names.join(" or ")
        ),
    }
}

/// The regions that a record is about: of units that got a place, or more content, or lost some.
fn placed(record: &Record) -> impl Iterator<Item = Region> {
    let (volume, first, end) = match *record {
        Record::Map { volume, unit, count, entry } if entry.written() != 0 => {
            (volume, unit, unit.saturating_add(u64::from(count)))
        }
        Record::Lost { volume, unit, .. } => (volume, unit, unit.saturating_add(1)),
        _ => (VolumeId(0), 0, 0),
    };
    (first / UNITS..end.div_ceil(UNITS)).map(move |region| (volume, region))
}

/// The regions that have a unit in one of these chunks.
fn regions_in(pool: &Pool, chunks: &BTreeSet<ChunkId>) -> Vec<Region> {
    let volumes = pool.volumes().filter(|_| !chunks.is_empty());
    let units = volumes.flat_map(|volume| volume.map.entries().map(|(unit, entry)| (volume.id, unit, entry.chunk())));
    let mut regions: Vec<Region> =
        units.filter(|(.., chunk)| chunks.contains(chunk)).map(|(volume, unit, _)| of_unit(volume, unit)).collect();
    regions.dedup();
    regions
}

enum Stop {
    Need(Vec<MetaRead>),
    Because(String),
}

impl Stop {
    fn because(why: &str) -> Stop {
        Stop::Because(why.into())
    }
}

impl From<Malformed> for Stop {
    fn from(Malformed: Malformed) -> Stop {
        Stop::because("its records have the right checksum over a wrong content")
    }
}

fn decode_leaf(payload: &[u8], volume: VolumeId, leaf: u64) -> Result<Box<[Entry; LEAF]>, Malformed> {
    let mut r = Reader::new(payload);
    if r.u32()? != volume.0 || r.u64()? != leaf {
        return Err(Malformed);
    }
    let mut table = Box::new([Entry::NONE; LEAF]);
    for entry in table.iter_mut() {
        *entry = super::record::entry(&mut r)?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where images are counted they decide, and else eight generations.
    #[test]
    fn who_is_older() {
        let age = |generation, image| Age { generation, image };
        for (found, least, older) in [
            (age(40, 8), age(40, 8), false),
            (age(39, 8), age(40, 8), false),
            (age(40, 7), age(40, 8), true),
            (age(39, 0), age(40, 1), true),
            // However many openings were cut among their claims.
            (age(10, 8), age(40, 8), false),
            (age(10, 9), age(40, 8), false),
            (age(33, 0), age(40, 0), false),
            (age(32, 0), age(40, 0), true),
            (age(32, 5), age(40, 0), true),
            (age(1, 0), age(0, 0), false),
        ] {
            assert_eq!(is_older(found, least), older, "{found:?} where {least:?} was there");
        }
    }
}
