//! The engine's door: the one place where inputs go in and outputs come out, and what may be listened to there.
//!
//! ```text
//!   pump --handle--> [ tape: requests of clients ] [ flight record: everything ] --> Engine
//! ```
//!
//! Nobody listens: one branch an input and one an output. Whoever listens never makes the engine wait: a tape that is full
//! counts what it lost, and a flight record whose writer cannot keep up ends there, with a digest that is right up to that
//! point.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use braid_core::Engine;
use braid_core::flight::{Digest, Entry, MAGIC};
use braid_core::request::{Input, Output, Request};
use braid_core::units::{Instant, VolumeId};

/// Bytes that are written together.
const PART: usize = 64 << 10;
/// Parts that may wait for the disk: 4 MiB in all.
const PARTS_MAX: usize = 64;
/// Requests that a tape holds between two looks: 64 bytes each.
const TAPE_MAX: usize = 1 << 17;
/// A tape that nobody looks at for so long is taken out.
const FORGOTTEN_NS: u64 = 10_000_000_000;

/// The engine, and who listens.
pub(super) struct Door {
    engine: Engine,
    listens: bool,
    tape: Option<Tape>,
    flight: Option<Flight>,
}

impl Deref for Door {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Door {
    pub(super) fn new(engine: Engine, flight: Option<Flight>) -> Door {
        Door { engine, listens: flight.is_some(), tape: None, flight }
    }

    /// Another engine from now on; a flight record is of one, and ends with it.
    pub(super) fn replace(&mut self, engine: Engine) {
        (self.engine, self.flight) = (engine, None);
        self.listens = self.tape.is_some();
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input) {
        if self.listens {
            self.hear(now, &input);
        }
        self.engine.handle(now, input);
    }

    pub(super) fn poll(&mut self, now: Instant) -> Output {
        let output = self.engine.poll(now);
        if let Some(flight) = &mut self.flight {
            flight.took(now, &output);
        }
        output
    }

    #[cold]
    fn hear(&mut self, now: Instant, input: &Input) {
        if let Some(flight) = &mut self.flight {
            flight.handled(now, input);
        }
        if let (Some(tape), Input::Submit(request)) = (&mut self.tape, input) {
            tape.note(now, request);
        }
        if self.tape.as_ref().is_some_and(|tape| now.since(tape.looked_at) > FORGOTTEN_NS) {
            self.tape = None;
        }
        self.listens = self.tape.is_some() || self.flight.is_some();
    }

    /// What was noted since the last look; the first look begins, for one volume or for all.
    pub(super) fn look_at_tape(&mut self, now: Instant, volume: Option<VolumeId>, ends: bool) -> Taken {
        let tape = self.tape.get_or_insert_with(|| Tape { volume, looked_at: now, ..Tape::default() });
        if tape.volume != volume {
            *tape = Tape { volume, looked_at: now, ..Tape::default() };
        }
        tape.looked_at = now;
        let taken = Taken { noted: std::mem::take(&mut tape.noted).into(), lost: std::mem::take(&mut tape.lost) };
        if ends {
            self.tape = None;
        }
        self.listens = self.tape.is_some() || self.flight.is_some();
        taken
    }
}

/// A request on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When it came, on the pump's clock.
    pub at: Instant,
    /// The request; its buffer means nothing any more.
    pub request: Request,
}

/// What a look at a tape gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In order.
    pub noted: Vec<Noted>,
    /// Requests that came when the tape was full.
    pub lost: u64,
}

#[derive(Default)]
struct Tape {
    volume: Option<VolumeId>,
    noted: VecDeque<Noted>,
    lost: u64,
    looked_at: Instant,
}

impl Tape {
    fn note(&mut self, at: Instant, request: &Request) {
        if self.volume.is_some_and(|volume| volume != request.volume) {
            return;
        }
        match self.noted.len() < TAPE_MAX {
            true => self.noted.push_back(Noted { at, request: *request }),
            false => self.lost += 1,
        }
    }
}

/// A flight record under way. Its file is written by a thread of its own.
pub(super) struct Flight {
    part: Vec<u8>,
    /// To the thread that writes; none once the record has ended.
    writer: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    digest: Digest,
    /// Outputs of one moment that are not in the record yet.
    took: (Instant, u32),
    left: u64,
    /// Nobody waits for the engine: it is being opened, or has ended.
    may_wait: bool,
}

impl Flight {
    /// A record in that file, of at most so many bytes.
    pub(super) fn new(path: &Path, bytes_max: u64) -> Result<Flight, String> {
        let mut file = File::create(path).map_err(|e| format!("no flight record at {}: {e}", path.display()))?;
        let (writer, parts) = sync_channel::<Vec<u8>>(PARTS_MAX);
        let shown = path.display().to_string();
        let write = move || {
            for part in parts {
                if let Err(error) = file.write_all(&part) {
                    tracing::warn!("the flight record {shown} ends: {error}");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("flight".into()).spawn(write);
        let thread = Some(thread.map_err(|e| format!("no thread for a flight record: {e}"))?);
        let (part, digest, took) = (MAGIC.to_vec(), Digest::default(), (Instant(0), 0));
        Ok(Flight { part, writer: Some(writer), thread, digest, took, left: bytes_max, may_wait: true })
    }

    pub(super) fn note(&mut self, entry: &Entry) {
        if self.writer.is_none() {
            return;
        }
        entry.encode(&mut self.part);
        if self.part.len() >= PART {
            self.send();
        }
    }

    fn handled(&mut self, now: Instant, input: &Input) {
        self.may_wait = false;
        if self.writer.is_some() {
            self.polled();
            self.note(&Entry::Handle(now, input.clone()));
        }
    }

    fn took(&mut self, now: Instant, output: &Output) {
        if self.writer.is_none() {
            return;
        }
        if self.took.0 != now || self.took.1 == u32::MAX {
            self.polled();
            self.took.0 = now;
        }
        self.took.1 += 1;
        self.digest.add(output);
    }

    fn polled(&mut self) {
        let (now, count) = self.took;
        self.took.1 = 0;
        if count > 0 {
            self.note(&Entry::Poll(now, count));
        }
    }

    /// A part goes to the writer. With no room for it, in the file or on the way there, the record ends with it: a part that
    /// was lost would be a hole in it.
    fn send(&mut self) {
        let (now, count) = std::mem::replace(&mut self.took, (Instant(0), 0));
        if count > 0 {
            Entry::Poll(now, count).encode(&mut self.part);
        }
        Entry::End(self.digest.outputs, self.digest.hash).encode(&mut self.part);
        let part = std::mem::take(&mut self.part);
        let len = part.len() as u64;
        let sent = self.writer.as_ref().is_some_and(|writer| match self.may_wait {
            _ if len > self.left => false,
            true => writer.send(part).is_ok(),
            false => writer.try_send(part).is_ok(),
        });
        if !sent {
            tracing::warn!("a flight record ends here: it is full, or the disk it goes to is too slow");
            self.writer = None;
            return;
        }
        self.left -= len;
    }
}

/// The file is whole when the pool is closed.
impl Drop for Flight {
    fn drop(&mut self) {
        self.may_wait = true;
        if self.writer.is_some() {
            self.send();
        }
        self.writer = None;
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so; the record ends where it did.
            let _ = thread.join();
        }
    }
}
