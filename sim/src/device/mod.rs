//! Models of devices: when a command that arrives now is done.
//!
//! ```text
//!   arrive(now, command) --> [ bus, if any ] --> flash | hdd | network --> complete(now) -> id
//!                                                      |
//!                              next_event() <----------'   when to look again
//! ```
//!
//! A [`Model`] is what stands in a file: a kind, its numbers, and where each number comes from. A [`Timing`] is one such
//! device at work. Everything is in ns of virtual time and in integers; what scatters comes from a generator of the
//! device's own, so a device's times are a function of its model, its seed, and what arrived when. Content is elsewhere
//! (see [`disk`](crate::disk)).
//!
//! * [`flash`]: parallel units, latency by operation, ceilings of IOPS and bandwidth, bursts of writes, flush, tail
//! * [`hdd`]: seek, rotation, zones, command queue with its preference for streams, read-ahead, write cache
//! * [`network`]: price per request, servers, objects, round trip
//! * a [cache](Cache) on flash that writes back, before any of them
//! * a bus: what several devices of one host share
//!
//! What each leaves out stands in its own head. None models errors; see [`fault`](crate::fault).

mod cached;
mod dirty;
mod file;
pub mod fio;
pub mod fit;
pub mod flash;
pub mod hdd;
pub mod load;
pub mod network;
mod numbers;
mod stage;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use braid_core::request::DeviceOp;

pub(crate) use file::complaint;
pub use flash::Flash;
pub use hdd::Hdd;
pub use load::{Got, Load};
pub use network::Network;
pub use numbers::Number;
pub use stage::{Bus, BusNumbers, Buses};

/// The numbers of a model, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NVMe, SATA or SAS flash.
    Flash(Flash),
    /// A disk that rotates.
    Hdd(Hdd),
    /// Servers behind a network.
    Network(Network),
}

impl Kind {
    /// The word of a file.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Flash(_) => "flash",
            Kind::Hdd(_) => "hdd",
            Kind::Network(_) => "network",
        }
    }

    /// What it is made of.
    pub fn numbers(&self) -> &'static [Number] {
        match self {
            Kind::Flash(_) => Flash::NUMBERS,
            Kind::Hdd(_) => Hdd::NUMBERS,
            Kind::Network(_) => Network::NUMBERS,
        }
    }

    fn number(&mut self, key: &str) -> Option<&mut u64> {
        match self {
            Kind::Flash(m) => m.number(key),
            Kind::Hdd(m) => m.number(key),
            Kind::Network(m) => m.number(key),
        }
    }
}

/// A write-back cache in front of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// What it is made of.
    pub model: Arc<Model>,
    /// Is written back when there is more of it.
    pub dirty_kib: u64,
    /// A flush goes to the device as well when something was written back.
    pub passes_flushes: bool,
}

/// A model of a device: cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    name: Arc<str>,
    about: Arc<str>,
    kind: Kind,
    bus: Option<(Arc<str>, BusNumbers)>,
    cache: Option<Cache>,
    /// Where numbers come from, by name; those of a bus as `bus.name`.
    sources: Arc<BTreeMap<String, String>>,
}

impl Model {
    /// A model of one's own.
    pub fn new(name: &str, about: &str, kind: Kind) -> Model {
        Model { name: name.into(), about: about.into(), kind, bus: None, cache: None, sources: Arc::default() }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(&self, name: &str, about: &str) -> Model {
        Model { name: name.into(), about: about.into(), ..self.clone() }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sentence.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Its numbers.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The class of such a device among others, as `braid create` gives it: what is flash is known by its name alone.
    pub fn class(&self) -> &'static str {
        match self.kind {
            Kind::Flash(_) if self.name.starts_with("nvme") => "nvme",
            Kind::Flash(_) => "ssd",
            Kind::Hdd(_) => "hdd",
            Kind::Network(_) => "net",
        }
    }

    /// Whether there is a head to move.
    pub fn is_rotational(&self) -> bool {
        matches!(self.kind, Kind::Hdd(_))
    }

    /// Name and numbers of the bus it is on.
    pub fn bus(&self) -> Option<(&str, BusNumbers)> {
        self.bus.as_ref().map(|(name, numbers)| (&**name, *numbers))
    }

    /// The same on a bus.
    pub fn on_bus(mut self, name: &str, numbers: BusNumbers) -> Model {
        self.bus = Some((name.into(), numbers));
        self
    }

    /// The same behind a write-back cache. No file says this.
    pub fn behind(mut self, cache: Cache) -> Model {
        self.cache = Some(cache);
        self
    }

    /// A number by name; nothing if its kind has no such number.
    pub fn get(&self, key: &str) -> Option<u64> {
        let mut kind = self.kind;
        kind.number(key).copied()
    }

    /// Where a number comes from.
    pub fn source(&self, key: &str) -> Option<&str> {
        self.sources.get(key).map(String::as_str)
    }

    /// Another value for a number, and where it comes from; or why not.
    pub fn set(&mut self, key: &str, value: u64, source: &str) -> Result<(), String> {
        let kind = self.kind.name();
        let Some(number) = self.kind.numbers().iter().find(|n| n.key == key) else {
            return Err(format!("{key} is no number of a model of kind {kind}"));
        };
        if !(number.min..=number.max).contains(&value) {
            return Err(format!("{key} = {value} is out of range: {} to {}", number.min, number.max));
        }
        if let Some(place) = self.kind.number(key) {
            *place = value;
        }
        Arc::make_mut(&mut self.sources).insert(key.into(), source.into());
        Ok(())
    }
}

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Named again when it is done; the caller's own.
    pub id: u32,
    /// What, forced or not.
    pub op: DeviceOp,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Commands whose end is known, by time and then by the order in which that became known.
#[derive(Clone, Debug, Default)]
struct Done {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    order: u64,
}

impl Done {
    fn at(&mut self, at: u64, id: u32) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, id)));
    }

    fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The first that is done by now, and when.
    fn take(&mut self, now: u64) -> Option<(u64, u32)> {
        let Reverse((at, _, id)) = *self.heap.peek()?;
        (at <= now).then(|| {
            self.heap.pop();
            (at, id)
        })
    }
}

#[derive(Clone, Debug)]
enum State {
    Flash(flash::State),
    Hdd(Box<hdd::State>),
    Network(network::State),
    Cached(Box<cached::State>),
}

impl State {
    fn new(model: &Model, size: u64, seed: u64) -> State {
        let device = match *model.kind() {
            Kind::Flash(m) => State::Flash(flash::State::new(m, seed)),
            Kind::Hdd(m) => State::Hdd(Box::new(hdd::State::new(m, size))),
            Kind::Network(m) => State::Network(network::State::new(m, seed)),
        };
        match &model.cache {
            None => device,
            Some(cache) => {
                let front = State::new(&cache.model, size, seed.rotate_left(32));
                let state = cached::State::new(front, device, cache.dirty_kib * 1024, cache.passes_flushes);
                State::Cached(Box::new(state))
            }
        }
    }

    fn arrive(&mut self, now: u64, command: &Command, factor: u64, done: &mut Done) {
        match self {
            State::Flash(state) => state.arrive(now, command, factor, done),
            State::Hdd(state) => state.arrive(now, command, factor, done),
            State::Network(state) => state.arrive(now, command, factor, done),
            State::Cached(state) => state.arrive(now, command, factor, done),
        }
    }

    /// When it has something to decide.
    fn next_decision(&self) -> Option<u64> {
        match self {
            State::Hdd(state) => state.next_decision(),
            State::Cached(state) => state.next_decision(),
            State::Flash(_) | State::Network(_) => None,
        }
    }

    fn decide(&mut self, now: u64, factor: u64, done: &mut Done) {
        match self {
            State::Hdd(state) => state.decide(now, factor, done),
            State::Cached(state) => state.decide(now, factor, done),
            State::Flash(_) | State::Network(_) => {}
        }
    }

    fn settle(&mut self) {
        match self {
            State::Flash(state) => state.settle(),
            State::Hdd(state) => state.settle(),
            State::Network(state) => state.settle(),
            State::Cached(state) => state.settle(),
        }
    }
}

/// One modelled device at work.
///
/// Time may be handed in late but never backwards: what happened before is reckoned at the time when it did.
#[derive(Clone, Debug)]
pub struct Timing {
    bus: Option<Bus>,
    /// On the bus, by the time at which they are through.
    coming: VecDeque<(u64, Command)>,
    state: State,
    done: Done,
    factor: u64,
}

impl Timing {
    /// A device of so many bytes that is alone with its bus, if it has one.
    pub fn new(model: &Model, size: u64, seed: u64) -> Timing {
        Timing::sharing(model, size, seed, &mut Buses::default())
    }

    /// A device that shares the buses of its world.
    pub fn sharing(model: &Model, size: u64, seed: u64, buses: &mut Buses) -> Timing {
        let bus = model.bus().map(|(name, numbers)| buses.get(name, numbers));
        let state = State::new(model, size, seed);
        Timing { bus, coming: VecDeque::new(), state, done: Done::default(), factor: 1 }
    }

    /// From now on everything that begins takes so many times longer.
    pub fn set_factor(&mut self, factor: u64) {
        self.factor = factor.max(1);
    }

    /// A command arrives.
    pub fn arrive(&mut self, now: u64, command: Command) {
        self.advance(now);
        let through = self.bus.as_ref().map_or(now, |bus| bus.pass(now, command.len));
        if through > now {
            self.coming.push_back((through, command));
        } else {
            self.state.arrive(now, &command, self.factor, &mut self.done);
        }
    }

    /// A command takes no time: what a run begins with was there before.
    pub fn at_once(&mut self, now: u64, id: u32) {
        self.done.at(now, id);
    }

    /// When to call [`Timing::complete`] next, unless something arrives before.
    pub fn next_event(&self) -> Option<u64> {
        [self.next_step(), self.done.next()].into_iter().flatten().min()
    }

    /// A command that is done by now, in order of time; nothing when there is no other. Always call until then.
    pub fn complete(&mut self, now: u64) -> Option<u32> {
        while let Some(at) = self.next_step()
            && at <= now
            && self.done.next().is_none_or(|done| at <= done)
        {
            self.step(at);
        }
        self.done.take(now).map(|(_, id)| id)
    }

    /// Nothing is under way any more, as after a reset.
    pub fn settle(&mut self) {
        self.coming.clear();
        self.done.heap.clear();
        self.state.settle();
        if let Some(bus) = &self.bus {
            bus.settle();
        }
    }

    /// When something happens inside that is no completion.
    fn next_step(&self) -> Option<u64> {
        [self.coming.front().map(|(at, _)| *at), self.state.next_decision()].into_iter().flatten().min()
    }

    fn step(&mut self, at: u64) {
        match self.coming.front() {
            Some(&(through, command)) if through <= at => {
                self.coming.pop_front();
                self.state.arrive(at, &command, self.factor, &mut self.done);
            }
            _ => self.state.decide(at, self.factor, &mut self.done),
        }
    }

    /// What happened before now.
    fn advance(&mut self, now: u64) {
        while let Some(at) = self.next_step()
            && at < now
        {
            self.step(at);
        }
    }
}
