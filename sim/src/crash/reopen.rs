//! The pool is opened from what a cut left, and everything in it is held against what was promised.
//!
//! | looked at | how |
//! |---|---|
//! | it opens | [`Assembly`] and [`Engine`], as everywhere |
//! | volumes, their sizes, the commit interval | in the pool that came of it |
//! | blocks that were ever touched | read through the engine, and every copy of them on every member that counts |
//! | blocks that were not | none of them is mapped with content |
//! | checksums | every block that was read agrees with its own, where the pool keeps them |
//!
//! What the engine writes meanwhile never reaches the disks of the moment; a [life](super::life) of its own shows what becomes
//! of a recovery that is cut. Blocks are read first, since that evens their copies out, and then their copies are looked at. Superblocks
//! are read once for all states of a tape that have the same bytes there, and a [pool that was opened](super::openings) is used again
//! where all that its opening read is the same. A state that is the same altogether, with nothing more known, has nothing more to show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_core::chunk::Column;
use braid_core::meta::assembly::{Assembly, MetaRead, Step};
use braid_core::meta::codec::crc32c;
use braid_core::meta::superblock::{self, SLOTS, SUPERBLOCK_SIZE, SlotError, Superblock};
use braid_core::profile::slice;
use braid_core::regions::{ROWS, row_unit};
use braid_core::request::{Content, DeviceOp, Dispatch, Event, Input, Op, Output, Request};
use braid_core::sums;
use braid_core::units::{BLOCK, BufId, ClientId, Instant, UNIT, Uuid, VolumeId};
use braid_core::volume::{Entry, Volume};
use braid_core::{ChunkType, Engine, Pool};

use super::looks::Looks;
use super::memory::{Memory, Stamps};
use super::mistake::Mistake;
use super::moment::{Moment, mix};
use super::openings::{Key, Opened, Openings};
use super::promise::{Known, VolumePromise};
use super::tape::Cell;
use crate::checker::Checker;
use crate::disk::{Block, SECTORS};
use crate::pages;

/// Blocks of a superblock slot.
const SLOT_BLOCKS: usize = (SUPERBLOCK_SIZE / BLOCK) as usize;
/// Reads of records that are kept: some MB.
const RECORDS_MAX: usize = 256;
/// Bytes that one read of the check asks for, at most.
const READ_MAX: u64 = 4 * UNIT;
/// Outputs that no look takes as many of.
const TURNS_MAX: u64 = 200_000;

/// See the module. What it keeps from state to state belongs to one tape.
pub(crate) struct Reopener {
    /// States that were well: their fingerprints, and what was known.
    seen: BTreeSet<(u64, *const Known)>,
    openings: Openings,
    looks: Looks,
    slots: BTreeMap<[Cell; SLOT_BLOCKS], Result<Superblock, SlotError>>,
    /// Bytes of records, which many states share.
    records: BTreeMap<Vec<Cell>, Arc<Vec<u8>>>,
    mistake: Option<Mistake>,
    boot: u8,
    memory: Memory,
    /// What a read of the check reads: volume, first block and blocks.
    asked: Vec<(u32, u64, u64)>,
}

impl Reopener {
    /// For states of a tape of this boot.
    pub(crate) fn new(boot: u8, mistake: Option<Mistake>) -> Reopener {
        let boot = if mistake == Some(Mistake::BootNotTold) { boot } else { boot + 1 };
        Reopener {
            seen: BTreeSet::new(),
            openings: Openings::default(),
            looks: Looks::default(),
            slots: BTreeMap::new(),
            records: BTreeMap::new(),
            mistake,
            boot,
            memory: Memory::default(),
            asked: Vec::new(),
        }
    }

    /// Opens and checks; what was wrong, as a sentence of a checker, or whether this was another state than all before.
    pub(crate) fn look(&mut self, state: &Moment<'_>, present: &[bool]) -> Result<bool, String> {
        let known = &*state.known;
        let is_new = self.seen.insert((state.fingerprint(present), std::ptr::from_ref(known)));
        if is_new {
            let before = |opening| mix(opening, std::ptr::from_ref(known) as u64);
            let found = self.openings.find(state, present);
            if found.is_some_and(|opening| self.looks.was_well(state, before(opening))) {
                return Ok(true);
            }
            let kept = found.and_then(|opening| Some((opening, self.openings.engine(opening)?.clone())));
            let (opening, mut opened) = match kept {
                Some(kept) => kept,
                None => self.open(state, present).map_err(|why| Checker::Tolerance.says(why))?,
            };
            check_volumes(opened.engine.pool(), known)?;
            let engine = &mut opened.engine;
            self.read(engine, opened.first, state, known)?;
            self.check_copies(engine, state, known)?;
            self.looks.note(state, before(opening), self.memory.take_read());
        }
        Ok(is_new)
    }

    fn open(&mut self, state: &Moment<'_>, present: &[bool]) -> Result<(u64, Opened), String> {
        let boot = Uuid([self.boot; 16]);
        let mut found = Vec::with_capacity(present.len());
        for disk in (0..present.len()).filter(|&disk| present[disk]) {
            let [a, b] = SLOTS.map(|at| self.slot(state, disk, at));
            found.extend(self.newer(a, b));
        }
        let newest = found.iter().max_by_key(|sb| sb.generation).cloned();
        let mut assembly = Assembly::new(found, boot)?;
        let mut key = Key::of(state, present);
        for _ in 0..100 {
            match assembly.step() {
                Step::Failed(why) => return Err(why),
                Step::Read(reads) => {
                    self.openings.reads(&mut key, state, &reads);
                    for read in reads {
                        let mut bytes = self.meta(state, &read);
                        if let (Some(Mistake::OldLogCounts), Some(sb)) = (self.mistake, &newest) {
                            let ring: &mut Vec<u8> = Arc::make_mut(&mut bytes);
                            renew_log(ring, sb);
                        }
                        assembly.supply_shared(read, bytes);
                    }
                }
                Step::Ready(opened) => {
                    let slip = self.mistake.and_then(Mistake::slip);
                    let mut engine = Engine::slipping(*opened, Instant(0), boot, Uuid([0xa5; 16]), slip);
                    let first = engine.poll(Instant(0));
                    let opened = Opened { engine, first };
                    return Ok((self.openings.keep(&key, &opened), opened));
                }
            }
        }
        Err("opening asks for more and more".into())
    }

    fn newer(
        &self,
        a: Result<Superblock, SlotError>,
        b: Result<Superblock, SlotError>,
    ) -> Result<Superblock, SlotError> {
        match (self.mistake, a, b) {
            (Some(Mistake::OlderSlotTaken), Ok(a), Ok(b)) => Ok(if a.generation < b.generation { a } else { b }),
            (_, a, b) => superblock::newer(a, b),
        }
    }

    fn slot(&mut self, state: &Moment<'_>, disk: usize, at: u64) -> Result<Superblock, SlotError> {
        let cells: [Cell; SLOT_BLOCKS] = std::array::from_fn(|i| state.disks[disk][(at / BLOCK) as usize + i]);
        let decode = || {
            let mut bytes = Vec::with_capacity(SUPERBLOCK_SIZE as usize);
            cells.iter().for_each(|&cell| push_bytes(&mut bytes, state.block(cell)));
            Superblock::decode(&bytes)
        };
        match cells.iter().all(|&cell| state.is_lasting(cell)) {
            true => self.slots.entry(cells).or_insert_with(decode).clone(),
            false => decode(),
        }
    }

    /// Records, as the disk has them.
    fn meta(&mut self, state: &Moment<'_>, read: &MetaRead) -> Arc<Vec<u8>> {
        let first = (read.offset / BLOCK) as usize;
        let cells = &state.disks[read.device.index() - 1][first..first + (read.len / BLOCK) as usize];
        if let Some(bytes) = self.records.get(cells) {
            return bytes.clone();
        }
        let mut bytes = Vec::with_capacity(read.len as usize);
        cells.iter().for_each(|&cell| push_bytes(&mut bytes, state.block(cell)));
        let bytes = Arc::new(bytes);
        if cells.iter().all(|&cell| state.is_lasting(cell)) {
            if self.records.len() >= RECORDS_MAX {
                self.records.clear();
            }
            self.records.insert(cells.to_vec(), bytes.clone());
        }
        bytes
    }

    /// Reads all that was ever touched through the engine.
    fn read(&mut self, engine: &mut Engine, first: Output, state: &Moment<'_>, known: &Known) -> Result<(), String> {
        self.asked.clear();
        for promise in &known.volumes {
            if let Some(volume) = engine.pool().volume_named(&promise.name) {
                self.ask(volume, promise);
            }
        }
        self.memory.begin(self.asked.len(), READ_MAX);
        for i in 0..self.asked.len() {
            let (volume, first, blocks) = self.asked[i];
            let request = Request {
                tag: i as u64,
                client: ClientId(0),
                volume: VolumeId(volume),
                op: Op::Read,
                offset: first * BLOCK,
                len: blocks * BLOCK,
                buf: BufId(i as u32),
                content: Content::Unsaid,
                no_merge: false,
            };
            engine.handle(Instant(0), Input::Submit(request));
        }
        self.serve(engine, first, state)?;
        for (i, &(volume, first, blocks)) in self.asked.iter().enumerate() {
            let volume = engine.pool().volume(VolumeId(volume)).expect("it was just read");
            let promise = known.volume(&volume.name).expect("it was asked for");
            for block in 0..blocks {
                let stamps = self.memory.read(i, block);
                check_block(promise, first + block, "", stamps)?;
            }
        }
        Ok(())
    }

    /// Plans reads of what was touched of a volume: runs of whole units.
    fn ask(&mut self, volume: &Volume, promise: &VolumePromise) {
        let end = volume.size / BLOCK;
        let per_unit = UNIT / BLOCK;
        for &(block, _) in promise.blocks.iter().filter(|(block, _)| *block < end) {
            let (first, last) = (block / per_unit * per_unit, ((block / per_unit + 1) * per_unit).min(end));
            match self.asked.last_mut() {
                Some((id, from, count)) if *id == volume.id.0 && *from + *count >= last => {}
                Some((id, from, count))
                    if *id == volume.id.0 && *from + *count == first && (last - *from) * BLOCK <= READ_MAX =>
                {
                    *count = last - *from;
                }
                _ => self.asked.push((volume.id.0, first, last - first)),
            }
        }
    }

    /// Until all reads are answered. What is written is let go only when nothing else helps: most states need none of it.
    fn serve(&mut self, engine: &mut Engine, first: Output, state: &Moment<'_>) -> Result<(), String> {
        let mut first = Some(first);
        let mut left = self.asked.len();
        let (mut reads, mut writes): (Vec<Dispatch>, Vec<Dispatch>) = Default::default();
        for _ in 0..TURNS_MAX {
            if left == 0 {
                return Ok(());
            }
            match first.take().unwrap_or_else(|| engine.poll(Instant(0))) {
                Output::Issue(dispatch) if dispatch.op == DeviceOp::Read => reads.push(dispatch),
                Output::Issue(dispatch) => writes.push(dispatch),
                Output::Copy(copy) => self.memory.copy(copy),
                Output::Combine(work) => self.memory.combine(&work),
                Output::Page(work) => {
                    if let Some(answer) = self.memory.page(work) {
                        engine.handle(Instant(0), answer);
                    }
                }
                Output::Digest { tag, data } => {
                    let crc = self.memory.digest(data);
                    engine.handle(Instant(0), Input::Digested { tag, crc });
                }
                Output::Superblock { tag, slot, pool, device } => {
                    let generation = self.memory.superblock(slot, pool, device);
                    engine.handle(Instant(0), Input::Superblock { tag, generation });
                }
                Output::Compare { tag, a, b } => {
                    let equal = self.memory.equal(a, b);
                    engine.handle(Instant(0), Input::Compared { tag, equal });
                }
                Output::Reply(reply) => {
                    left -= 1;
                    if reply.result.is_err() {
                        return Err(Checker::Tolerance.says(format_args!("after the cut {reply:?}")));
                    }
                }
                Output::Event(event) if is_about_damage(engine.pool(), &event) => {
                    return Err(Checker::Copies.says(format_args!("a power cut damages nothing, and yet {event:?}")));
                }
                Output::Done { .. } | Output::Event(_) => {}
                Output::Idle { until } => {
                    let turn = std::mem::take(if reads.is_empty() { &mut writes } else { &mut reads });
                    if turn.is_empty() && until != Some(Instant(0)) {
                        break;
                    }
                    for dispatch in turn {
                        self.memory.done(engine, state, dispatch);
                        engine.handle(Instant(0), Input::Complete { id: dispatch.id, result: Ok(()) });
                    }
                }
            }
        }
        Err(Checker::Drain.says(format_args!("{left} reads after the cut are never answered")))
    }

    /// Every copy of every block that is mapped, on members that count and where they missed nothing: right, and alike. What
    /// is promised and not mapped reads as zeros.
    fn check_copies(&mut self, engine: &Engine, state: &Moment<'_>, known: &Known) -> Result<(), String> {
        for volume in engine.pool().volumes().filter(|v| !v.is_internal()) {
            let promise = known.volume(&volume.name).expect("just checked");
            let end = volume.size / BLOCK;
            for &(block, _) in promise.blocks.iter().filter(|(block, _)| *block < end) {
                if volume.map.get(block * BLOCK / UNIT).written() >> (block % (UNIT / BLOCK)) & 1 == 0 {
                    check_block(promise, block, " of a hole", &[0; SECTORS])?;
                }
            }
            for (unit, entry) in volume.map.entries() {
                self.check_unit(engine, state, (volume.id, promise), unit, entry)?;
            }
        }
        Ok(())
    }

    fn check_unit(
        &mut self,
        engine: &Engine,
        state: &Moment<'_>,
        (volume, promise): (VolumeId, &VolumePromise),
        unit: u64,
        entry: Entry,
    ) -> Result<(), String> {
        let pool = engine.pool();
        let chunk = pool.chunk(entry.chunk()).expect("the opening saw to that");
        // What members miss of rows is kept by rows.
        let home = match chunk.row_of(entry.unit()) {
            Some((row, _)) => (ROWS, row_unit(chunk.id, row)),
            None => (volume, unit),
        };
        // A unit never crosses a strip.
        let part = slice(chunk.profile, chunk.columns.len(), u64::from(entry.unit()) * UNIT, UNIT);
        let counts = |c: &&Column| pool.is_online(c.device) && !pool.is_unit_stale(c.device, home.0, home.1);
        for i in (0..UNIT / BLOCK).filter(|i| entry.written() >> i & 1 == 1) {
            let block = unit * (UNIT / BLOCK) + i;
            let mut first = None;
            for &Column { device, offset } in chunk.columns[part.first..part.first + part.copies].iter().filter(counts)
            {
                let place = (offset + part.offset) / BLOCK + i;
                let stamps = self.memory.on_disk(state, device, place);
                // What is the same as another copy is as right as that.
                if first == Some(stamps) {
                    continue;
                }
                check_block(promise, block, " of a copy", &stamps)
                    .map_err(|why| format!("{why} (device {device}, block {place})"))?;
                self.check_sum(engine, (volume, &promise.name), block, &stamps)?;
                if first.replace(stamps).is_some() {
                    let what =
                        format_args!("copies of volume {} block {block} differ after they were read", promise.name);
                    return Err(Checker::Copies.says(what));
                }
            }
        }
        Ok(())
    }

    /// A block that was read agrees with its checksum.
    fn check_sum(
        &self,
        engine: &Engine,
        (id, name): (VolumeId, &str),
        block: u64,
        stamps: &[u64],
    ) -> Result<(), String> {
        let Some((page, kind, place)) = engine.sum_place(id, block) else { return Ok(()) };
        let kept = self.memory.pages.get(page).map_or(0, |page| sums::get(page, kind, place));
        match kept == 0 || kept == pages::of_block(kind, stamps) {
            true => Ok(()),
            false => {
                Err(Checker::Content.says(format_args!("volume {name} block {block} is not what its checksum says")))
            }
        }
    }
}

/// Volumes are those that were promised, and so long.
fn check_volumes(pool: &Pool, known: &Known) -> Result<(), String> {
    let content = |what: String| Err(Checker::Content.says(what));
    for promise in &known.volumes {
        let size = pool.volume_named(&promise.name).map(|v| v.size);
        if !promise.sizes.contains(&size) {
            return content(format!("volume {} has {size:?} bytes, not one of {:?}", promise.name, promise.sizes));
        }
    }
    if let Some(stranger) = pool.volumes().find(|v| !v.is_internal() && known.volume(&v.name).is_none()) {
        return content(format!("there is a volume {:?} that nobody made", stranger.name));
    }
    let interval = Some(pool.properties.commit_interval_ms);
    match known.commit_interval.is_empty() || known.commit_interval.contains(&interval) {
        true => Ok(()),
        false => content(format!("the commit interval is {interval:?}, not one of {:?}", known.commit_interval)),
    }
}

fn check_block(promise: &VolumePromise, block: u64, of: &str, stamps: &Stamps) -> Result<(), String> {
    let allowed = promise.block(block);
    match allowed.wrong(stamps) {
        None => Ok(()),
        Some(sector) => Err(Checker::Content.says(format_args!(
            "volume {} block {block} sector {sector}{of} is {:#x}, not one of {:x?}",
            promise.name,
            stamps[sector],
            allowed.of(sector)
        ))),
    }
}

fn push_bytes(bytes: &mut Vec<u8>, block: &Block) {
    match block {
        Block::Bytes(record) => bytes.extend_from_slice(&record[..]),
        Block::Stamps(stamps) if stamps.iter().all(|s| *s == 0) => bytes.resize(bytes.len() + BLOCK as usize, 0),
        payload => bytes.extend_from_slice(&payload.bytes()),
    }
}

/// Has every block of the ring look like one of this opening and lap.
fn renew_log(ring: &mut [u8], sb: &Superblock) {
    let blocks = u64::from(sb.log_blocks);
    if ring.len() as u64 != blocks * BLOCK {
        return;
    }
    for (i, block) in (0..).zip(ring.chunks_mut(BLOCK as usize)) {
        let seq = sb.log_seq + (i + blocks - sb.log_seq % blocks) % blocks;
        block[24..28].copy_from_slice(&sb.epoch.to_le_bytes());
        block[28..36].copy_from_slice(&seq.to_le_bytes());
        block[4..8].fill(0);
        let crc = crc32c(block);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A copy of content or of checksums is called damaged. Copies of the log are left out: what one cut tore on one of them may count as
/// stable after the next.
fn is_about_damage(pool: &Pool, event: &Event) -> bool {
    match *event {
        Event::BadRecord { device, device_offset, .. } => {
            let holds =
                |c: &Column, stripe| c.device == device && (c.offset..c.offset + stripe).contains(&device_offset);
            let mut system = pool.chunks().filter(|chunk| chunk.kind == ChunkType::System);
            !system.any(|chunk| chunk.columns.iter().any(|c| holds(c, chunk.stripe)))
        }
        Event::BadCopy { .. } | Event::SumsLost { .. } | Event::BlocksLost { .. } => true,
        _ => false,
    }
}
