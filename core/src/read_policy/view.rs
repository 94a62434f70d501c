//! The noticeboard: what a device's queue posts for the policies to read.
//!
//! Background I/O (scrub, rebuild) leaves no trace here except in what the published policies read, which counts
//! everything: the lifetime totals, and for `zfs` the commands on the device and where the last one ended. A scrub must
//! not talk a policy out of a device.

use crate::units::{DeviceId, Instant};

/// Facts about one device, posted by its queue.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView {
    /// Which.
    pub id: DeviceId,
    /// Its state allows reads.
    pub state_readable: bool,
    /// It seeks.
    pub rotational: bool,
    /// Flag of the `device` policy.
    pub read_preferred: bool,
    /// Interactive reads and writes admitted and not yet completed. Counted at admit: the waiting line included.
    pub in_flight: u32,
    /// Commands on the device now, whatever they are for; what waits in line is not among them.
    pub active: u32,
    /// End of the command that left last, whatever it was for; flushes have no end. 0 before the first.
    pub last_offset: u64,
    /// End of the last interactive I/O. Posted at admit, not at dispatch: the tail of the line is what a new neighbour
    /// would follow. `u64::MAX` before the first.
    pub head: u64,
    /// Bytes admitted one after the other, ending at `head`.
    pub run: u64,
    /// The last moment it answered anything interactive, or stopped being idle. Only means something while `in_flight`
    /// is not zero.
    pub progress: Instant,
    /// Sum of all read latencies, background included; never aged.
    pub read_ns: u64,
    /// How many reads that sums.
    pub read_ios: u64,
    /// Interactive reads of late.
    pub latency: Window,
}

impl DeviceView {
    /// A readable device that has done nothing yet.
    pub fn new(id: DeviceId, rotational: bool) -> Self {
        DeviceView {
            id,
            state_readable: true,
            rotational,
            read_preferred: false,
            in_flight: 0,
            active: 0,
            last_offset: 0,
            head: u64::MAX,
            run: 0,
            progress: Instant(0),
            read_ns: 0,
            read_ios: 0,
            latency: Window::default(),
        }
    }

    /// An I/O joined the device's line.
    pub fn admitted(&mut self, now: Instant, offset: u64, len: u64, interactive: bool) {
        if !interactive {
            return;
        }
        if self.in_flight == 0 {
            self.progress = now;
        }
        self.in_flight = self.in_flight.saturating_add(1);
        self.run = if offset == self.head { self.run.saturating_add(len) } else { len };
        self.head = offset.saturating_add(len);
    }

    /// A read came back after `latency_ns` in line and on the device. Failed reads come back through
    /// [`completed_other`](Self::completed_other): a quick error is no speed.
    pub fn completed_read(&mut self, now: Instant, latency_ns: u64, interactive: bool) {
        self.read_ns = self.read_ns.saturating_add(latency_ns);
        self.read_ios = self.read_ios.saturating_add(1);
        if interactive {
            self.latency.record(now, latency_ns, self.in_flight);
        }
        self.completed_other(now, interactive);
    }

    /// Anything else came back: a write, a failed read.
    pub fn completed_other(&mut self, now: Instant, interactive: bool) {
        if interactive {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.progress = now;
        }
    }
}

/// Latencies of the last one to two [`Window::BUCKET_NS`].
///
/// ```text
///   |-- forgotten --|-- previous --|-- current .. now
/// ```
///
/// The newest news stays until newer news comes: an idle device keeps what was last known of it, and one fresh sample
/// after a silence replaces all of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    started: Instant,
    current: Bucket,
    previous: Bucket,
    /// Sum of latencies over sum of line lengths, kept ready since choosing is hotter than completing; 0 = no sample.
    service_ns: u64,
    floor_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    reads: u64,
    latency_ns: u64,
    /// Sum over the reads of the line each left behind, itself included.
    line: u64,
    /// Smallest latency.
    floor_ns: u64,
}

impl Window {
    /// Span of one bucket. Short enough that a device which recovers or sickens is seen within a fifth of a second,
    /// long enough that a disk at 100 reads per second has ten samples in it.
    pub const BUCKET_NS: u64 = 100_000_000;

    /// A read took so long, and at its end so many were in flight, itself included.
    pub fn record(&mut self, now: Instant, latency_ns: u64, in_flight: u32) {
        let age_ns = now.since(self.started);
        if age_ns >= Self::BUCKET_NS {
            let still_recent = age_ns < 2 * Self::BUCKET_NS;
            self.previous = if still_recent { self.current } else { Bucket::default() };
            self.current = Bucket::default();
            self.started = now;
        }
        self.current.add(latency_ns.max(1), u64::from(in_flight.max(1)));
        let both = self.both();
        self.service_ns = (both.latency_ns / both.line.max(1)).max(1);
        self.floor_ns = both.floor_ns;
    }

    /// Whether there is any sample.
    pub fn is_measured(&self) -> bool {
        self.service_ns != 0
    }

    /// What each I/O in line costs, as far as latencies tell; 0 without a sample.
    pub fn service_ns(&self) -> u64 {
        self.service_ns
    }

    /// The quickest of late; 0 without a sample.
    pub fn floor_ns(&self) -> u64 {
        self.floor_ns
    }

    /// Mean latency of late, for reports; 0 without a sample.
    pub fn mean_ns(&self) -> u64 {
        let both = self.both();
        both.latency_ns.checked_div(both.reads).unwrap_or(0)
    }

    fn both(&self) -> Bucket {
        let (a, b) = (self.current, self.previous);
        Bucket {
            reads: a.reads.saturating_add(b.reads),
            latency_ns: a.latency_ns.saturating_add(b.latency_ns),
            line: a.line.saturating_add(b.line),
            floor_ns: if b.reads == 0 { a.floor_ns } else { a.floor_ns.min(b.floor_ns) },
        }
    }
}

impl Bucket {
    fn add(&mut self, latency_ns: u64, line: u64) {
        self.floor_ns = if self.reads == 0 { latency_ns } else { self.floor_ns.min(latency_ns) };
        self.reads = self.reads.saturating_add(1);
        self.latency_ns = self.latency_ns.saturating_add(latency_ns);
        self.line = self.line.saturating_add(line);
    }
}
