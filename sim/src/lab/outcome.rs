//! What a run was: answers by job, work by device, reasons, and why it stopped.

use braid_core::queue::class::Class;
use braid_core::report::{Counters, PoolReport};
use braid_core::request::RequestError;

use super::job::Direction;
use super::latency::{Latency, Timeline};
use crate::world::{Load, World};

/// Why something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything was asked and answered.
    Done,
    /// Its time was over.
    Runtime,
    /// A request failed.
    Failed(RequestError),
    /// Nothing would ever happen any more, and somebody waits.
    Stuck,
    /// The run as a whole was as long as it may be, in time or in answers.
    Limit,
}

impl Stop {
    /// For people.
    pub fn sentence(self) -> String {
        match self {
            Stop::Done => "everything that was asked is answered".into(),
            Stop::Runtime => "the runtime is over".into(),
            Stop::Failed(error) => format!("a request failed: {error:?}"),
            Stop::Stuck => "nothing happens any more, and a client still waits".into(),
            Stop::Limit => "the run was cut where a run has to end".into(),
        }
    }
}

/// Answers of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// How many.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From being handed over (the first piece, where there are pieces) to the answer.
    pub latency: Latency,
}

impl Side {
    pub(super) fn add(&mut self, other: &Side) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.latency.add(&other.latency);
    }
}

/// One job, all its threads together; or all jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutcome {
    /// Its name.
    pub name: String,
    /// By [`Direction`].
    pub sides: [Side; 4],
    /// When the first thread began, since the beginning of the run, in ns.
    pub began_ns: u64,
    /// From then (and the ramp, which counts nowhere) to the last answer, or to the end of its time where that is later.
    pub runtime_ns: u64,
    /// Answers over time, since the beginning of the run.
    pub timeline: Timeline,
    /// Requests that failed.
    pub errors: u64,
    /// Why it ended.
    pub stop: Stop,
}

impl JobOutcome {
    /// Nothing yet.
    pub fn new(name: &str) -> JobOutcome {
        JobOutcome {
            name: name.into(),
            sides: Default::default(),
            began_ns: 0,
            runtime_ns: 0,
            timeline: Timeline::default(),
            errors: 0,
            stop: Stop::Stuck,
        }
    }

    /// Takes in the answers of another run of the same job, and the time it took.
    pub fn add(&mut self, other: &JobOutcome) {
        self.sides.iter_mut().zip(&other.sides).for_each(|(mine, theirs)| mine.add(theirs));
        self.runtime_ns += other.runtime_ns;
        self.errors += other.errors;
    }

    /// Reads, writes and trims together.
    pub fn data(&self) -> Side {
        let mut all = Side::default();
        self.sides[..Direction::Sync as usize].iter().for_each(|side| all.add(side));
        all
    }

    /// Of one kind.
    pub fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction as usize]
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> u64 {
        per_second(self.data().bytes, self.runtime_ns)
    }

    /// Requests a second, in thousandths.
    pub fn milli_iops(&self) -> u64 {
        per_second(self.data().ios * 1000, self.runtime_ns)
    }
}

/// So many in so many ns, a second.
pub fn per_second(n: u64, ns: u64) -> u64 {
    (u128::from(n) * 1_000_000_000).checked_div(u128::from(ns)).unwrap_or(0) as u64
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOutcome {
    /// Its name.
    pub name: String,
    /// Commands, after joining.
    pub reads: u64,
    /// Likewise.
    pub writes: u64,
    /// Likewise.
    pub flushes: u64,
    /// Bytes.
    pub read_bytes: u64,
    /// Bytes.
    pub write_bytes: u64,
    /// I/Os before joining, reads and writes.
    pub ios: u64,
    /// Those that joined another one's command.
    pub merged: u64,
    /// Reads that the policy chose it for.
    pub chosen: u64,
    /// Thousandths of the run with a command there.
    pub busy_permille: u64,
    /// Commands there at once, in thousandths, on average over the run.
    pub mean_queue_milli: u64,
    /// Mean time of a command there, in ns.
    pub service_ns: u64,
    /// I/Os and bytes by class.
    pub classes: [(u64, u64); Class::COUNT],
    /// What the scheduler did and why something waited.
    pub reasons: Vec<(&'static str, u64)>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// By job, in their order.
    pub jobs: Vec<JobOutcome>,
    /// Together, from the first beginning to the last answer.
    pub all: JobOutcome,
    /// By device, in their order.
    pub devices: Vec<DeviceOutcome>,
    /// How often each reason decided a read.
    pub read_reasons: Vec<(&'static str, u64)>,
    /// What the pool counted.
    pub counters: Counters,
    /// Bytes of copies that a scrub read meanwhile.
    pub scrub_bytes: u64,
    /// Bytes a second of that.
    pub scrub_bytes_per_s: u64,
    /// Why it ended.
    pub stop: Stop,
    /// Equal runs have equal ones.
    pub hash: u64,
    /// Virtual ns from the first job's beginning to the end.
    pub ns: u64,
    /// Events that were handled in that.
    pub steps: u64,
}

/// A pool at some moment, to take differences of.
pub(super) struct Snapshot {
    pub(super) report: PoolReport,
    pub(super) loads: Vec<Load>,
}

impl Snapshot {
    /// As it is now.
    pub(super) fn of(world: &World) -> Snapshot {
        let loads = world.loads.iter().map(|load| load.at(world.now())).collect();
        Snapshot { report: world.engine().report(), loads }
    }

    /// What each device did since.
    pub(super) fn devices(&self, end: &Snapshot, names: &[String], ns: u64) -> Vec<DeviceOutcome> {
        let both = self.report.devices.iter().zip(&end.report.devices);
        let loads = self.loads.iter().zip(&end.loads);
        let mut outcomes = Vec::new();
        for (((before, after), (was, is)), name) in both.zip(loads).zip(names) {
            let (a, b) = (&before.io, &after.io);
            let commands =
                (b.reads + b.writes + b.flushes + b.discards) - (a.reads + a.writes + a.flushes + a.discards);
            let command_ns = is.command_ns - was.command_ns;
            outcomes.push(DeviceOutcome {
                name: name.clone(),
                reads: b.reads - a.reads,
                writes: b.writes - a.writes,
                flushes: b.flushes - a.flushes,
                read_bytes: b.read_bytes - a.read_bytes,
                write_bytes: b.write_bytes - a.write_bytes,
                ios: b.ios - a.ios,
                merged: b.merged - a.merged,
                chosen: b.chosen - a.chosen,
                busy_permille: share(is.busy_ns - was.busy_ns, ns),
                mean_queue_milli: share(command_ns, ns),
                service_ns: command_ns.checked_div(commands).unwrap_or(0),
                classes: Class::ALL.map(|class| {
                    let [was, is] = [before, after].map(|device| device.queue.stats.class(class));
                    (is.ios - was.ios, is.bytes - was.bytes)
                }),
                reasons: since(&before.queue.reasons, &after.queue.reasons),
            });
        }
        outcomes
    }

    pub(super) fn read_reasons(&self, end: &Snapshot) -> Vec<(&'static str, u64)> {
        since(&self.report.read_reasons, &end.report.read_reasons)
    }
}

/// Thousandths.
fn share(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1000).checked_div(u128::from(whole)).unwrap_or(0) as u64
}

/// Counts by name, less those that were there before. A scheduler that took over counts from nothing.
fn since(before: &[(&'static str, u64)], after: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let was = |name| before.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count);
    after.iter().map(|&(name, count)| (name, count.saturating_sub(was(name)))).collect()
}
