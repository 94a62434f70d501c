//! Which copy answers a read.
//!
//! ```text
//!   candidates (columns that hold the bytes, in stripe order)
//!        |  verdicts: why each is out, or Eligible
//!        v
//!   policy --> preferred one --> out? --> first eligible in stripe order
//!        |                                      |
//!        +--------------- Choice ---------------+--> one counter, named after the reason
//! ```
//!
//! | policy | the sentence | state |
//! |---|---|---|
//! | `latency` | the copy expected to answer first; streams stay together, the neglected are measured again | [`latency`] |
//! | `queue` | fewest in flight | none |
//! | `pid` | client id modulo copies | none |
//! | `latency-2021`, `latency-2024` | lowest average since the device appeared | [`published`] |
//! | `device` | the first flagged `read_preferred` | none |
//! | `devid:N` | device N | none |
//! | `roundrobin-v3` | the next by device id, on every read | [`rotation`] |
//! | `round-robin:BYTES` | the next by device id, after so many bytes | [`rotation`] |
//! | `zfs` | lowest load: commands in flight, and more for a place further away | [`mirror`] |
//! | `parity-avoid-slow` | as `latency`; a strip with parity whose member is far slower is made from its row | [`avoid_slow`] |
//!
//! `latency` and `queue` are braid's own and look at eligible copies only, and so does `zfs`. The others repeat what was published bit for
//! bit, defects included: they decide over *all* copies, and when their favourite is out, [`tolerate`] takes the first
//! eligible one in stripe order. No policy ever takes a copy that is not eligible.
//!
//! Copies that share a device (`dup`) are no choice: the first eligible one in stripe order is read and no policy is
//! asked. Source: Linux `fs/btrfs/volumes.c`, where only the mirrors consult the policy.
//!
//! Policies are asked once a *window*, see [`stream`]: a client's run of small reads stays where it began, whatever the
//! policy, so that the queues can join it. `latency` minds streams itself and is asked for every read.
//!
//! After a failed read the published order is "the next copy, cyclically"; braid's own policies and `zfs` rank what
//! remains.
//!
//! Left to others: finding the candidates (the profile), posting the facts (the queues), reading (the host).

pub mod avoid_slow;
pub mod latency;
pub mod mirror;
pub mod published;
pub mod rotation;
mod setting;
pub mod stream;
#[cfg(test)]
mod tests;
mod view;

use alloc::vec::Vec;

pub use published::tolerate;
pub use setting::{ROUND_ROBIN_BYTES_DEFAULT, ReadPolicy, show_s0};
pub use view::{DeviceView, Window};

use crate::units::{ClientId, DeviceId, Instant};
use published::ZeroAverage;
use rotation::{ByteRotation, CountRotation};
use stream::{Place, Streams};

/// One copy of the bytes, in stripe order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// 0-based within the candidate set: what [`Choice::index`] repeats. Add the first column for a column number.
    pub index: usize,
    /// Where it is.
    pub device: DeviceId,
    /// First byte on that device; compared with [`DeviceView::head`].
    pub offset: u64,
    /// May it be read?
    pub verdict: Verdict,
}

/// Why a copy is out, or that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may be read.
    Eligible,
    /// Its device is not here.
    Missing,
    /// Its device is not used any more.
    Failed,
    /// It missed a write, or is not rebuilt yet.
    Stale,
    /// This very read failed there.
    AlreadyTried,
}

/// What a policy may know about the read itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Who reads: the explicit key of `pid`.
    pub client: ClientId,
    /// First byte within the column, the same for all copies: `zfs` breaks ties with it.
    pub offset: u64,
}

/// The copy to read, and why that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// [`Candidate::index`].
    pub index: usize,
    /// Why.
    pub reason: Reason,
}

/// Why a copy was chosen; each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There was nothing to choose.
    OnlyCopy,
    /// All copies are on one device (`dup`): the first, whatever the policy.
    SameDevice,
    /// `latency`: expected to answer first.
    Fastest,
    /// `latency`, `queue`: the device's line ends exactly where this read starts.
    Sequential,
    /// It continues a client's run, within the window that is not asked about again.
    Window,
    /// `latency`: neglected for so long that looking again is cheap.
    Probe,
    /// `queue`: fewest in flight.
    FewestInFlight,
    /// `pid`: client id modulo copies.
    Pid,
    /// `latency-2021`, `latency-2024`: lowest average since the device appeared.
    LowestAverage,
    /// `device`: the first one with the flag.
    Flagged,
    /// `device`: nobody has the flag, so the first.
    NoneFlaggedFirst,
    /// `devid:N`: it is device N.
    Devid,
    /// `devid:N`: device N has no copy, so the first.
    DevidAbsentFirst,
    /// `roundrobin-v3`, `round-robin`: its turn.
    Rotation,
    /// `zfs`: lowest load.
    LowestLoad,
    /// `zfs`: several have the lowest load, and this one has the region.
    Region,
    /// `parity-avoid-slow`: made from the rest of its row, since its member is far slower.
    AvoidSlow,
    /// Another copy failed this read.
    RetryAfterError,
    /// The policy's favourite is out, so the first eligible one.
    FallbackAbsent,
}

impl Reason {
    /// All, in the order of the documentation.
    pub const ALL: [Reason; 19] = [
        Reason::OnlyCopy,
        Reason::SameDevice,
        Reason::Fastest,
        Reason::Sequential,
        Reason::Window,
        Reason::Probe,
        Reason::FewestInFlight,
        Reason::Pid,
        Reason::LowestAverage,
        Reason::Flagged,
        Reason::NoneFlaggedFirst,
        Reason::Devid,
        Reason::DevidAbsentFirst,
        Reason::Rotation,
        Reason::LowestLoad,
        Reason::Region,
        Reason::AvoidSlow,
        Reason::RetryAfterError,
        Reason::FallbackAbsent,
    ];

    /// The name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            Reason::OnlyCopy => "only-copy",
            Reason::SameDevice => "same-device",
            Reason::Fastest => "fastest",
            Reason::Sequential => "sequential",
            Reason::Window => "window",
            Reason::Probe => "probe",
            Reason::FewestInFlight => "fewest-in-flight",
            Reason::Pid => "pid",
            Reason::LowestAverage => "lowest-average",
            Reason::Flagged => "flagged",
            Reason::NoneFlaggedFirst => "none-flagged-first",
            Reason::Devid => "devid",
            Reason::DevidAbsentFirst => "devid-absent-first",
            Reason::Rotation => "rotation",
            Reason::LowestLoad => "lowest-load",
            Reason::Region => "region",
            Reason::AvoidSlow => "avoid-slow",
            Reason::RetryAfterError => "retry-after-error",
            Reason::FallbackAbsent => "fallback-absent",
        }
    }
}

/// The pool's read policy with everything it remembers.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    policy: ReadPolicy,
    /// Turns of `roundrobin-v3`: one counter for the whole pool.
    turns: CountRotation,
    /// Bytes read under `round-robin`: one counter for the whole pool.
    bytes: ByteRotation,
    /// What the neglected could have cost already, for `latency`.
    credits: latency::Credits,
    streams: Streams,
    counts: [u64; Reason::ALL.len()],
}

impl Selector {
    /// This policy, with all counters at zero.
    pub fn new(policy: ReadPolicy) -> Self {
        Selector { policy, ..Selector::default() }
    }

    /// The policy in force.
    pub fn policy(&self) -> ReadPolicy {
        self.policy
    }

    /// Puts a policy in force, name and value at once; says whether that changed anything.
    ///
    /// The rotations continue where they stood, as in the source. What `latency` saved up for probes is dropped.
    pub fn set(&mut self, policy: ReadPolicy) -> bool {
        let changed = self.policy != policy;
        if changed {
            self.policy = policy;
            self.credits = latency::Credits::default();
            self.streams.forget();
        }
        changed
    }

    /// The copy to read; `None` when no copy is eligible. `views` is indexed by [`DeviceId::index`]; a copy whose device
    /// has no view is not eligible.
    pub fn choose(
        &mut self,
        now: Instant,
        ask: &Ask,
        candidates: &[Candidate],
        views: &[DeviceView],
    ) -> Option<Choice> {
        let (position, reason) = self.decide(now, ask, Field { candidates, views })?;
        self.counts[reason as usize] += 1;
        Some(Choice { index: candidates[position].index, reason })
    }

    /// As [`choose`](Self::choose), unless the read continues a run of `ask.client` within its window: then the copy of
    /// the run, if it can still be read. `place` is where the read starts, the same for all copies; it has `len` bytes.
    pub fn choose_in_stream(
        &mut self,
        now: Instant,
        ask: &Ask,
        (place, len): (Place, u64),
        candidates: &[Candidate],
        views: &[DeviceView],
    ) -> Option<Choice> {
        let tried = candidates.iter().any(|candidate| candidate.verdict == Verdict::AlreadyTried);
        let is_choice = candidates.iter().any(|candidate| candidate.device != candidates[0].device);
        if !is_choice || tried || self.policy.minds_streams() {
            return self.choose(now, ask, candidates, views);
        }
        let field = Field { candidates, views };
        let run = self.streams.take(ask.client, place, len);
        let stays = run.filter(|&(index, _)| {
            (0..candidates.len()).any(|at| candidates[at].index == index && field.is_eligible(at))
        });
        let (choice, run) = match stays {
            Some((index, run)) => {
                self.counts[Reason::Window as usize] += 1;
                (Choice { index, reason: Reason::Window }, run)
            }
            None => (self.choose(now, ask, candidates, views)?, 0),
        };
        self.streams.put(ask.client, place, len, choice.index, run);
        Some(choice)
    }

    /// Bytes of a run that a policy is asked about once; 0 asks for every read, as the laboratory does to show what the
    /// published policies cost that way.
    pub fn set_stream_window(&mut self, bytes: u64) {
        self.streams.set_window(bytes);
    }

    /// Whether a strip with parity is made from the rest of its row rather than read from its own member: where that is far
    /// slower, under `parity-avoid-slow`. `others` are the members of the rest that can be read; `needed` of them are enough.
    pub fn avoids(
        &mut self,
        now: Instant,
        own: DeviceId,
        others: impl Iterator<Item = DeviceId>,
        needed: usize,
        views: &[DeviceView],
    ) -> bool {
        let is_avoided = self.policy == ReadPolicy::ParityAvoidSlow
            && avoid_slow::without_slowest(now, others, needed, views)
                .is_some_and(|(_, made_ns)| avoid_slow::avoids(now, own, made_ns, views, &mut self.credits));
        self.counts[Reason::AvoidSlow as usize] += u64::from(is_avoided);
        is_avoided
    }

    /// A read was handed to a device, whatever it was for: `round-robin` counts its bytes while it is in force.
    pub fn read_admitted(&mut self, bytes: u64) {
        if let ReadPolicy::RoundRobin { .. } = self.policy {
            self.bytes.advance(bytes);
        }
    }

    /// How often each reason decided, in the order of [`Reason::ALL`].
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL.iter().map(|reason| (reason.name(), self.counts[*reason as usize]))
    }

    /// Sets both rotations, so that a run can be repeated: the turns of `roundrobin-v3` and the blocks read under
    /// `round-robin`.
    pub fn start_rotations_at(&mut self, turns: i32, read_blocks: u64) {
        self.turns = CountRotation::starting_at(turns);
        self.bytes = ByteRotation::starting_at(read_blocks);
    }

    fn decide(&mut self, now: Instant, ask: &Ask, field: Field<'_>) -> Option<(usize, Reason)> {
        let mut eligible = field.eligible();
        let (first, _, _) = eligible.next()?;
        let alone = eligible.next().is_none();
        let tried = field.candidates.iter().position(|candidate| candidate.verdict == Verdict::AlreadyTried);

        let n = field.candidates.len();
        if n == 1 {
            return Some((first, Reason::OnlyCopy));
        }
        // Policies choose between devices. As in the source, copies on one device are no choice, and rotations don't turn.
        if field.candidates.iter().all(|candidate| candidate.device == field.candidates[0].device) {
            return Some((first, if tried.is_some() { Reason::RetryAfterError } else { Reason::SameDevice }));
        }
        if self.policy.ranks_eligible() {
            let (position, reason) = match self.policy {
                _ if alone => (first, Reason::OnlyCopy),
                ReadPolicy::Queue => fewest_in_flight(field)?,
                ReadPolicy::Zfs(increments) => mirror::choose(&increments, ask, field)?,
                _ => latency::choose(now, field, &mut self.credits)?,
            };
            return Some((position, if tried.is_some() { Reason::RetryAfterError } else { reason }));
        }
        if let Some(tried) = tried {
            let next = (1..n).map(|step| (tried + step) % n).find(|&position| field.is_eligible(position))?;
            return Some((next, Reason::RetryAfterError));
        }
        let (favourite, reason) = self.published(ask, field);
        let position = tolerate(n, favourite, |position| field.is_eligible(position), |_| false);
        Some((position, if position == favourite { reason } else { Reason::FallbackAbsent }))
    }

    /// The favourite of a published policy, whether or not it can be read.
    fn published(&mut self, ask: &Ask, field: Field<'_>) -> (usize, Reason) {
        let n = field.candidates.len();
        match self.policy {
            ReadPolicy::Latency2021 => (field.lowest_average(ZeroAverage::ResetsScan), Reason::LowestAverage),
            ReadPolicy::Latency2024 => (field.lowest_average(ZeroAverage::Wins), Reason::LowestAverage),
            ReadPolicy::Device => {
                let flagged = |candidate: &Candidate| field.view(candidate).is_some_and(|view| view.read_preferred);
                match field.candidates.iter().position(flagged) {
                    Some(position) => (position, Reason::Flagged),
                    None => (0, Reason::NoneFlaggedFirst),
                }
            }
            ReadPolicy::Devid(device) => match field.candidates.iter().position(|c| c.device == device) {
                Some(position) => (position, Reason::Devid),
                None => (0, Reason::DevidAbsentFirst),
            },
            ReadPolicy::RoundRobinV3 => {
                (rotation::nth_by_device(field.candidates, self.turns.next_of(n)), Reason::Rotation)
            }
            ReadPolicy::RoundRobin { bytes } => {
                (rotation::nth_by_device(field.candidates, self.bytes.turn_of(n, bytes)), Reason::Rotation)
            }
            ReadPolicy::Pid
            | ReadPolicy::Latency
            | ReadPolicy::Queue
            | ReadPolicy::Zfs(_)
            | ReadPolicy::ParityAvoidSlow => (ask.client.index() % n, Reason::Pid),
        }
    }
}

/// `queue`: fewest in flight, then the one whose line ends here, then the lowest device id.
fn fewest_in_flight(field: Field<'_>) -> Option<(usize, Reason)> {
    let key = |(_, candidate, view): &(usize, &Candidate, &DeviceView)| {
        (view.in_flight, view.head != candidate.offset, candidate.device)
    };
    let (position, candidate, view) = field.eligible().min_by_key(key)?;
    let stays = view.head == candidate.offset;
    Some((position, if stays { Reason::Sequential } else { Reason::FewestInFlight }))
}

/// The candidates with the facts about their devices.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    candidates: &'a [Candidate],
    views: &'a [DeviceView],
}

impl<'a> Field<'a> {
    fn view(self, candidate: &Candidate) -> Option<&'a DeviceView> {
        self.views.get(candidate.device.index())
    }

    fn is_eligible(self, position: usize) -> bool {
        let candidate = &self.candidates[position];
        candidate.verdict == Verdict::Eligible && self.view(candidate).is_some_and(|view| view.state_readable)
    }

    fn eligible(self) -> impl Iterator<Item = (usize, &'a Candidate, &'a DeviceView)> {
        self.candidates.iter().enumerate().filter_map(move |(position, candidate)| {
            let view = self.view(candidate)?;
            (candidate.verdict == Verdict::Eligible && view.state_readable).then_some((position, candidate, view))
        })
    }

    fn lowest_average(self, zero: ZeroAverage) -> usize {
        let averages = self
            .candidates
            .iter()
            .map(|candidate| self.view(candidate).map_or(0, |view| published::average(view.read_ns, view.read_ios)));
        published::lowest_average(averages, zero)
    }
}

/// Room for as many devices as any view slice had so far; grows rarely, never in a steady pool.
fn grow_to<T: Copy + Default>(table: &mut Vec<T>, len: usize) {
    if table.len() < len {
        table.resize(len, T::default());
    }
}
