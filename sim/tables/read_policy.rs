//! What the two tables of btrfs read policies have in common: the fio job, one run of it, and braid's own policies in
//! the same place.
//!
//! ```text
//!   published    64 KiB in pieces of 4 KiB, each chooses its copy; 32 threads share the counter; a plug joins what went
//!                to one device; `scheduler=none`
//!   braid        64 KiB whole, braid's own queue, the same price of CPU
//! ```
//!
//! Every run follows one with `pid`, as in the posting: the published averages begin when a device appears, so that the
//! run before decides whom `latency-2021` takes.

use braid_core::Profile;
use braid_core::units::KIB;

use crate::lab::{self, Access, Cpu, Job, Member, Outcome, Setup, Sizes};
use crate::table::Sheet;

/// Of one request.
pub(super) const REQUEST: u64 = 64 * KIB;
/// Of one choice of the published policies.
pub(super) const PIECE: u64 = 4 * KIB;
/// `numjobs`.
pub(super) const THREADS: u64 = 32;

/// braid's own policies, the default first.
pub(super) const OWN: [&str; 2] = ["latency", "queue"];

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) members: Vec<Member>,
    pub(super) profile: Profile,
    /// As the pool's property has it.
    pub(super) policy: &'static str,
    pub(super) access: Access,
    /// Of each thread.
    pub(super) reads: u64,
    /// 0 is one for each thread.
    pub(super) cpus: usize,
    /// What a piece of 4 KiB costs its thread.
    pub(super) piece: Cpu,
}

impl Scenario {
    fn is_own(&self) -> bool {
        OWN.contains(&self.policy)
    }

    pub(super) fn run(&self, seed: u64) -> Outcome {
        let set = |name: &str, value: &str| (name.to_string(), value.to_string());
        let region = self.reads * REQUEST;
        let mut setup = Setup::new(self.members.clone(), self.profile, self.profile.system(), THREADS * region);
        setup.cpus = self.cpus;
        setup.settings = vec![set("read_policy", "pid")];
        setup.changes = vec![(1, "read_policy".into(), self.policy.into())];
        setup.counted_from = 1;
        if !self.is_own() {
            setup.settings.extend([set("scheduler", "none"), set("queue_depth", "1024")]);
            setup.stream_window = Some(0);
        }
        lab::run(&setup, &[self.job(0, region), self.job(1, region)], seed).expect("the scenario makes sense")
    }

    fn job(&self, stage: u32, region: u64) -> Job {
        let ns = REQUEST / PIECE * (self.piece.piece_ns + self.piece.scatter_ns) + self.piece.scatter_ns;
        // What scatters is the sum of seventeen, which is a quarter of it.
        let whole = Cpu { request_ns: ns - ns / 4, scatter_ns: ns / 4, ..Cpu::default() };
        Job {
            name: if stage == 0 { "history".into() } else { "fio".into() },
            access: self.access,
            sizes: [Sizes::fixed(REQUEST), Sizes::fixed(REQUEST)],
            piece: (!self.is_own()).then_some(PIECE),
            cpu: if self.is_own() { whole } else { self.piece },
            count: THREADS,
            size: Some(region),
            offset_step: region,
            stage,
            ..Job::default()
        }
    }
}

/// MiB/s of what was counted.
pub(super) fn mib_s(outcome: &Outcome) -> f64 {
    outcome.all.bytes_per_s() as f64 / (1 << 20) as f64
}

/// Bandwidth under a policy: its name, theirs, ours.
pub(super) type Cell = (&'static str, f64, f64);

/// Of each two policies that are told apart by what was published, ours have to be in that order.
pub(super) fn judge_order(sheet: &mut Sheet, of: &str, cells: &[Cell]) {
    /// Differences of the published figures that are larger than this.
    const TELLING: f64 = 1.1;
    let (mut right, mut wrong) = (0, Vec::new());
    for (better, more, a) in cells {
        for (worse, _, b) in cells.iter().filter(|(_, less, _)| *more > TELLING * less) {
            match a > b {
                true => right += 1,
                false => wrong.push(format!("{better} {a:.0} over {worse} {b:.0}")),
            }
        }
    }
    let shown = if wrong.is_empty() { format!("{right} of {right}") } else { wrong.join(", ") };
    sheet.claim(format!("{of}: policies more than 10 % apart are in order"), wrong.is_empty(), shown);
}
