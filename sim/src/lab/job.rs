//! What a client does, in the words of fio.
//!
//! ```text
//!   job    what is asked: directions, sizes, places, how many at once, how fast, how long
//!   count  so many threads do the same, each with dice and an id of its own
//!   piece  a request goes to the engine in pieces of so many bytes, one by one, and is done when all of them are
//! ```
//!
//! A thread that hands over pieces holds them back until the last one has chosen its copy, as under a plug.
//!
//! A thread fills its depth in batches, waits until enough is back, and fills it again. Handing over costs CPU, and there
//! are only so many CPUs ([`Setup::cpus`](super::setup::Setup)): that is what makes the pieces of two threads
//! alternate.
//!
//! Left out: the page cache (everything is direct), compression and verification of content, time spent in `io_getevents`.

use std::collections::BTreeMap;

use braid_core::REQUESTS_MAX;
use braid_core::request::Content;

use super::script::Work;

/// Where the next request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Behind the one before.
    #[default]
    Sequential,
    /// Anywhere.
    Random,
}

/// What kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Discard.
    Trim,
    /// Flush.
    Sync,
}

impl Direction {
    /// All of them.
    pub const ALL: [Direction; 4] = [Direction::Read, Direction::Write, Direction::Trim, Direction::Sync];

    /// The word for it.
    pub fn name(self) -> &'static str {
        ["read", "write", "trim", "sync"][self as usize]
    }
}

/// Sizes of requests: each a range, and how many of a hundred requests are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<SizeRange>);

/// Sizes between two, in steps of the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// Smallest, in bytes.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Of a hundred requests.
    pub percent: u64,
}

impl Sizes {
    /// Always the same.
    pub fn fixed(bytes: u64) -> Sizes {
        Sizes::between(bytes, bytes)
    }

    /// Anything between two.
    pub fn between(min: u64, max: u64) -> Sizes {
        Sizes(vec![SizeRange { min, max, percent: 100 }])
    }

    /// The smallest there may be.
    pub fn min(&self) -> u64 {
        self.0.iter().map(|range| range.min).min().unwrap_or(0)
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.0.iter().map(|range| range.max).max().unwrap_or(0)
    }
}

/// What a request costs the CPU of its client before the engine has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Each request.
    pub request_ns: u64,
    /// Each piece, where requests go in pieces.
    pub piece_ns: u64,
    /// At most so much is added to each of both, by dice.
    pub jitter_ns: u64,
    /// On average so much more for each of both, without memory (exponential): locks, tags, interrupts, being away.
    pub scatter_ns: u64,
}

/// See the module. The default asks for nothing but reads of 4 KiB, one at a time, of the whole volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name.
    pub name: String,
    /// Which of the volumes of the setup.
    pub volume: usize,
    /// How the next place is found.
    pub access: Access,
    /// Requests that follow the one before until a random job looks for another place.
    pub run: u64,
    /// Reads, of a hundred requests.
    pub reads: u64,
    /// What the others are.
    pub changes: Direction,
    /// Sizes of reads and of changes.
    pub sizes: [Sizes; 2],
    /// Requests go to the engine in pieces of so many bytes.
    pub piece: Option<u64>,
    /// Requests at once.
    pub depth: u64,
    /// Only when no more than so many are on their way does it ask again; 0 is the depth.
    pub depth_low: u64,
    /// Requests handed over together.
    pub batch: u64,
    /// Answers that are waited for together.
    pub reap: u64,
    /// Threads that do the same.
    pub count: u64,
    /// Id of the first of them; the others follow.
    pub client: u32,
    /// First byte it touches.
    pub offset: u64,
    /// So much further for each further thread.
    pub offset_step: u64,
    /// Bytes it touches; none is the rest of the volume.
    pub size: Option<u64>,
    /// Bytes a thread asks for; none is the size.
    pub io_size: Option<u64>,
    /// How often it does all of that.
    pub loops: u64,
    /// Nothing is asked after so many ns.
    pub runtime_ns: Option<u64>,
    /// It goes on from the beginning until then.
    pub time_based: bool,
    /// What is answered in the first ns is not counted.
    pub ramp_ns: u64,
    /// Bytes a second that reads and changes may not exceed.
    pub rate: [Option<u64>; 2],
    /// Requests a second, likewise.
    pub rate_iops: [Option<u64>; 2],
    /// When all of so many requests are answered, it thinks for that many ns.
    pub think_ns: u64,
    /// How many requests that is.
    pub think_after: u64,
    /// A flush after so many writes; 0 is never. The thread waits for it.
    pub sync_every: u64,
    /// A flush at the end.
    pub sync_last: bool,
    /// Writes with force unit access.
    pub fua: bool,
    /// CPU of the client.
    pub cpu: Cpu,
    /// It begins so many ns after its stage.
    pub start_ns: u64,
    /// Jobs of a stage begin when those of the stages before are done.
    pub stage: u32,
    /// Dice.
    pub seed: u64,
    /// A random job touches each block once before it touches one twice. Only where all sizes are one.
    pub each_once: bool,
    /// What its requests say they are.
    pub content: Content,
    /// In place of all that is about directions, sizes, places and depth: a file system's work, or a trace.
    pub work: Option<Work>,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            name: "job".into(),
            volume: 0,
            access: Access::Sequential,
            run: 1,
            reads: 100,
            changes: Direction::Write,
            sizes: [Sizes::fixed(4096), Sizes::fixed(4096)],
            piece: None,
            depth: 1,
            depth_low: 0,
            batch: 1,
            reap: 1,
            count: 1,
            client: 0,
            offset: 0,
            offset_step: 0,
            size: None,
            io_size: None,
            loops: 1,
            runtime_ns: None,
            time_based: false,
            ramp_ns: 0,
            rate: [None; 2],
            rate_iops: [None; 2],
            think_ns: 0,
            think_after: 1,
            sync_every: 0,
            sync_last: false,
            fua: false,
            cpu: Cpu::default(),
            start_ns: 0,
            stage: 0,
            seed: 0,
            each_once: true,
            content: Content::Unsaid,
            work: None,
        }
    }
}

/// Most threads of a run.
pub const THREADS_MAX: u64 = 4096;
/// Deepest a thread may go: the engine's own limit of requests, over as many threads as are usual.
pub const DEPTH_MAX: u64 = 16_384;
/// Most requests that all jobs of a stage may have under way: the engine refuses more.
pub const UNDER_WAY_MAX: u64 = REQUESTS_MAX as u64;
/// Most threads of all jobs, of all stages together.
pub const ALL_THREADS_MAX: u64 = 1 << 16;

/// What is too much of jobs that each make sense, in a sentence.
pub(super) fn check_together(jobs: &[Job]) -> Result<(), String> {
    let mut under_way: BTreeMap<u32, u64> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.work.is_none()) {
        *under_way.entry(job.stage).or_default() += job.count * job.depth;
    }
    if let Some(most) = under_way.values().max().filter(|most| **most > UNDER_WAY_MAX) {
        return Err(format!(
            "the jobs would have {most} requests under way at once, and a run has at most {UNDER_WAY_MAX}; lower iodepth \
             or numjobs"
        ));
    }
    match jobs.iter().map(|job| job.count).sum::<u64>() {
        threads if threads > ALL_THREADS_MAX => Err(format!(
            "the jobs have {threads} threads together, and a run has at most {ALL_THREADS_MAX}; lower numjobs"
        )),
        _ => Ok(()),
    }
}

impl Job {
    /// The bytes a thread touches in a volume of so many: first and end.
    pub fn region(&self, thread: u64, volume: u64) -> (u64, u64) {
        let first = self.offset.saturating_add(self.offset_step.saturating_mul(thread));
        let end = self.size.map_or(volume, |size| first.saturating_add(size).min(volume));
        (first, end)
    }

    /// What may be touched, and what it holds: ranges that a setup fills.
    pub fn regions(&self, volume: u64) -> Vec<(u64, u64, Content)> {
        match &self.work {
            Some(work) => work.regions(),
            None => (0..self.count)
                .map(|thread| self.region(thread, volume))
                .map(|(first, end)| (first, end, self.content))
                .collect(),
        }
    }

    /// What makes no sense, in a sentence.
    pub fn check(&self, volumes: &[u64]) -> Result<(), String> {
        let fail = |why: String| Err(format!("job {}: {why}", self.name));
        let Some(&volume) = volumes.get(self.volume) else {
            return fail(format!("there is no volume {}", self.volume));
        };
        if let Some(work) = &self.work {
            return work.check(volume).or_else(fail);
        }
        let whole = |n: u64| n > 0 && n.is_multiple_of(512);
        for range in self.sizes.iter().flat_map(|sizes| &sizes.0) {
            if !whole(range.min) || range.max < range.min {
                let (min, max) = (range.min, range.max);
                let sizes = if min == max { min.to_string() } else { format!("{min} to {max}") };
                return fail(format!("requests of {sizes} bytes; use multiples of 512"));
            }
        }
        let sums = self.sizes.iter().map(|sizes| sizes.0.iter().map(|range| range.percent).sum::<u64>());
        if sums.into_iter().any(|sum| sum != 100) {
            return fail("the shares of the sizes of requests add up to 100".into());
        }
        if self.piece.is_some_and(|piece| !whole(piece)) {
            return fail("a piece is a multiple of 512 bytes".into());
        }
        if self.count == 0 || self.count > THREADS_MAX || self.depth == 0 || self.depth > DEPTH_MAX {
            return fail(format!("1 to {THREADS_MAX} threads, each 1 to {DEPTH_MAX} requests deep"));
        }
        if self.reads > 100 || self.loops == 0 || self.batch == 0 || self.reap == 0 || self.run == 0 {
            return fail("a share is at most 100; loops, batches and runs are at least 1".into());
        }
        if self.time_based && self.runtime_ns.is_none() {
            return fail("time_based needs a runtime".into());
        }
        for thread in [0, self.count - 1] {
            let (first, end) = self.region(thread, volume);
            let largest = self.sizes.iter().map(Sizes::max).max().unwrap_or(0);
            if !first.is_multiple_of(512) || end < first.saturating_add(largest) {
                return fail(format!(
                    "a request of {largest} bytes does not fit between byte {first} and byte {end} of the volume; \
                     check offset, size and bs"
                ));
            }
        }
        Ok(())
    }
}
