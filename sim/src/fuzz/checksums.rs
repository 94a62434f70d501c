//! Target: pages of checksums of a mirror, and content of which some copies are wrong.
//!
//! ```text
//!   input: pages --> a pool that was closed in good order, with these --> every block is read, some are written, a scrub,
//!          (block by block of each member)                               every block is read, the power goes, once more
//! ```
//!
//! One copy of every second block of content is wrong. What has to become of a block follows from the sector that its checksum
//! stands in, as it is on each member:
//!
//! | sector | block with a wrong copy | block without |
//! |---|---|---|
//! | as it was written on one member at least, damaged on others | right | right |
//! | damaged on all members | served without being compared | right |
//! | whole on some member, and not what was written | anything | right or an error |
//!
//! The last row is no accident of a disk: the seal is right. There, too, nothing ends for a page's sake, every request is
//! answered, and what is written from then on is read as it was written.

use std::collections::{BTreeMap, BTreeSet};

use braid_core::Profile;
use braid_core::control::{Command, VolumeClass};
use braid_core::meta::PAGE;
use braid_core::meta::codec::crc32c;
use braid_core::request::{Event, Op};
use braid_core::sums::{self, Checksum, PageName, SECTOR, SECTORS};
use braid_core::units::{BLOCK, BLOCKS_PER_UNIT, ChunkId, DeviceId, MIB, UNIT, VolumeId};
use braid_core::volume::{Extent, INTERNAL};

use super::image::{Image, long};
use super::{Named, Sample, Target, change};
use crate::device::Model;
use crate::disk::{self, Block};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::world::{Crash, Shape, World};

pub(super) const TARGETS: &[Named] = &[("checksums", target)];

/// What the pool's content is summed with.
const KIND: Checksum = Checksum::Crc32c;
/// Units with content, a block each: three pages of checksums, the last one in part.
const UNITS: u64 = 128;
/// Pages of a chunk's checksums in the volume of pages; see `docs/format.md`.
const SPAN: u64 = 1 << 14;
/// The pool itself, its content and what is checked of it.
const MEMORY: usize = 32 << 20;

fn target() -> Target {
    let kept = Kept::new();
    let corpus = kept.corpus();
    Target {
        name: "checksums",
        about: "pages of checksums of a mirror of which some copies are wrong",
        corpus,
        change: change_pages,
        run: Box::new(move |input| kept.run(&Image::decode(input))),
        memory: MEMORY,
    }
}

/// An image with a page or two changed: on one member, on both alike, or on both each in its own way.
fn change_pages(rng: &mut Rng, corpus: &[Sample]) -> Vec<u8> {
    let mut image = Image::decode(change::base(rng, corpus));
    let other = Image::decode(&rng.pick(corpus).bytes);
    let (places, others): (Vec<_>, Vec<_>) = (image.blocks.keys().copied().collect(), other.blocks.values().collect());
    for _ in 0..rng.between(1, 2) {
        let (at, from) = (*rng.pick(&places), *rng.pick(&others));
        let mut page = image.blocks[&at].clone();
        match rng.percent(10) {
            true => page.clone_from(from),
            false => (0..change::changes(rng)).for_each(|_| change::change(rng, &mut page, from)),
        }
        page = long(page, PAGE);
        if rng.percent(50) {
            sealed(&mut page, |_| ());
        }
        match rng.percent(50) {
            true => image.replace(at, page),
            false => drop(image.blocks.insert(at, page)),
        }
    }
    image.encode()
}

/// A block with content.
struct Written {
    /// First byte in the volume.
    at: u64,
    /// Page and sector of its checksum.
    page: (u32, u32),
    sector: usize,
    /// One copy is wrong.
    is_struck: bool,
}

/// A page of checksums where it is at home.
struct Home {
    name: PageName,
    /// On each member.
    places: Vec<(u32, u64)>,
    bytes: Box<sums::Page>,
}

/// A pool that was closed in good order.
struct Kept {
    disks: Vec<Vec<(u64, Block)>>,
    oracle: Oracle,
    volume: VolumeId,
    blocks: Vec<Written>,
    homes: BTreeMap<(u32, u32), Home>,
    /// The first page as it was before the last writes.
    old: Box<sums::Page>,
}

/// What a sector is, of all copies of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sector {
    Written,
    Damaged,
    Forged,
}

fn shape() -> Shape {
    Shape { size: 64 * MIB, model: Model::shipped("sata-ssd").expect("it comes with the crate"), class: "ssd" }
}

/// First byte of a block with content.
fn place(i: u64) -> u64 {
    i * UNIT + i % BLOCKS_PER_UNIT * BLOCK
}

impl Kept {
    fn new() -> Kept {
        let profile = Profile::parse("raid1").expect("a profile");
        let set = [("checksum", KIND.name())];
        let mut world = World::with_pool(1, &[shape(), shape()], profile, profile.system(), &set);
        let volume = world.volume("v", 1 << 30, VolumeClass::Auto);
        let write = |world: &mut World| {
            for i in 0..UNITS {
                world.run(volume, Op::Write { fua: false }, place(i), BLOCK).expect("there is room");
            }
            world.run(volume, Op::Flush, 0, 0).expect("nothing is in the way");
            world.run_until_quiet();
        };
        write(&mut world);
        let first = written(&world, volume, 0);
        let old = home(&world, first.page).bytes;
        write(&mut world);
        let blocks: Vec<Written> = (0..UNITS).map(|i| written(&world, volume, i)).collect();
        let homes = blocks.iter().map(|block| (block.page, home(&world, block.page))).collect();
        for (i, block) in blocks.iter().enumerate().filter(|(_, block)| block.is_struck) {
            let (device, at) = world.places(volume, block.at)[i / 2 % 2];
            world.disks[device.index() - 1].corrupt(at + i as u64, 1 << (i % 8));
        }
        world.crash(Crash::Process);
        let disks = world.disks.iter().map(|d| d.blocks().map(|(at, block)| (at, block.clone())).collect()).collect();
        Kept { disks, oracle: world.oracle, volume, blocks, homes, old }
    }

    /// The pool with these pages.
    fn world(&self, pages: &Image) -> World {
        let mut world = World::new(1);
        let shape = shape();
        world.disks = disk::array(self.disks.iter().map(|_| (shape.size, &shape.model)), &mut Rng::new(1));
        for (disk, blocks) in world.disks.iter_mut().zip(&self.disks) {
            blocks.iter().for_each(|(at, block)| disk.put(*at, block.clone()));
        }
        for &(device, at) in self.homes.values().flat_map(|home| &home.places) {
            let page = page_in(pages, (device, at));
            world.disks[DeviceId(device).index() - 1].put(at / BLOCK, Block::Bytes(page));
        }
        world.oracle = self.oracle.clone();
        world
    }

    /// See the module. Taken when nobody noticed anything.
    fn run(&self, pages: &Image) -> Result<bool, String> {
        let mut check =
            Check { kept: self, world: self.world(pages), sectors: self.sectors(pages), anew: BTreeSet::new() };
        check.world.open()?;
        let is_served = check.read_all()?;
        let is_lost = check.world.events.iter().any(|event| matches!(event, Event::SumsLost { .. }));
        check.write_some()?;
        check.world.control(Command::ScrubStart).map_err(|e| e.message)?;
        check.world.run_until_quiet();
        check.read_all()?;
        check.world.check_quiet(true);
        check.world.crash(Crash::Power);
        check.world.open()?;
        check.read_all()?;
        Ok(is_served && !is_lost)
    }

    /// What each sector is, by page and number.
    fn sectors(&self, pages: &Image) -> BTreeMap<(u32, u32), Vec<Sector>> {
        let of = |home: &Home| {
            let copies: Vec<_> = home.places.iter().map(|&at| page_in(pages, at)).collect();
            let sector = |i: usize| {
                let range = i * SECTOR..(i + 1) * SECTOR;
                let sectors = copies.iter().map(|copy| &copy[range.clone()]);
                let whole = sectors.filter(|sector| is_whole(sector, i, &home.name));
                let mut there = whole.map(|sector| sector == &home.bytes[range.clone()]);
                match there.next() {
                    None => Sector::Damaged,
                    Some(true) if there.all(|is_written| is_written) => Sector::Written,
                    Some(_) => Sector::Forged,
                }
            };
            (0..SECTORS as usize).map(sector).collect()
        };
        self.homes.iter().map(|(&name, home)| (name, of(home))).collect()
    }

    /// Pages as they were written, and with one thing wrong on some of the members.
    fn corpus(&self) -> Vec<Sample> {
        type Forge<'a> = &'a dyn Fn(&mut sums::Page);
        let second = self.homes.values().nth(1).expect("three pages").bytes.clone();
        let torn = |page: &mut sums::Page| page[..3 * SECTOR].copy_from_slice(&self.old[..3 * SECTOR]);
        let (one, both): (&[usize], &[usize]) = (&[0], &[0, 1]);
        let samples: [(&'static str, bool, &[usize], Forge<'_>); 14] = [
            ("as-they-were-written", true, &[], &|_| ()),
            ("nothing-on-one-member", true, one, &|page| page.fill(0)),
            ("a-flipped-bit-on-one-member", true, one, &|page| page[100] ^= 4),
            ("a-torn-page-on-one-member", true, one, &torn),
            ("an-old-page-on-one-member", true, one, &|page| page.clone_from(&self.old)),
            ("another-page-on-one-member", true, one, &|page| page.clone_from(&second)),
            ("the-last-generation-there-can-be", true, both, &|page| {
                sealed(&mut page[..], |sector| sector[16..24].fill(0xff))
            }),
            ("no-sum-at-all", true, both, &|page| sealed(&mut page[..], |sector| sector[64..].fill(0))),
            ("nothing-on-any-member", false, both, &|page| page.fill(0)),
            ("a-flipped-bit-on-every-member", false, both, &|page| page[100] ^= 4),
            ("an-old-page-on-every-member", false, both, &|page| page.clone_from(&self.old)),
            ("another-page-on-every-member", false, both, &|page| page.clone_from(&second)),
            ("of-another-pool", false, both, &|page| sealed(&mut page[..], |sector| sector[24] ^= 1)),
            ("every-sum-wrong", false, both, &|page| {
                sealed(page, |sector| sector[64..].iter_mut().for_each(|byte| *byte ^= 0x55))
            }),
        ];
        let sample = |(name, is_fine, members, forge): (&'static str, bool, &[usize], Forge<'_>)| {
            let mut image = Image::default();
            for (i, home) in self.homes.values().enumerate() {
                for (member, &at) in home.places.iter().enumerate() {
                    let mut page = home.bytes.clone();
                    if i == 0 && members.contains(&member) {
                        forge(&mut page);
                    }
                    image.blocks.insert(at, page.to_vec());
                }
            }
            Sample { name, bytes: image.encode(), is_fine }
        };
        samples.map(sample).into()
    }
}

/// Whether the seal of a sector is right and its names are, by `docs/format.md` and nothing the engine says.
fn is_whole(sector: &[u8], i: usize, name: &PageName) -> bool {
    let first_unit = name.index * KIND.units_per_page() + i as u32 * KIND.units_per_sector();
    let names = [&name.chunk.0.to_le_bytes()[..], &first_unit.to_le_bytes(), &[1]].concat();
    sector[..4] == crc32c(&sector[4..]).to_le_bytes() && sector[4..13] == names && sector[24..40] == name.pool.0
}

/// Changes each sector of a page and seals it again.
fn sealed(page: &mut [u8], change: impl Fn(&mut [u8])) {
    for sector in page.chunks_mut(SECTOR) {
        change(sector);
        let sum = crc32c(&sector[4..]);
        sector[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

fn page_in(image: &Image, at: (u32, u64)) -> Box<sums::Page> {
    let bytes = image.blocks.get(&at).cloned().unwrap_or_default();
    long(bytes, PAGE).into_boxed_slice().try_into().expect("a page")
}

/// Where the checksum of a block is.
fn written(world: &World, volume: VolumeId, i: u64) -> Written {
    let at = place(i);
    let map = &world.engine().pool().volume(volume).expect("it was made").map;
    let Extent::Mapped { chunk, offset, .. } = map.first(at, BLOCK) else { panic!("it was written") };
    let unit = (offset / UNIT) as u32;
    let (page, within) = (unit / KIND.units_per_page(), unit % KIND.units_per_page());
    Written {
        at,
        page: (chunk.0, page),
        sector: (within / KIND.units_per_sector()) as usize,
        is_struck: i.is_multiple_of(2),
    }
}

/// A page and its copies, which are alike.
fn home(world: &World, (chunk, index): (u32, u32)) -> Home {
    let at = (u64::from(chunk) * SPAN + u64::from(index)) * BLOCK;
    let places = world.places(INTERNAL, at);
    let bytes = world.disks[places[0].0.index() - 1].read_bytes(places[0].1, PAGE);
    let bytes: Box<sums::Page> = bytes.into_boxed_slice().try_into().expect("a page");
    let name = PageName { pool: world.engine().pool().uuid, kind: KIND, chunk: ChunkId(chunk), index };
    Home { name, places: places.into_iter().map(|(device, at)| (device.0, at)).collect(), bytes }
}

/// A run over one input.
struct Check<'a> {
    kept: &'a Kept,
    world: World,
    sectors: BTreeMap<(u32, u32), Vec<Sector>>,
    /// Blocks that were written since.
    anew: BTreeSet<u64>,
}

impl Check<'_> {
    /// Every block by itself, as the table says; whether all of them were served.
    fn read_all(&mut self) -> Result<bool, String> {
        let mut all = true;
        for block in &self.kept.blocks {
            let result = self.world.run(self.kept.volume, Op::Read, block.at, BLOCK);
            let wrong = self.world.wrong.pop();
            all &= result.is_ok();
            let sector = self.sectors[&block.page][block.sector];
            let (may_fail, may_be_wrong) = match sector {
                _ if self.anew.contains(&block.at) => (false, false),
                Sector::Written => (false, false),
                Sector::Damaged => (block.is_struck, block.is_struck),
                Sector::Forged => (true, block.is_struck),
            };
            let what = match (&result, wrong) {
                (Err(error), _) if !may_fail => format!("cannot be read: {error:?}"),
                (Ok(()), Some(why)) if !may_be_wrong => format!("is wrong: {why}"),
                _ => continue,
            };
            return Err(format!("the block at {}, with its checksum in a sector that is {sector:?}, {what}", block.at));
        }
        Ok(all)
    }

    /// Every third block, whatever its checksum is.
    fn write_some(&mut self) -> Result<(), String> {
        for block in self.kept.blocks.iter().step_by(3) {
            let written = self.world.run(self.kept.volume, Op::Write { fua: false }, block.at, BLOCK);
            written.map_err(|e| format!("the block at {} cannot be written: {e:?}", block.at))?;
            self.anew.insert(block.at);
        }
        self.world.run(self.kept.volume, Op::Flush, 0, 0).map_err(|e| format!("a flush fails: {e:?}"))
    }
}
