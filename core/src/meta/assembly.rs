//! From superblocks to a pool: what to read next, what was found, what is wrong.
//!
//! The caller owns the devices. It asks [`Assembly::step`], reads what that wants, gives it to
//! [`Assembly::supply`] and asks again, until there is a pool or a reason why not. Every page and log block is taken
//! from the first copy that holds it intact.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use super::codec::{Reader, crc32c};
use super::journal::{self, Lsn};
use super::pages::{self, Page, PageSpace};
use super::record::Record;
use super::superblock::Superblock;
use super::{PAGE, codec::Malformed};
use crate::chunk::Chunk;
use crate::device::DeviceState;
use crate::pool::Pool;
use crate::profile::slice;
use crate::regions::{Region, Regions, UNITS, of_unit};
use crate::request::IoError;
use crate::units::{ChunkId, DeviceId, UNIT, Uuid, VolumeId};
use crate::volume::{Entry, LEAF};

/// Most copies of a page: raid1c4.
const COPIES_MAX: usize = 4;
/// Most bytes of the root: a bound for what a damaged superblock can ask for.
const ROOT_MAX: u64 = 1 << 31;

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
    pub(crate) pages: PageSpace,
    pub(crate) root: Vec<Page>,
    pub(crate) next_lsn: Lsn,
    pub(crate) next_seq: u64,
    /// Pages of leaves whose volumes the log took away: free with the next root.
    pub(crate) orphans: Vec<Page>,
    /// Where units were placed that no flush covers: a member that is not there may have lost them with its cache.
    pub(crate) unflushed: Regions,
    /// Members that are not there.
    pub missing: Vec<DeviceId>,
    /// Members that are there but were opened without those that count, and changed since, in one sentence that says what
    /// to do: to go on is to give up what only they have. They are failed now and never read.
    pub apart: Option<String>,
    /// Records that a power cut took back: nobody had asked to flush what they were about.
    pub forgotten: u64,
}

impl Opened {
    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// See the module.
pub struct Assembly {
    superblock: Superblock,
    /// Members that are there, with what they say they are.
    present: BTreeMap<DeviceId, Uuid>,
    apart: BTreeSet<DeviceId>,
    /// They missed checkpoints.
    behind: BTreeSet<DeviceId>,
    same_boot: bool,
    have: BTreeMap<MetaRead, Held>,
}

/// What a read gave.
struct Held {
    result: Result<Vec<u8>, IoError>,
    /// For pages: the seal is right. Looked at once, though steps go over the same pages again and again.
    is_sealed: OnceCell<bool>,
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

enum Fetch<'a> {
    Have(&'a [u8]),
    Need(MetaRead),
    Lost,
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
        let newest = found.iter().max_by_key(|sb| (sb.generation, behind(sb), core::cmp::Reverse(sb.device))).cloned();
        let superblock = newest.ok_or_else(|| String::from("no member of the pool was found"))?;
        check_runs(&superblock, &superblock.root)
            .map_err(|pages| format!("the root of pool {:?} is said to have {pages} pages", superblock.name))?;
        // Of a member that went its own way nothing is read, not even records: they may look like ours.
        let apart: BTreeSet<_> = found.iter().filter(|sb| !superblock.descends_from(sb)).map(|sb| sb.device).collect();
        let present = present.into_iter().filter(|(id, _)| !apart.contains(id)).collect();
        let behind = found.iter().filter(|sb| sb.generation < superblock.generation).map(|sb| sb.device).collect();
        let same_boot = superblock.boot == boot;
        Ok(Assembly { superblock, present, apart, behind, same_boot, have: BTreeMap::new() })
    }

    /// What a read of [`Step::Read`] gave.
    pub fn supply(&mut self, read: MetaRead, result: Result<Vec<u8>, IoError>) {
        self.have.insert(read, Held { result, is_sealed: OnceCell::new() });
    }

    /// What to do next.
    pub fn step(&self) -> Step {
        match self.try_open() {
            Ok(opened) => Step::Ready(Box::new(opened)),
            Err(Stop::Need(reads)) => Step::Read(reads),
            Err(Stop::Because(reason)) => {
                Step::Failed(format!("pool {:?} cannot be opened: {reason}", self.superblock.name))
            }
        }
    }

    fn try_open(&self) -> Result<Opened, Stop> {
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
        let mut log = self.read_log(&rings);
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
        // They say that copies may differ or that one is behind, which is never wrong: what they spare is elsewhere. And a
        // write or the claim of a flush may have relied on any of them.
        for mark in log.marks {
            pool.apply(mark).map_err(|c| Stop::Because(c.0))?;
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
            device.is_behind = self.behind.contains(&id);
            if self.present.get(&id) != Some(&device.uuid) {
                missing.push(id);
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
            let names: Vec<String> = gone
                .filter_map(|c| pool.device(c.device))
                .map(|d| format!("device {} (last seen at {}, {})", d.id, d.path, d.uuid))
                .collect();
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
            pages: space,
            root: root_pages,
            next_lsn: keep.max(sb.first_lsn),
            next_seq: log.next_seq.saturating_add(u64::from(sb.log_blocks)),
            orphans: orphans.into_iter().collect(),
            unflushed,
            missing,
            apart: (!apart.is_empty()).then(|| {
                format!(
                    "pool {:?} has come apart: {} was opened without the others and went its own way, so the two sides hold \
                     different content. To keep this side (generation {}) and give up what only the other has, use -f; to \
                     keep the other, disconnect the members of this side and use -f",
                    sb.name,
                    apart.join(" and "),
                    sb.generation
                )
            }),
            forgotten,
            pool,
        })
    }

    /// The root, and its pages with those that list them. A member that missed a checkpoint has older pages at the same
    /// addresses, each of them sealed: so the root as a whole has a checksum, and each copy in turn is the first to be
    /// asked.
    fn root(&self, system: &BTreeMap<ChunkId, &Chunk>) -> Result<(Vec<u8>, Vec<Page>), Stop> {
        let mut reason = Stop::because("its root is no copy of what was written");
        for first_copy in 0..COPIES_MAX {
            match self.root_from(system, first_copy) {
                Ok((root, pages)) if crc32c(&root) == self.superblock.root_crc => return Ok((root, pages)),
                Ok(_) => {}
                Err(need @ Stop::Need(_)) => return Err(need),
                Err(because) => reason = because,
            }
        }
        Err(reason)
    }

    fn root_from(&self, system: &BTreeMap<ChunkId, &Chunk>, first_copy: usize) -> Result<(Vec<u8>, Vec<Page>), Stop> {
        let sb = &self.superblock;
        let mut taken = Vec::new();
        let mut root_pages = unroll(&sb.root);
        if sb.root_is_listed {
            let mut runs = Vec::new();
            for payload in self.pages(system, &root_pages, first_copy)? {
                runs.extend(pages::decode_runs(payload)?);
            }
            check_runs(sb, &runs).map_err(|pages| Stop::Because(format!("its root is said to have {pages} pages")))?;
            taken.extend(root_pages.into_iter().map(|(page, _)| page));
            root_pages = unroll(&runs);
        }
        let mut root = self.pages(system, &root_pages, first_copy)?.concat();
        if root.len() < sb.root_len as usize {
            return Err(Stop::because("its root is too short"));
        }
        root.truncate(sb.root_len as usize);
        taken.extend(root_pages.into_iter().map(|(page, _)| page));
        Ok((root, taken))
    }

    /// The payloads of these pages, with their checksums where those are known; `first_copy` is asked first.
    fn pages<'a>(
        &'a self,
        system: &BTreeMap<ChunkId, &Chunk>,
        addresses: &[(Page, Option<u32>)],
        first_copy: usize,
    ) -> Result<Vec<&'a [u8]>, Stop> {
        let mut payloads = Vec::with_capacity(addresses.len());
        let mut needs = Vec::new();
        for &(page, crc) in addresses {
            let (chunk, byte) = pages::locate(page);
            let chunk = system.get(&chunk).ok_or(Stop::because("a page is outside the system chunks"))?;
            let intact = |bytes: &[u8], is_sealed: &OnceCell<bool>| {
                crc.is_none_or(|crc| crc == pages::checksum(bytes))
                    && *is_sealed.get_or_init(|| pages::open(bytes, self.superblock.pool, page).is_ok())
            };
            match self.fetch(chunk, byte, first_copy, intact) {
                Fetch::Have(bytes) => payloads.push(pages::content(bytes)?),
                Fetch::Need(read) => needs.push(read),
                Fetch::Lost => {
                    let text = format!("page {page:x} of its records is damaged on every copy that is here");
                    return Err(Stop::Because(text));
                }
            }
        }
        if needs.is_empty() { Ok(payloads) } else { Err(Stop::Need(needs)) }
    }

    /// The first intact copy of a page, or what to read to find one.
    fn fetch(
        &self,
        chunk: &Chunk,
        byte: u64,
        first_copy: usize,
        intact: impl Fn(&[u8], &OnceCell<bool>) -> bool,
    ) -> Fetch<'_> {
        let columns = chunk.columns.iter().cycle().skip(first_copy).take(chunk.columns.len());
        for column in columns.filter(|c| self.present.contains_key(&c.device)) {
            let read = MetaRead { device: column.device, offset: column.offset + byte, len: PAGE };
            match self.have.get(&read) {
                None => return Fetch::Need(read),
                Some(Held { result: Ok(bytes), is_sealed })
                    if bytes.len() as u64 == PAGE && intact(bytes, is_sealed) =>
                {
                    return Fetch::Have(bytes);
                }
                Some(_) => {}
            }
        }
        Fetch::Lost
    }

    /// Every copy of the ring that can be read.
    fn rings(&self) -> Result<Vec<&[u8]>, Stop> {
        let sb = &self.superblock;
        let ring = u64::from(sb.log_blocks);
        let (mut rings, mut needs) = (Vec::new(), Vec::new());
        for column in sb.system[0].columns.iter().filter(|c| self.present.contains_key(&c.device)) {
            let read = MetaRead { device: column.device, offset: column.offset, len: ring * PAGE };
            match self.have.get(&read).map(|held| &held.result) {
                None => needs.push(read),
                Some(Ok(bytes)) => rings.push(bytes.as_slice()),
                Some(Err(_)) => {}
            }
        }
        if !needs.is_empty() {
            return Err(Stop::Need(needs));
        }
        if rings.is_empty() {
            return Err(Stop::because("its log cannot be read from any copy"));
        }
        Ok(rings)
    }

    fn read_log(&self, rings: &[&[u8]]) -> Log {
        let sb = &self.superblock;
        let ring = u64::from(sb.log_blocks);
        let mut log = Log::empty(sb);
        let mut has_gap = false;
        for seq in sb.log_seq..sb.log_seq.saturating_add(ring) {
            let at = (seq % ring * PAGE) as usize;
            let ours = |bytes: &&[u8]| {
                let block = bytes.get(at..at + PAGE as usize)?;
                if !journal::claims_to_be(block, sb.epoch, seq) {
                    return None;
                }
                let (head, records) = journal::open(block, sb.pool).ok()?;
                (head.epoch == sb.epoch && head.seq == seq).then_some((head, records))
            };
            let Some((head, records)) = rings.iter().find_map(ours) else {
                has_gap = true;
                continue;
            };
            if has_gap {
                // Behind a gap only marks count: they are forced one by one.
                log.marks.extend(records.into_iter().filter(is_mark));
                continue;
            }
            for (i, record) in records.into_iter().enumerate() {
                log.records.push((head.first_lsn.saturating_add(i as u64), record));
            }
            log.end = head.first_lsn.saturating_add(u64::from(head.count));
            log.stable = log.stable.max(head.stable);
            log.next_seq = seq + 1;
        }
        log
    }
}

/// Bounds what a list of runs can ask to be read, by what the system chunks hold; the error is the number of pages.
fn check_runs(sb: &Superblock, runs: &[(Page, u32)]) -> Result<(), u64> {
    let count: u64 = runs.iter().map(|&(_, n)| u64::from(n)).sum();
    let beyond = |&(first, n): &(u64, u32)| first.checked_add(u64::from(n)).is_none();
    let there: u64 = sb.system.iter().map(|chunk| chunk.length / PAGE).sum();
    let fine = count <= there.min(ROOT_MAX / pages::PAYLOAD as u64) && !runs.iter().any(beyond);
    if fine { Ok(()) } else { Err(count) }
}

/// Every page of these runs; what it holds is not known.
fn unroll(runs: &[(Page, u32)]) -> Vec<(Page, Option<u32>)> {
    runs.iter().flat_map(|&(first, n)| (0..u64::from(n)).map(move |i| (first + i, None))).collect()
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
        let (volume, first) = (pool.volume(region.0)?, region.1 * UNITS);
        for entry in (first..first + UNITS).map(|unit| volume.map.get(unit)).filter(|entry| entry.written() != 0) {
            let Some(chunk) = pool.chunk(entry.chunk()) else { continue };
            let part = slice(chunk.profile, chunk.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
            let columns = chunk.columns.get(part.first..part.first + part.copies).unwrap_or_default();
            let is_good = |id| !pool.is_stale(id, region);
            if columns.iter().any(|c| pool.is_online(c.device) && is_good(c.device)) {
                continue;
            }
            let absent = columns.iter().filter(|c| is_good(c.device)).filter_map(|c| pool.device(c.device));
            let names: Vec<String> =
                absent.map(|d| format!("device {} (last seen at {}, {})", d.id, d.path, d.uuid)).collect();
            return Some(format!(
                "device {device} missed writes to volume {:?} that only {} has; connect that and import again",
                volume.name,
                names.join(" or ")
            ));
        }
    }
    None
}

struct Log {
    records: Vec<(Lsn, Record)>,
    /// Marks of write intent and of what members missed: they count though their place in the order is not known to be
    /// stable.
    marks: Vec<Record>,
    end: Lsn,
    stable: Lsn,
    next_seq: u64,
}

impl Log {
    fn empty(sb: &Superblock) -> Log {
        Log { records: Vec::new(), marks: Vec::new(), end: sb.first_lsn, stable: sb.first_lsn, next_seq: sb.log_seq }
    }
}

/// The regions that a record is about: of units that got a place, or more content.
fn placed(record: &Record) -> impl Iterator<Item = Region> {
    let (volume, first, end) = match *record {
        Record::Map { volume, unit, count, entry } if entry.written() != 0 => {
            (volume, unit, unit.saturating_add(u64::from(count)))
        }
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

/// True of any later state: copies may differ, or a member may be behind.
fn is_mark(record: &Record) -> bool {
    matches!(record, Record::Intent { .. } | Record::Stale { .. })
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
