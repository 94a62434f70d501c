//! What is cut: small pools, and a few clients and operators at work on them.
//!
//! A scene is a *plot* on a *cast* of members, `first-writes/raid1`, with details drawn from a seed: which blocks, in what
//! order, how far the world goes on in between, what the members are.

use braid_core::Profile;
use braid_core::units::{MIB, UNIT};

use crate::device::Model;
use crate::disk::BLOCK;
use crate::fault::{Fault, Trouble};
use crate::rng::Rng;
use crate::swarm::scenario::{Ask, Step, Verb};
use crate::world::Shape;

/// Members and profiles, in words: name, sizes in MiB, profile of data, profile of metadata.
type Cast = (&'static str, &'static [u64], &'static str, &'static str);

const CASTS: [Cast; 11] = [
    ("single", &[16], "single", "single"),
    ("dup", &[18], "dup", "dup"),
    ("raid0", &[16, 18], "raid0", "raid1"),
    ("raid1", &[16, 16], "raid1", "raid1"),
    ("raid1c3", &[16, 17, 18], "raid1c3", "raid1c3"),
    ("raid10", &[16, 16, 17, 18], "raid10", "raid1"),
    ("unlike", &[16, 24, 40], "raid1", "raid1"),
    ("raid5", &[18, 18, 20], "raid5", "raid1"),
    ("raid6", &[18, 18, 20, 22], "raid6", "raid1c3"),
    // So many strips that a row is read and modified where that is less to read than the rest of it.
    ("raid5-wide", &[18, 18, 18, 20, 22], "raid5", "raid1"),
    ("raid6-wide", &[18, 18, 18, 18, 20, 20, 22], "raid6", "raid1c3"),
];

/// Whether it makes sense with these members.
fn fits(plot: Plot, &(_, sizes, data, metadata): &Cast) -> bool {
    let facts = || [data, metadata].into_iter().filter_map(Profile::parse).map(|profile| profile.facts());
    let is_wide = sizes.len() > 4;
    match plot {
        Plot::Rows => Profile::parse(data).is_some_and(|data| data.facts().parity > 0),
        // What is the same however many strips there are is not looked at again.
        Plot::Overwrite | Plot::Volumes | Plot::Checkpoint | Plot::Ring | Plot::Control | Plot::Remove if is_wide => {
            false
        }
        // A member may be missing.
        Plot::Degraded => facts().all(|f| f.tolerated_failures > 0),
        // One less is enough.
        Plot::Remove | Plot::Replace => facts().all(|f| f.devs_min < sizes.len()),
        _ => true,
    }
}

/// What is going on when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plot {
    Overwrite,
    FirstWrites,
    Discard,
    Volumes,
    Checkpoint,
    Ring,
    Control,
    Degraded,
    Scrub,
    Balance,
    Remove,
    Replace,
    Rows,
}

impl Plot {
    const ALL: [Plot; 13] = [
        Plot::Overwrite,
        Plot::FirstWrites,
        Plot::Discard,
        Plot::Volumes,
        Plot::Checkpoint,
        Plot::Ring,
        Plot::Control,
        Plot::Degraded,
        Plot::Scrub,
        Plot::Balance,
        Plot::Remove,
        Plot::Replace,
        Plot::Rows,
    ];

    fn name(self) -> &'static str {
        match self {
            Plot::Overwrite => "overwrite",
            Plot::FirstWrites => "first-writes",
            Plot::Discard => "discard",
            Plot::Volumes => "volumes",
            Plot::Checkpoint => "checkpoint",
            Plot::Ring => "ring",
            Plot::Control => "control",
            Plot::Degraded => "degraded",
            Plot::Scrub => "scrub",
            Plot::Balance => "balance",
            Plot::Remove => "remove",
            Plot::Replace => "replace",
            Plot::Rows => "rows",
        }
    }
}

/// See the module.
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) data: Profile,
    pub(crate) metadata: Profile,
    /// Members that may be lost together with the power.
    pub(crate) spared: usize,
    pub(crate) set: Vec<(&'static str, String)>,
    pub(crate) faults: Vec<Fault>,
    /// Names of volumes, by slot.
    pub(crate) names: Vec<(u32, String)>,
    /// What is there before.
    pub(crate) before: Vec<Step>,
    /// What is cut.
    pub(crate) steps: Vec<Step>,
}

/// Names of all scenes.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for plot in Plot::ALL {
        let casts = CASTS.iter().filter(|cast| fits(plot, cast));
        names.extend(casts.map(|cast| format!("{}/{}", plot.name(), cast.0)));
    }
    names
}

/// Devices that answer in different orders.
const KINDS: &[&str] = &["nvme", "sata-ssd", "hdd"];
/// Bytes of a volume.
const VOLUME: u64 = 32 * MIB;
/// Blocks that are written again and again.
const HOT: u64 = 24;
/// Where first writes go: into other units and another leaf.
const FRESH: [u64; 6] = [64, 81, 96, 4096, 4112, 4130];

impl Scene {
    /// The scene of this name, or none.
    pub(crate) fn new(name: &str, seed: u64) -> Option<Scene> {
        let (plot, cast) = name.split_once('/')?;
        let plot = Plot::ALL.into_iter().find(|p| p.name() == plot)?;
        let cast = CASTS.iter().find(|c| c.0 == cast && fits(plot, c))?;
        let &(_, sizes, data, metadata) = cast;
        let (data, metadata) = (Profile::parse(data)?, Profile::parse(metadata)?);
        let mut rng = Rng::new(seed ^ 0xc0de);
        let shape = |mib: &u64| {
            let kind = rng.pick::<&str>(KINDS);
            let model = Model::shipped(kind).expect("it is there");
            Shape { size: mib * MIB, model, class: "ssd" }
        };
        let shapes: Vec<Shape> = sizes.iter().map(shape).collect();
        let mut set = vec![("commit_interval", rng.pick(&["100ms", "1000ms"]).to_string())];
        // Dice of their own: what is drawn else stays as it was without checksums.
        let checksum = Rng::new(seed ^ 0xc4ec).pick(&["none", "crc32c", "crc32c", "xxh3"]).to_string();
        set.push(("checksum", checksum));
        let strips = (sizes.len() - data.facts().parity) as u64;
        let row = if plot == Plot::Rows { strips * UNIT / BLOCK } else { 0 };
        let mut writer = Writer { rng, steps: Vec::new(), volumes: 1, members: sizes.len() as u64, row };
        writer.create(0);
        if plot == Plot::Volumes {
            writer.create(1);
            writer.create(2);
            writer.volumes = 3;
        }
        writer.fill();
        let before = std::mem::take(&mut writer.steps);
        writer.plot(plot);
        let faults = match plot {
            Plot::Degraded => {
                let device = writer.rng.between(1, shapes.len() as u64) as u32;
                vec![Fault { device, trouble: Trouble::Absent { since: writer.rng.below(2_000_000) } }]
            }
            _ => Vec::new(),
        };
        let names = (0..5).map(|slot| (slot, name_of(slot))).collect();
        // Where nobody but the clients is at work: a member that is needed to get another one out is not spared.
        let spared = match plot {
            Plot::Overwrite | Plot::FirstWrites | Plot::Discard | Plot::Checkpoint | Plot::Rows | Plot::Degraded => {
                data.facts().tolerated_failures.min(metadata.facts().tolerated_failures)
            }
            _ => 0,
        };
        Some(Scene { seed, shapes, data, metadata, spared, set, faults, names, before, steps: writer.steps })
    }

    /// What goes on after a cut, while the pool still recovers.
    pub(crate) fn after(&self, seed: u64) -> Vec<Step> {
        let members = self.shapes.len() as u64;
        let mut writer = Writer { rng: Rng::new(seed), steps: Vec::new(), volumes: 3, members, row: 0 };
        writer.go();
        for _ in 0..writer.rng.below(4) {
            match writer.rng.below(4) {
                0 => writer.first_write(),
                1 => writer.flush(),
                _ => writer.overwrite(),
            }
            writer.go();
        }
        writer.steps
    }
}

fn name_of(slot: u32) -> String {
    format!("v{slot}")
}

struct Writer {
    rng: Rng,
    steps: Vec<Step>,
    /// Volumes in use, from slot 0 on.
    volumes: u64,
    /// Members of the pool.
    members: u64,
    /// Blocks of a row of parity, where it is rows that are written.
    row: u64,
}

impl Writer {
    fn plot(&mut self, plot: Plot) {
        let asks = self.rng.between(4, 14);
        for i in 0..asks {
            self.scene(plot, i);
            self.go();
        }
        if self.rng.percent(50) {
            self.flush();
            self.steps.push(Step::Go(20));
        }
    }

    fn scene(&mut self, plot: Plot, i: u64) {
        match plot {
            Plot::Overwrite | Plot::Volumes => self.common(10, 3),
            Plot::FirstWrites => self.common(80, 2),
            Plot::Discard => match self.rng.below(5) {
                0 | 1 => self.discard(),
                2 => self.zero(),
                _ => self.common(60, 3),
            },
            Plot::Checkpoint => match i % 4 {
                1 => self.steps.push(Step::Checkpoint),
                _ => self.common(50, 3),
            },
            // A record a flush: the ring is soon full.
            Plot::Ring => {
                self.first_write();
                self.go();
                self.flush();
            }
            Plot::Control => match self.rng.below(3) {
                0 => self.common(50, 4),
                _ => self.operate(i),
            },
            Plot::Degraded => self.common(30, 3),
            Plot::Scrub => match i {
                0 => self.steps.push(Step::Scrub("start".into())),
                _ => self.common(40, 3),
            },
            Plot::Balance => match i {
                0 => self.steps.push(Step::Balance { data: None, metadata: None }),
                _ => self.beside_moves(i),
            },
            Plot::Replace => match i {
                0 => self.replace(),
                _ => self.beside_moves(i),
            },
            Plot::Remove => match i {
                0 => self.steps.push(Step::Remove(self.rng.between(1, self.members) as u32)),
                _ => self.beside_moves(i),
            },
            Plot::Rows => match self.rng.below(5) {
                0 => self.flush(),
                _ => self.change_of_rows(),
            },
        }
    }

    /// What there is to do to rows: a part of a strip, some strips, a row and no more, the end of one and the beginning of the
    /// next. The first two have content.
    fn change_of_rows(&mut self) {
        let (row, strip) = (self.row, UNIT / BLOCK);
        let strips = row / strip;
        let first = self.rng.below(3) * row;
        let (at, blocks) = match self.rng.below(5) {
            0 | 1 => (self.rng.below(row), self.rng.between(1, 4)),
            2 => (self.rng.below(strips) * strip, self.rng.between(1, strips - 1) * strip),
            3 => (0, row),
            _ => (row - self.rng.between(1, strip + 2), self.rng.between(2, row + 2)),
        };
        let fua = self.rng.percent(30);
        self.any(Verb::Write, (first + at) * BLOCK, blocks * BLOCK, fua);
    }

    /// One member gets what another one has, as far as that can go there.
    fn replace(&mut self) {
        let device = self.rng.between(1, self.members);
        let by = (device + self.rng.below(self.members - 1)) % self.members + 1;
        self.steps.push(Step::Replace { device: device as u32, by: by as u32 });
    }

    /// Clients change what moves, and operators their minds.
    fn beside_moves(&mut self, i: u64) {
        match self.rng.below(8) {
            0 => self.discard(),
            1 if i.is_multiple_of(3) => {
                self.steps.push(Step::Job((*self.rng.pick(&["pause", "resume", "cancel"])).into()))
            }
            _ => self.common(30, 3),
        }
    }

    /// A write, first ones so many in a hundred, or a flush, one in so many.
    fn common(&mut self, first: u64, flush: u64) {
        match self.rng.below(flush + 1) {
            0 => self.flush(),
            _ if self.rng.percent(first) => self.first_write(),
            _ => self.overwrite(),
        }
    }

    fn operate(&mut self, i: u64) {
        let slot = self.rng.below(5) as u32;
        match self.rng.below(4) {
            0 => self.create(slot),
            1 => self.steps.push(Step::Resize { slot, size: VOLUME + (i + 1) * MIB }),
            2 if slot > 0 => self.steps.push(Step::Destroy { slot }),
            _ => {
                let value = format!("{}ms", 200 + 10 * i);
                self.steps.push(Step::Set { device: None, name: "commit_interval".into(), value });
            }
        }
    }

    fn create(&mut self, slot: u32) {
        self.steps.push(Step::Create { slot, name: name_of(slot), size: VOLUME, class: "auto".into() });
        self.steps.push(Step::Go(if slot == 0 { 60 } else { 5 }));
    }

    /// Hot blocks have content before, and it is stable.
    fn fill(&mut self) {
        self.steps.push(Step::Go(60));
        for slot in 0..self.volumes {
            self.ask(slot, Verb::Write, 0, HOT.max(2 * self.row) * BLOCK, false);
        }
        self.steps.push(Step::Go(60));
        self.flush();
    }

    fn go(&mut self) {
        let events = *self.rng.pick(&[0, 0, 1, 2, 4, 12]);
        self.steps.push(Step::Go(events));
    }

    fn overwrite(&mut self) {
        let (at, blocks) = (self.rng.below(HOT), self.rng.between(1, 4));
        let fua = self.rng.percent(30);
        // Now and then not whole blocks.
        match self.rng.percent(15) {
            true => self.any(Verb::Write, at * BLOCK + 512, blocks * BLOCK - 1024, fua),
            false => self.any(Verb::Write, at * BLOCK, blocks * BLOCK, fua),
        }
    }

    fn first_write(&mut self) {
        let (at, blocks) = (*self.rng.pick(&FRESH) + self.rng.below(12), self.rng.between(1, 4));
        let fua = self.rng.percent(25);
        self.any(Verb::Write, at * BLOCK, blocks * BLOCK, fua);
    }

    fn discard(&mut self) {
        // Whole units, so that their space has another owner soon.
        let at = *self.rng.pick(&[0, 0, 16, 64, 80, 4096]);
        self.any(Verb::Discard, at * BLOCK, 16 * BLOCK, false);
    }

    fn zero(&mut self) {
        let (at, fua) = (self.rng.below(HOT), self.rng.percent(50));
        self.any(Verb::Zero, at * BLOCK, self.rng.clone().between(1, 3) * BLOCK, fua);
    }

    fn flush(&mut self) {
        self.ask(0, Verb::Flush, 0, 0, false);
    }

    fn any(&mut self, op: Verb, offset: u64, len: u64, fua: bool) {
        let slot = self.rng.below(self.volumes);
        self.ask(slot, op, offset, len, fua);
    }

    fn ask(&mut self, slot: u64, op: Verb, offset: u64, len: u64, fua: bool) {
        let no_hole = op == Verb::Zero && self.rng.percent(30);
        let slot = slot as u32;
        self.steps.push(Step::Ask(Ask { client: 0, depth: 8, slot, op, offset, len, fua, no_hole, metadata: false }));
    }
}
