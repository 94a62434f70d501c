//! Targets that a disk brings: superblock, log, checkpoint, journal. What is taken is opened, and an engine goes on with it.
//!
//! The engine's disks answer at once and keep nothing: what it reads of content it never looks at. It is asked for a
//! read, a write and a flush of the first volumes and for a checkpoint, and has to answer each.

use braid_core::Engine;
use braid_core::control::Command;
use braid_core::meta::assembly::{Assembly, MetaRead, Opened, Step};
use braid_core::meta::superblock::{SUPERBLOCK_SIZE, Superblock};
use braid_core::request::{Content, Input, IoError, NO_BUF, Op, Output, PageWork, Request};
use braid_core::units::{BLOCK, BufId, ClientId, Instant, MIB, Uuid};

use super::image::{CONTENT, Image, Kind, long, seal, short};
use super::{Named, Sample, Target, change, seeds};
use crate::pages;
use crate::rng::Rng;

/// Steps of an opening: superblocks, a root, its list, leaves, each from up to four copies.
const STEPS_MAX: usize = 100;
/// Longest read of an opening: a whole ring.
const READ_MAX: u64 = 8 * MIB;
/// Outputs that are followed; a damaged mark can ask for a lot of mending, which is work and no mistake.
const OUTPUTS_MAX: usize = 20_000;
/// Volumes that are asked for something.
const ASKED_MAX: usize = 4;
/// Most memory for an image: numbers as high as they may be cost a quarter of it.
const IMAGE_MEMORY: usize = 256 << 20;
/// Bytes of a log block's head.
const LOG_HEAD: usize = 64;
/// Bytes of a head in the stripe journal up to its number: magic, seal, pool, epoch.
const GROUP_HEAD: usize = 28;

pub(super) const TARGETS: &[Named] =
    &[("superblock", of_slots), ("log", of_log), ("checkpoint", of_checkpoint), ("journal", of_journal)];

fn of_slots() -> Target {
    Target {
        name: "superblock",
        about: "a slot of a member, and the opening of a pool that has nothing else",
        corpus: seeds::slots(),
        change: change_slot,
        run: Box::new(superblock),
        memory: 4 << 20,
    }
}

fn of_log() -> Target {
    Target {
        name: "log",
        about: "log blocks of a pool that is opened and goes on",
        corpus: seeds::images(),
        change: |rng, corpus| change_block(rng, corpus, Kind::Log),
        run: Box::new(open),
        memory: IMAGE_MEMORY,
    }
}

fn of_checkpoint() -> Target {
    Target {
        name: "checkpoint",
        about: "root and leaves of a pool that is opened and goes on",
        corpus: seeds::images_and_forged(),
        change: |rng, corpus| match rng.below(8) {
            0 => change_slot_of(rng, corpus),
            _ => change_block(rng, corpus, Kind::Page),
        },
        run: Box::new(open),
        memory: IMAGE_MEMORY,
    }
}

fn of_journal() -> Target {
    Target {
        name: "journal",
        about: "groups of the stripe journal of a pool that is opened and goes on",
        corpus: seeds::journals(),
        change: |rng, corpus| match rng.below(8) {
            0 => change_slot_of(rng, corpus),
            _ => change_block(rng, corpus, Kind::Group),
        },
        run: Box::new(open),
        memory: IMAGE_MEMORY,
    }
}

/// A slot with changes; nearly always sealed again.
fn change_slot(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    // Fields where they are, or bytes that move and are cut as well.
    let mut slot = if rng.percent(50) { change::in_place(rng, corpus) } else { change::bytes(rng, corpus) };
    if rng.percent(90) {
        slot = long(slot, SUPERBLOCK_SIZE);
        seal(&mut slot, 12);
    }
    short(&slot)
}

/// An image with a superblock that was changed, alike on all members.
fn change_slot_of(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    let mut image = Image::decode(change::base(rng, corpus));
    let (seed, changes) = (rng.next_u64(), change::changes(rng));
    for slot in &mut image.slots {
        let (mut rng, mut bytes) = (Rng::new(seed), short(slot));
        (0..changes).for_each(|_| change::change(&mut rng, &mut bytes, &[]));
        *slot = bytes;
    }
    image.seal();
    image.encode()
}

/// An image with one or two blocks of a kind that were changed, on all copies of each.
fn change_block(rng: &mut Rng, corpus: &[Sample], kind: Kind) -> Vec<u8> {
    let mut image = Image::decode(change::base(rng, corpus));
    let other = Image::decode(&rng.pick(corpus).bytes);
    let head = match kind {
        Kind::Log => LOG_HEAD,
        Kind::Page => CONTENT,
        Kind::Group => GROUP_HEAD,
    };
    for _ in 0..rng.between(1, 2) {
        let (places, others) = (image.places(kind), other.places(kind));
        let (false, false) = (places.is_empty(), others.is_empty()) else { break };
        let (at, from) = (*rng.pick(&places), *rng.pick(&others));
        let mut block = short(&image.blocks[&at]);
        let mut content = block.split_off(head.min(block.len()));
        for _ in 0..change::changes(rng) {
            let piece = &other.blocks[&from];
            match rng.percent(90) {
                true => change::change(rng, &mut content, &piece[head..]),
                false => change::set_number(rng, block.get_mut(8..).unwrap_or_default()),
            }
        }
        if kind == Kind::Log && rng.percent(90) {
            // The last field of a log block's head says how much there is.
            if let Some(used) = block.get_mut(54..56) {
                used.copy_from_slice(&(content.len() as u16).to_le_bytes());
            }
        }
        block.extend(content);
        image.replace(at, block);
    }
    if rng.percent(95) {
        image.seal();
    }
    image.encode()
}

/// Reads a slot, and opens a pool of which everything else is gone.
fn superblock(input: &[u8]) -> Result<bool, String> {
    let Ok(superblock) = Superblock::decode(&long(input.to_vec(), SUPERBLOCK_SIZE)) else { return Ok(false) };
    let again =
        Superblock::decode(&superblock.encode()).map_err(|e| format!("what was taken is not what is written: {e}"))?;
    if format!("{again:?}") != format!("{superblock:?}") {
        return Err("a superblock is another one when it was written and read".into());
    }
    let gone = |_| Err(IoError::Media);
    assembled(vec![superblock], gone)
        .map(|opened| assert!(opened.is_none(), "a pool was opened of a superblock alone"))?;
    Ok(true)
}

/// Opens an image and lets an engine go on with it.
fn open(input: &[u8]) -> Result<bool, String> {
    let image = Image::decode(input);
    let superblocks: Vec<Superblock> = image.slots.iter().filter_map(|slot| Superblock::decode(slot).ok()).collect();
    let Some(opened) = assembled(superblocks, |read| Ok(image.read(read)))? else { return Ok(false) };
    serve(opened)?;
    Ok(true)
}

/// The pool, if there is one in what reads give.
pub(super) fn assembled(
    superblocks: Vec<Superblock>,
    mut read: impl FnMut(MetaRead) -> Result<Vec<u8>, IoError>,
) -> Result<Option<Opened>, String> {
    let sizes: Vec<_> = superblocks.iter().map(|sb| (sb.device, sb.device_size)).collect();
    let Ok(mut assembly) = Assembly::new(superblocks, Uuid([1; 16])) else { return Ok(None) };
    for _ in 0..STEPS_MAX {
        match assembly.step() {
            Step::Failed(why) if why.is_empty() => return Err("it cannot be opened, and nobody says why".into()),
            Step::Failed(_) => return Ok(None),
            Step::Ready(opened) => return Ok(Some(*opened)),
            Step::Read(reads) => {
                for wanted in reads {
                    if wanted.len > READ_MAX {
                        return Err(format!("{} bytes are to be read at once", wanted.len));
                    }
                    let size = sizes.iter().find(|(device, _)| *device == wanted.device).map_or(0, |(_, size)| *size);
                    let is_inside = wanted.offset.checked_add(wanted.len).is_some_and(|end| end <= size);
                    assembly.supply(wanted, if is_inside { read(wanted) } else { Err(IoError::Media) });
                }
            }
        }
    }
    Err(format!("an opening asks for more after {STEPS_MAX} steps"))
}

/// An engine that goes on with a pool, on disks that do whatever they are asked.
struct Server {
    engine: Engine,
    now: Instant,
    outputs: usize,
    looks: usize,
    unanswered: usize,
}

fn serve(opened: Opened) -> Result<(), String> {
    let mut engine = Engine::new(opened, Instant(0), Uuid([2; 16]), Uuid([3; 16]));
    engine.handle(Instant(0), Input::Clock { unix_s: 1_700_000_000 });
    let mut server = Server { engine, now: Instant(0), outputs: 0, looks: 0, unanswered: 0 };
    server.rest();
    let clients = server.engine.pool().volumes().filter(|volume| !volume.is_internal());
    let volumes: Vec<_> = clients.take(ASKED_MAX).map(|v| (v.id, v.size)).collect();
    for (tag, &(volume, size)) in volumes.iter().enumerate() {
        let len = size.min(4 * BLOCK);
        let of = |op, offset, len, buf| {
            let (client, content) = (ClientId(0), Content::Unsaid);
            Input::Submit(Request { tag: tag as u64, client, volume, op, offset, len, buf, content, no_merge: false })
        };
        for offset in [0, (size - len) / 2 / BLOCK * BLOCK, size - len] {
            server.ask(of(Op::Read, offset, len, BufId(1)));
            server.ask(of(Op::Write { fua: false }, offset, len, BufId(1)));
        }
        server.ask(of(Op::Flush, 0, 0, NO_BUF));
    }
    server.ask(Input::Control { tag: 0, command: Command::Checkpoint });
    server.rest();
    match server.unanswered > 0 && server.outputs < OUTPUTS_MAX {
        true => Err(format!("{} requests are never answered", server.unanswered)),
        false => Ok(()),
    }
}

impl Server {
    fn ask(&mut self, input: Input) {
        self.unanswered += 1;
        self.engine.handle(self.now, input);
        self.rest();
    }

    /// One look in eight at checksums finds that the first block is not as it should be, or has none.
    fn look(&mut self, work: PageWork) {
        let Some(Input::Verified { tag, .. }) = pages::work_bare(work) else { return };
        self.looks += 1;
        let bad = u16::from(self.looks.is_multiple_of(8));
        self.engine.handle(self.now, Input::Verified { tag, bad });
    }

    /// Until nothing is to be done at once, or for a minute.
    fn rest(&mut self) {
        let end = Instant(self.now.0 + 60_000_000_000);
        while self.outputs < OUTPUTS_MAX {
            self.outputs += 1;
            match self.engine.poll(self.now) {
                Output::Issue(dispatch) => {
                    let done = Input::Complete { id: dispatch.id, result: Ok(()) };
                    self.engine.handle(self.now, done);
                }
                Output::Compare { tag, .. } => self.engine.handle(self.now, Input::Compared { tag, equal: true }),
                Output::Reply(_) | Output::Done { .. } => self.unanswered -= 1,
                Output::Page(work) => self.look(work),
                Output::Superblock { tag, .. } => {
                    self.engine.handle(self.now, Input::Superblock { tag, generation: Some(u64::MAX) });
                }
                Output::Digest { tag, .. } => self.engine.handle(self.now, Input::Digested { tag, crc: 0 }),
                Output::Copy(_) | Output::Combine(_) | Output::Event(_) => {}
                Output::Idle { until: Some(until) } if until <= end => {
                    self.now = self.now.max(until);
                    self.engine.handle(self.now, Input::Tick);
                }
                Output::Idle { .. } => break,
            }
        }
    }
}
