//! The worked examples of `docs/format.md`, byte for byte: whoever changes the format changes its description, or this
//! fails and prints what the description has to say.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::PAGE;
use super::codec::{Reader, Writer, crc32c};
use super::format::{NewDevice, NewPool, plan};
use super::image;
use super::journal::Journal;
use super::pages::{self, PageSpace};
use super::record::Record;
use super::ring;
use super::superblock::{SLOTS, Superblock};
use crate::ChunkType;
use crate::allocator::Hint;
use crate::chunk::{Chunk, Column};
use crate::control::VolumeClass;
use crate::device::DeviceClass;
use crate::job::{Choice, Job, Task};
use crate::pool::Pool;
use crate::profile::Profile;
use crate::regions::UNITS;
use crate::scrub::{FOUND_MAX, Found, PLACES_MAX, Place, Scrub, State};
use crate::sums::{self, Checksum, PageName};
use crate::units::{ChunkId, DeviceId, MIB, Uuid, VolumeId};
use crate::volume::{ALL_BLOCKS, Entry, block_mask};

const DOCUMENT: &str = include_str!("../../../docs/format.md");

const POOL: Uuid = Uuid(*b"\x6f\x1c\x00\x01\x02\x03\x44\x05\x86\x07\x08\x09\x0a\x0b\x0c\x0d");

/// As `hexdump -C` without its column of letters; lines of zeros are left out, the address of the next line tells.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, line) in bytes.chunks(16).enumerate() {
        if line.iter().all(|&b| b == 0) {
            continue;
        }
        let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
        text += &format!("{:04x}  {}\n", i * 16, hex.join(" "));
    }
    text
}

/// The block of the document behind `<!-- golden: NAME -->`.
fn documented(name: &str) -> Option<&str> {
    let (_, rest) = DOCUMENT.split_once(&format!("<!-- golden: {name} -->"))?;
    let (_, rest) = rest.split_once("```text\n")?;
    Some(rest.split_once("```")?.0)
}

#[track_caller]
fn check(name: &str, bytes: &[u8]) {
    let text = dump(bytes);
    assert!(documented(name) == Some(&text), "docs/format.md, example {name:?}, has to say:\n{text}");
}

/// `braid create tank -d raid1 -m raid1 /srv/a.img /srv/b.img` on two files of 64 MiB.
fn new_pool() -> NewPool {
    let device = |n: u8, class: &str| NewDevice {
        uuid: Uuid([n; 16]),
        path: format!("/srv/{}.img", ['a', 'b'][usize::from(n - 0xd1)]),
        size: 64 * MIB,
        class: DeviceClass::parse(class).expect("a class"),
        rotational: class == "hdd",
        tiers: None,
        hint: Hint::default(),
    };
    NewPool {
        name: "tank".to_string(),
        uuid: POOL,
        data: Profile::Raid1,
        metadata: Profile::Raid1,
        devices: Vec::from([device(0xd1, "ssd"), device(0xd2, "hdd")]),
        properties: Vec::from([("read_policy".to_string(), "queue".to_string())]),
    }
}

#[test]
fn a_superblock() {
    let plan = plan(&new_pool()).expect("a pool");
    let slot = plan.superblocks.iter().find(|p| p.device == 1 && p.offset == SLOTS[1]).expect("generation 1");
    assert!(Superblock::decode(&slot.bytes).is_ok_and(|sb| sb.device == DeviceId(2) && sb.generation == 1));
    check("superblock", &slot.bytes);
}

#[test]
fn a_root() {
    let plan = plan(&new_pool()).expect("a pool");
    check("root", &plan.pages[0].bytes);
}

#[test]
fn a_log_block() {
    let mut journal = Journal::new(POOL, 3, 512, 1030, 41);
    let columns = Vec::from([1, 2].map(|id| Column { device: DeviceId(id), offset: 3 * MIB }));
    let chunk = Chunk::new(ChunkId(2), ChunkType::Data, Profile::Raid1, 13 * MIB, 13 * MIB, columns, false);
    let volume = VolumeId(1);
    for record in [
        Record::Volume {
            id: volume,
            name: "vm0".to_string(),
            size: 16 * MIB,
            class: VolumeClass::Auto,
            checksum: true,
        },
        Record::ChunkAdd(chunk.into()),
        Record::Map { volume, unit: 0, count: 1, entry: Entry::new(ChunkId(2), 0, block_mask(0, 1)) },
        Record::Map { volume, unit: 16, count: 16, entry: Entry::new(ChunkId(2), 16, ALL_BLOCKS) },
        Record::Property { name: "read_policy".to_string(), value: "latency".to_string() },
    ] {
        journal.append(&record);
    }
    let runs = journal.take_group(Some(41));
    assert_eq!((runs.len(), runs[0].block, runs[0].bytes.len() as u64), (1, 1030 % 512, PAGE));
    check("log", &runs[0].bytes);
}

#[test]
fn a_leaf() {
    let mut pool = Pool::new("tank".to_string(), POOL);
    let volume = VolumeId(1);
    for record in [
        Record::Volume {
            id: volume,
            name: "vm0".to_string(),
            size: 64 * MIB,
            class: VolumeClass::Auto,
            checksum: true,
        },
        Record::Map { volume, unit: 512, count: 1, entry: Entry::new(ChunkId(2), 0, block_mask(0, 1)) },
        Record::Map { volume, unit: 515, count: 2, entry: Entry::new(ChunkId(2), 3, ALL_BLOCKS) },
    ] {
        pool.apply(record).expect("fits");
    }
    let mut space = PageSpace::default();
    space.add(&Chunk::new(ChunkId(1), ChunkType::System, Profile::Raid1, 2 * MIB, 2 * MIB, Vec::new(), false), 128);
    let image = image::build(&mut pool, &mut space, &[]).expect("room");
    let (page, bytes) = &image.writes[0];
    assert_eq!(*page, pages::address(ChunkId(1), 128));
    check("leaf", bytes);
}

#[test]
fn a_head_of_the_stripe_journal() {
    let payload = [[1; 4096], [2; 4096], [3; 4096]].concat();
    let entry = |row, members: &[(u8, u16)], crc| ring::Entry { chunk: ChunkId(2), row, members: members.into(), crc };
    let entries = Vec::from([entry(48, &[(1, 0b110), (2, 0b110)], crc32c(&payload)), entry(7, &[], 0)]);
    check("journal", &ring::Head { pool: POOL, epoch: 3, seq: 1030, entries }.encode());
}

#[test]
fn a_page_of_checksums() {
    let mut page = [0; PAGE as usize];
    let mut block = [0; PAGE as usize];
    block[..5].copy_from_slice(b"braid");
    let name = PageName { pool: POOL, kind: Checksum::Crc32c, chunk: ChunkId(3), index: 2 };
    for (slot, block) in [(0, block), (17, [0; PAGE as usize])] {
        sums::set(&mut page, name.kind, slot, sums::kept(name.kind, crc32c(&block).into()));
    }
    sums::seal(&mut page, &name, crc32c);
    check("checksums", &page[..1024]);
    assert_eq!(sums::merge(&mut page, None, &name, crc32c), 0);
}

#[test]
fn a_scrub() {
    let mut journal = Journal::new(POOL, 3, 512, 1031, 46);
    let place = |mib, unit| Place { start: mib * MIB, unit };
    let scrub = Scrub {
        state: State::Running,
        started: 1_795_254_923,
        ended: 0,
        ran_ms: 61_500,
        end: 9,
        done: 5 << 30,
        total: 12 << 30,
        unread: 0,
        differences: 1,
        read_errors: 0,
        undecided: 0,
        repaired: 1,
        found: [(DeviceId(2), Found { differences: 1, read_errors: 0 })].into(),
        places: [(DeviceId(1), place(257, 4096)), (DeviceId(2), place(1281, 17))].into(),
    };
    journal.append(&Record::Scrub(scrub.clone().into()));
    let block = &journal.take_group(None)[0].bytes;
    check("scrub", block);
    // And back, as the next opening reads it.
    let mut pool = Pool::new("tank".to_string(), POOL);
    for record in super::journal::open(block, POOL).expect("sealed").1 {
        pool.apply(record).expect("fits");
    }
    assert_eq!(pool.scrub, scrub);
    assert!(pool.records().iter().any(|r| matches!(r, Record::Scrub(s) if **s == scrub)), "the root has it too");
}

#[test]
fn a_job() {
    let mut journal = Journal::new(POOL, 3, 512, 1032, 47);
    let data = Choice { convert: Some(Profile::Raid1), soft: true, ..Choice::default() };
    let metadata = Choice {
        convert: Some(Profile::Raid1c3),
        soft: false,
        usage: 50,
        device: Some(DeviceId(2)),
        profiles: 1 << Profile::Raid1 as u16,
        limit: 4,
    };
    let job = Job {
        task: Task::Balance { data: Some(data), metadata: Some(metadata) },
        state: State::Paused,
        started: 1_795_254_923,
        ended: 1_795_255_000,
        ran_ms: 61_500,
        end: 9,
        done: 5 << 30,
        total: 12 << 30,
        chunks: 3,
        lost: 0,
        no_room: true,
    };
    let profiles = [Profile::Raid1, Profile::Raid1c3, Profile::Raid1c3];
    for record in [Record::DeviceRemove(DeviceId(4)), Record::Profiles(profiles), Record::Job(job.clone().into())] {
        journal.append(&record);
    }
    let block = &journal.take_group(None)[0].bytes;
    check("job", block);
    // And back, as the next opening reads it; the root says the same.
    let mut pool = Pool::new("tank".to_string(), POOL);
    for record in super::journal::open(block, POOL).expect("sealed").1 {
        pool.apply(record).expect("fits");
    }
    for _ in 0..2 {
        assert_eq!((pool.job.as_ref(), pool.profiles, pool.next_device_id()), (Some(&job), profiles, DeviceId(5)));
        let mut again = Pool::new("tank".to_string(), POOL);
        pool.records().into_iter().for_each(|record| again.apply(record).expect("fits"));
        pool = again;
    }
}

#[test]
fn every_task_reads_back_and_a_cut_is_malformed() {
    let replace = Task::Replace { device: DeviceId(7), by: DeviceId(9) };
    let balance = Task::Balance { data: None, metadata: None };
    for task in [Task::Remove { device: DeviceId(7) }, Task::Return, balance, replace] {
        let mut w = Writer::default();
        Record::Job(Job::new(task.clone(), 1, 2).into()).encode(&mut w);
        let Ok(Record::Job(back)) = Record::decode(&mut Reader::new(&w.bytes)) else { panic!("it is one") };
        assert_eq!(back.task, task);
        for cut in 0..w.bytes.len() {
            assert!(Record::decode(&mut Reader::new(&w.bytes[..cut])).is_err(), "{cut} bytes");
        }
    }
}

#[test]
fn marks() {
    let mut journal = Journal::new(POOL, 3, 512, 1032, 47);
    let (volume, device) = (VolumeId(1), DeviceId(2));
    let records = [
        Record::Intent { volume, word: 1, bits: 0b11 << 6 },
        Record::Stale { device, volume, word: 0, bits: 1 << 63 },
        Record::Kept { device, volume, region: 64, units: 0b101 },
    ];
    for record in &records {
        journal.append(record);
    }
    let block = &journal.take_group(None)[0].bytes;
    check("marks", block);
    // And back, as the next opening reads it; of a volume that is not there it says nothing.
    let mut pool = Pool::new("tank".to_string(), POOL);
    let found = super::journal::open(block, POOL).expect("sealed").1;
    for record in found.clone() {
        pool.apply(record).expect("it fits any pool");
    }
    assert!(pool.intent.is_empty() && pool.stale.is_empty());
    let superblock = plan(&new_pool()).expect("a pool");
    let mut r = Reader::new(&superblock.pages[0].bytes[32..]);
    while let Ok(record) = Record::decode(&mut r) {
        pool.apply(record).expect("fits");
    }
    let name = "vm0".to_string();
    pool.apply(Record::Volume { id: volume, name, size: 1 << 40, class: VolumeClass::Auto, checksum: true })
        .expect("fits");
    found.into_iter().for_each(|record| pool.apply(record).expect("fits"));
    assert_eq!(pool.intent.iter().collect::<Vec<_>>(), [(volume, 70), (volume, 71)]);
    assert!(pool.is_unit_stale(device, volume, 63 * UNITS) && !pool.is_unit_stale(DeviceId(1), volume, 63 * UNITS));
    let missed = [0, 1, 2, 3].map(|unit| pool.is_unit_stale(device, volume, 64 * UNITS + unit));
    assert_eq!(missed, [false, true, false, true]);
    let said = pool.records();
    assert!(said.iter().any(|r| matches!(r, Record::Intent { word: 1, bits: 0xc0, .. })), "the root has it too");
    assert!(said.iter().any(|r| matches!(r, Record::Stale { word: 0, .. })));
    assert!(said.iter().any(|r| matches!(r, Record::Kept { region: 64, units: 0b101, .. })));
    // A mark adds to what was said before; only a root says less.
    pool.apply(Record::Intent { volume, word: 1, bits: 1 }).expect("fits");
    pool.apply(Record::Stale { device, volume, word: 0, bits: 1 }).expect("fits");
    assert_eq!((pool.intent.len(), pool.stale[&device].len()), (3, 3));
    // Of a region that was missed no more units are kept than were.
    for (units, kept) in [(0b1001, 0b1), (0, 0), (0b1, 0)] {
        pool.apply(Record::Kept { device, volume, region: 64, units }).expect("fits");
        assert_eq!(pool.stale[&device].units((volume, 64)), !kept);
    }
    pool.apply(Record::VolumeRemove(volume)).expect("fits");
    assert!(pool.intent.is_empty());
}

#[test]
fn places_beyond_the_most_a_record_holds_are_left_out() {
    let place = Place { start: MIB, unit: 1 };
    let places = (1..=PLACES_MAX as u32 + 50).map(|id| (DeviceId(id), place)).collect();
    let found = (1..=FOUND_MAX as u32 + 50).map(|id| (DeviceId(id), Found::default())).collect();
    let scrub = Scrub { state: State::Paused, places, found, ..Scrub::default() };
    // It fits a block of the log, whose payload is 4,032 bytes.
    Journal::new(POOL, 3, 512, 1031, 46).append(&Record::Scrub(scrub.clone().into()));
    let mut w = Writer::default();
    Record::Scrub(scrub.into()).encode(&mut w);
    let Ok(Record::Scrub(back)) = Record::decode(&mut Reader::new(&w.bytes)) else { panic!("it is one") };
    assert_eq!((back.state, back.places.len(), back.found.len()), (State::Paused, PLACES_MAX, FOUND_MAX));
    for cut in 0..w.bytes.len() {
        assert!(Record::decode(&mut Reader::new(&w.bytes[..cut])).is_err(), "{cut} bytes");
    }
}
