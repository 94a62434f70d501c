//! Map calls of a striped device whose requests may grow over pages.
//!
//! Source: dm-devel, "dm: Add merge function to dm-stripe", 2011; `aio-stress` with O_DIRECT, 2048 MiB written, then
//! read, over 8 stripes of 64 KiB with pages of 4 KiB. The mail prints sector calls and map calls and names their
//! difference, 1,048,560, as the merge calls; it is 16 too small, since flushes are mapped (2 flushes of 8 stripes) and
//! ask no sector.
//!
//! Scenario: the target of `braid_core::stripe` replays it, exactly. Beside it stands what braid does with the same
//! records: raid0 of eight devices in strips of 64 KiB, 64 MiB in batches of 1 MiB, with not one command more than there
//! are strips, and one translation a piece instead of one a page.

use braid_core::Profile;
use braid_core::control::VolumeClass;
use braid_core::request::{Content, DeviceOp, Op};
use braid_core::stripe::{Stack, Target, replay};
use braid_core::units::{KIB, MIB, VolumeId};

use crate::device::Model;
use crate::table::{Lab, Plot, Row, Sheet, Table, Within};
use crate::world::{Shape, World};

/// See the file.
pub(super) const TABLE: Table = Table {
    name: "dm-stripe",
    title: "map calls of a striped device",
    source: "dm-devel, 2011: merge function of dm-stripe, aio-stress on 8 stripes of 64 KiB",
    seed: 3,
    run,
};

/// Record in KiB, sector calls, map calls.
const PUBLISHED: [(u64, u64, u64); 7] = [
    (4, 2_097_152, 1_048_592),
    (8, 1_572_864, 524_304),
    (16, 1_310_720, 262_160),
    (32, 1_179_648, 131_088),
    (64, 1_114_112, 65_552),
    (128, 1_114_112, 65_552),
    (256, 1_114_112, 65_552),
];

const STRIP: u64 = 64 * KIB;
/// Of braid's own run.
const BYTES: u64 = 64 * MIB;
const BATCH: u64 = MIB;

fn run(lab: &Lab, seed: u64) -> Sheet {
    let mut sheet = Sheet::default();
    let target = Target::parse(0, (2048 * MIB) / 512, "8 128 a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0").expect("a valid target");
    let stack = Stack { queue_max: 2048, page: 4096, callback: true, below: None };
    for (kib, sector_calls, map_calls) in PUBLISHED {
        let counted = replay(&target, 2, 2048 * MIB, kib * KIB, &stack);
        let row = |what: &str, published: u64, ours: u64| {
            Row::new(format!("{what}, records of {kib} KiB"), "calls", published as f64, ours as f64, Within::Exactly)
        };
        sheet.rows.push(row("map", map_calls, counted.map_calls));
        sheet.rows.push(row("sector", sector_calls, counted.sector_calls));
    }
    let ours = lab.each(&PUBLISHED, |&(kib, ..)| braid(seed, kib * KIB));
    for ((kib, ..), ours) in PUBLISHED.into_iter().zip(&ours) {
        sheet.traced(ours.hash);
        let (commands, translations) = (ours.commands, ours.translations);
        sheet.claim(
            format!("braid, records of {kib} KiB: no more commands than strips"),
            commands.iter().all(|c| *c <= BYTES / STRIP) && ours.wrong == 0,
            format!("{} reads and {} writes for {} strips", commands[0], commands[1], BYTES / STRIP),
        );
        sheet.claim(
            format!("braid, records of {kib} KiB: one translation a piece"),
            translations.iter().all(|t| *t == BYTES / STRIP.min(kib * KIB)),
            format!("{translations:?}, pages {}", BYTES / 4096),
        );
    }
    sheet.plots.push(plot(&ours));
    sheet.note("The difference that the mail calls merge calls is 16 too small: flushes are mapped and ask no sector.");
    sheet
}

/// Per GiB moved, so that runs of different length can stand side by side.
fn plot(ours: &[Braid]) -> Plot {
    let per_gib = |count: u64, bytes: u64| (count * 1024) as f64 / (bytes / MIB) as f64;
    let groups = PUBLISHED.iter().zip(ours).map(|(&(kib, sector_calls, map_calls), ours)| {
        let both = 2 * 2048 * MIB;
        let translations = per_gib(ours.translations.iter().sum(), 2 * BYTES);
        (format!("{kib} KiB"), vec![per_gib(sector_calls, both), per_gib(map_calls, both), translations])
    });
    Plot::Bars {
        title: "translations for each GiB, by size of record".into(),
        unit: "per GiB",
        series: vec!["dm-stripe: sectors".into(), "dm-stripe: maps".into(), "braid".into()],
        groups: groups.collect(),
    }
}

/// Reads and writes of the same bytes.
struct Braid {
    commands: [u64; 2],
    translations: [u64; 2],
    wrong: usize,
    hash: u64,
}

fn braid(seed: u64, record: u64) -> Braid {
    let model = Model::shipped("sata-ssd").expect("it comes with the crate");
    let shape = Shape { size: 2 * BYTES + 256 * MIB, model, class: "ssd" };
    let mut world = World::with_pool(seed, &vec![shape; 8], Profile::Raid0, Profile::Raid0.system(), &[]);
    let volume = world.volume("v", BYTES, VolumeClass::Auto);
    const WRITE: Op = Op::Write { fua: false };
    batches(&mut world, volume, WRITE, MIB);
    let mut of = |op| {
        let before = world.engine().report().counters.translations;
        let commands = batches(&mut world, volume, op, record);
        (commands, world.engine().report().counters.translations - before)
    };
    let (reads, writes) = (of(Op::Read), of(WRITE));
    let (commands, translations) = ([reads.0, writes.0], [reads.1, writes.1]);
    Braid { commands, translations, wrong: world.wrong.len(), hash: world.hash }
}

/// The whole volume in records, a batch at a time; how many commands that made.
fn batches(world: &mut World, volume: VolumeId, op: Op, record: u64) -> u64 {
    world.run_until_quiet();
    world.dispatched.clear();
    world.keep_dispatched = true;
    for first in (0..BYTES).step_by(BATCH as usize) {
        for at in (first..first + BATCH).step_by(record as usize) {
            world.submit(0, volume, op, at, record, Content::Unsaid);
        }
        world.run_until_answered();
        world.answers.clear();
    }
    world.keep_dispatched = false;
    let wanted = |o: DeviceOp| if op == Op::Read { o == DeviceOp::Read } else { matches!(o, DeviceOp::Write { .. }) };
    world.dispatched.iter().filter(|d| wanted(d.op)).count() as u64
}
