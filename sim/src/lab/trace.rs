//! Recorded requests with their times, asked again.
//!
//! ```text
//!   blkparse   8,0  3  1  0.000000000  697  Q  W 223490 + 8 [kjournald]      the text that blkparse prints by itself
//!   braid      {"braid_trace":1,…}  then  [at_ns,client,"W",offset,len,"f"]  what braid trace record writes, a line each;
//!                                         [at_ns,client,"W",offset,len,"f","v"]  of a whole pool, with the volume
//! ```
//!
//! A trace is replayed at its own pace: a request goes out when it went out then, whether those before it are answered or
//! not. So a slower pool shows as latency, not as a longer run. Of blkparse's events the queued ones (Q) are taken, of a
//! trace without those the issued ones (D); of several devices the busiest.
//!
//! Who asked then asks now: a process of blkparse, a connection or a mount of braid. Each volume is replayed as a job of its
//! own, on the same clock.
//!
//! A recorder that is killed leaves a line that has no end; it is left out.
//!
//! Left out too: what was read and written; that a client would have waited.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_core::request::Content;
use braid_core::units::{BLOCK, MIB};
use serde::Deserialize;

use super::job::Direction;
use super::places::Ask;
use super::script::Step;

/// Most requests of a trace: what fits into memory with ease.
pub const REQUESTS_MAX: usize = 20_000_000;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// ns after the first.
    pub at_ns: u64,
    /// Who asked, as far as the trace tells.
    pub client: u32,
    /// Which of the trace's volumes.
    pub volume: u32,
    /// What.
    pub direction: Direction,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Force unit access.
    pub fua: bool,
    /// It said to be metadata.
    pub metadata: bool,
}

/// A trace, by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Its requests.
    pub requests: Vec<Recorded>,
    /// Names of its volumes, as far as it tells.
    pub volumes: Vec<String>,
    /// What was left out or changed, a sentence each.
    pub notes: Vec<String>,
}

impl Trace {
    /// Reads either format; what is wrong with it, in a sentence with the line.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let mut trace = match text.trim_start().starts_with('{') {
            true => own(text)?,
            false => blkparse(text)?,
        };
        if trace.requests.is_empty() {
            return Err(
                "there is no request in it: it is neither what braid trace record writes nor what blkparse prints"
                    .into(),
            );
        }
        trace.requests.sort_by_key(|request| request.at_ns);
        let first = trace.requests[0].at_ns;
        trace.requests.iter_mut().for_each(|request| request.at_ns -= first);
        Ok(trace)
    }

    /// A trace for each volume, all from the same moment on.
    pub fn by_volume(mut self) -> Vec<(String, Trace)> {
        if self.volumes.len() == 1 {
            return vec![(std::mem::take(&mut self.volumes[0]), self)];
        }
        let mut all: Vec<(String, Trace)> = self.volumes.into_iter().map(|name| (name, Trace::default())).collect();
        for request in self.requests {
            all[request.volume as usize].1.requests.push(request);
        }
        all
    }

    /// The number of the volume of this name.
    fn volume(&mut self, name: &str, known: &mut BTreeMap<String, u32>) -> u32 {
        if let Some(number) = known.get(name) {
            return *number;
        }
        let number = self.volumes.len() as u32;
        self.volumes.push(name.into());
        known.insert(name.into(), number);
        number
    }

    /// The end of the last byte it touches, in whole MiB.
    pub fn bytes_needed(&self) -> u64 {
        let end = self.requests.iter().map(|request| request.offset + request.len).max().unwrap_or(0);
        end.next_multiple_of(MIB).max(MIB)
    }

    /// From the first request to the last.
    pub fn duration_ns(&self) -> u64 {
        self.requests.last().map_or(0, |request| request.at_ns)
    }

    /// What is there before: every MiB that a request touches.
    pub(super) fn regions(&self) -> Vec<(u64, u64, Content)> {
        let mut places: BTreeMap<u64, bool> = BTreeMap::new();
        for request in self.requests.iter().filter(|request| request.len > 0) {
            for mib in request.offset / MIB..=(request.offset + request.len - 1) / MIB {
                *places.entry(mib).or_default() |= request.metadata;
            }
        }
        let content = |metadata| if metadata { Content::Metadata } else { Content::Unsaid };
        places.into_iter().map(|(mib, metadata)| (mib * MIB, (mib + 1) * MIB, content(metadata))).collect()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Request(u64, u32, String, u64, u64, #[serde(default)] String, #[serde(default)] Option<String>),
    Head {
        braid_trace: u64,
        #[serde(default)]
        volume: Option<String>,
    },
    End {
        end: End,
    },
}

#[derive(Deserialize)]
struct End {
    #[serde(default)]
    lost: u64,
}

fn own(text: &str) -> Result<Trace, String> {
    let mut trace = Trace::default();
    let (mut has_end, mut named, mut known) = (false, String::new(), BTreeMap::new());
    let unended = (!text.ends_with('\n')).then(|| text.lines().count());
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = i + 1;
        let parsed = serde_json::from_str(line);
        if parsed.is_err() && Some(number) == unended {
            break;
        }
        match parsed.map_err(|e| format!("line {number}: not a line of a braid trace: {e}"))? {
            Line::Head { braid_trace: 1, volume } => named = volume.unwrap_or_default(),
            Line::Head { braid_trace, .. } => {
                return Err(format!("line {number}: version {braid_trace} of the format; this braid reads version 1"));
            }
            Line::End { end } => {
                has_end = true;
                if end.lost > 0 {
                    trace.notes.push(format!("{} requests are missing from the trace: it could not keep up", end.lost));
                }
            }
            Line::Request(at_ns, client, op, offset, len, flags, of) => {
                let direction = match op.as_str() {
                    "R" => Direction::Read,
                    "W" | "Z" => Direction::Write,
                    "D" => Direction::Trim,
                    "F" => Direction::Sync,
                    _ => return Err(format!("line {number}: no operation {op:?} is known")),
                };
                let (fua, metadata) = (flags.contains('f'), flags.contains('m'));
                let volume = trace.volume(of.as_deref().unwrap_or(&named), &mut known);
                add(&mut trace, Recorded { at_ns, client, volume, direction, offset, len, fua, metadata }, number)?;
            }
        }
    }
    if !has_end {
        trace.notes.push("the trace was cut off: its last line is missing".into());
    }
    Ok(trace)
}

fn add(trace: &mut Trace, request: Recorded, line: usize) -> Result<(), String> {
    let end = request.offset.checked_add(request.len);
    if end.is_none_or(|end| end > 1 << 54) || request.len > 1 << 30 {
        return Err(format!("line {line}: {} bytes at byte {} cannot be", request.len, request.offset));
    }
    if trace.requests.len() >= REQUESTS_MAX {
        return Err(format!("line {line}: a trace has at most {REQUESTS_MAX} requests"));
    }
    trace.requests.push(request);
    Ok(())
}

/// A line of blkparse: device, action, and what it was about.
struct Event<'a> {
    device: &'a str,
    action: &'a str,
    request: Recorded,
    /// A flush goes before it.
    preflush: bool,
    line: usize,
}

fn blkparse(text: &str) -> Result<Trace, String> {
    let mut events = Vec::new();
    for (i, line) in text.lines().enumerate() {
        // What follows the events is a summary by CPU.
        if line.starts_with("CPU") || line.starts_with("Total") {
            break;
        }
        if let Some(event) = event(line, i + 1)? {
            events.push(event);
        }
    }
    let mut trace = Trace { volumes: vec![String::new()], ..Trace::default() };
    let mut devices: BTreeMap<&str, usize> = BTreeMap::new();
    events.iter().for_each(|event| *devices.entry(event.device).or_default() += 1);
    let Some((&device, _)) = devices.iter().max_by_key(|(_, count)| **count) else { return Ok(trace) };
    if devices.len() > 1 {
        trace.notes.push(format!("of {} devices only the busiest is replayed: {device}", devices.len()));
    }
    let action = if events.iter().any(|event| event.action == "Q") { "Q" } else { "D" };
    for event in events.iter().filter(|event| event.device == device && event.action == action) {
        if event.preflush {
            let flush = Recorded { direction: Direction::Sync, offset: 0, len: 0, fua: false, ..event.request };
            add(&mut trace, flush, event.line)?;
        }
        if event.request.direction != Direction::Sync {
            add(&mut trace, event.request, event.line)?;
        }
    }
    Ok(trace)
}

/// `8,0 3 1 0.000000000 697 Q WFSM 223490 + 8 [name]`; none for lines of other shapes and actions.
fn event(line: &str, number: usize) -> Result<Option<Event<'_>>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [device, cpu, _, time, pid, action, rwbs, rest @ ..] = &words[..] else { return Ok(None) };
    if !device.contains(',') || cpu.parse::<u32>().is_err() || !matches!(*action, "Q" | "D") {
        return Ok(None);
    }
    let wrong = |what: &str| format!("line {number}: {what} of the blkparse line is not understood: {line}");
    let at_ns = seconds(time).ok_or_else(|| wrong("the time"))?;
    let client = pid.parse().map_err(|_| wrong("the pid"))?;
    let preflush = rwbs.starts_with('F');
    let behind = rwbs.strip_prefix('F').unwrap_or(rwbs);
    let (mut offset, mut len) = (0, 0);
    if let [sector, "+", sectors, ..] = rest {
        let bytes = |word: &str| word.parse::<u64>().ok()?.checked_mul(512);
        (offset, len) = bytes(sector).zip(bytes(sectors)).ok_or_else(|| wrong("the place"))?;
    }
    let direction = match behind.chars().next() {
        Some('R') if len > 0 => Direction::Read,
        Some('W') if len > 0 => Direction::Write,
        Some('D') if len > 0 => Direction::Trim,
        // Nothing but the flush: fsync asks for a write of nothing (FWS, FWFS), drivers for FF or FN.
        _ if preflush => Direction::Sync,
        // Other commands (N).
        _ => return Ok(None),
    };
    let (fua, metadata) = (behind.get(1..).unwrap_or_default().contains('F'), behind.contains('M'));
    let request = Recorded { at_ns, client, volume: 0, direction, offset, len, fua, metadata };
    Ok(Some(Event { device, action, request, preflush, line: number }))
}

fn seconds(word: &str) -> Option<u64> {
    let (whole, part) = word.split_once('.')?;
    let digits = u32::try_from(part.len()).ok().filter(|digits| *digits <= 9)?;
    let ns = part.parse::<u64>().ok()?.checked_mul(10u64.pow(9 - digits))?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// A trace on its way.
#[derive(Debug)]
pub(super) struct TraceScript {
    trace: Arc<Trace>,
    next: usize,
    waited: bool,
}

impl TraceScript {
    pub(super) fn new(trace: Arc<Trace>) -> TraceScript {
        TraceScript { trace, next: 0, waited: false }
    }

    pub(super) fn next(&mut self) -> Option<Step> {
        let Some(first) = self.trace.requests.get(self.next) else {
            return (!std::mem::replace(&mut self.waited, true)).then_some(Step::Wait);
        };
        if !std::mem::replace(&mut self.waited, true) {
            return Some(Step::Until(first.at_ns));
        }
        self.waited = false;
        let goes_along = |request: &&Recorded| (request.at_ns, request.client) == (first.at_ns, first.client);
        let together = self.trace.requests[self.next..].iter().take_while(goes_along);
        let (client, asks): (u32, Vec<Ask>) = (first.client, together.map(ask).collect());
        self.next += asks.len();
        Some(Step::AskAs(client, asks))
    }
}

fn ask(request: &Recorded) -> Ask {
    let Recorded { direction, offset, len, fua, metadata, .. } = *request;
    let content = if metadata { Content::Metadata } else { Content::Unsaid };
    Ask { direction, offset, len, fua, content }
}

const _: () = assert!(MIB.is_multiple_of(BLOCK));

#[cfg(test)]
mod tests {
    use super::*;

    const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000005629   697  I   W 223490 + 8 [kjournald]
  8,0    3        4     0.000006158   697  D   W 223490 + 8 [kjournald]
  8,0    1        5     0.000500000  1201  Q  RM 4096 + 16 [find]
  8,0    1        6     0.000700000  1201  Q FWFSM 8192 + 8 [jbd2]
  8,0    1        7     0.000900000     0  C   W 223490 + 8 [0]
  8,0    0        8     0.001000000  1201  Q  FN [jbd2]
  8,16   0        9     0.001100000  1300  Q   R 0 + 8 [dd]
  8,0    0       10     1.500000000  1201  Q   D 2048 + 2048 [fstrim]
CPU3 (8,0):
 Reads Queued:           0,        0KiB	 Writes Queued:           1,        4KiB
";

    #[test]
    fn blkparse_is_read_as_it_prints() {
        let trace = Trace::parse(BLKPARSE).expect("a trace");
        let rows: Vec<_> = trace.requests.iter().map(|r| (r.at_ns, r.direction, r.offset, r.len)).collect();
        use Direction::*;
        let wanted = [
            (0, Write, 223490 * 512, 4096),
            (500_000, Read, 4096 * 512, 8192),
            (700_000, Sync, 0, 0),
            (700_000, Write, 8192 * 512, 4096),
            (1_000_000, Sync, 0, 0),
            (1_500_000_000, Trim, 1 << 20, 1 << 20),
        ];
        assert_eq!(rows, wanted);
        let (read, write) = (trace.requests[1], trace.requests[3]);
        assert_eq!((read.client, read.metadata, read.fua), (1201, true, false));
        assert_eq!((write.metadata, write.fua), (true, true));
        assert_eq!(trace.notes, ["of 2 devices only the busiest is replayed: 8,0"]);
        assert_eq!(trace.bytes_needed(), 110 << 20);
        let issued = Trace::parse("8,0 3 4 0.000006158 697 D W 223490 + 8 [kjournald]").expect("a trace");
        assert_eq!(issued.requests.len(), 1, "without queued events the issued ones count");
    }

    /// As blkparse prints fsync on a disk and on ext4, what drivers get of it, and commands that are no I/O.
    #[test]
    fn a_flush_of_blkparse_is_one_whatever_it_is_written_as() {
        let flushes = |rwbs: &str, place: &str| {
            let line = format!("8,0 0 1 0.000000000 34004 Q {rwbs} {place}[sync]\n8,0 0 2 0.1 34004 Q R 8 + 8 [dd]\n");
            let mut requests = Trace::parse(&line).expect("a trace").requests;
            assert_eq!(requests.pop().map(|last| last.direction), Some(Direction::Read), "{rwbs}");
            requests.iter().map(|r| (r.direction, r.len, r.fua)).collect::<Vec<_>>()
        };
        let flush = (Direction::Sync, 0, false);
        for rwbs in ["FWS", "FWFS", "FWFSM", "FF", "FN", "F"] {
            assert_eq!([flushes(rwbs, ""), flushes(rwbs, "0 + 0 ")], [[flush], [flush]], "{rwbs}");
        }
        assert_eq!(flushes("FWS", "64 + 8 "), [flush, (Direction::Write, 4096, false)], "before the write");
        assert_eq!(flushes("FWFS", "64 + 8 ")[1], (Direction::Write, 4096, true), "and after it");
        assert_eq!(flushes("WFS", "64 + 8 "), [(Direction::Write, 4096, true)]);
        for rwbs in ["N", "WS", "R"] {
            assert_eq!(flushes(rwbs, ""), [], "{rwbs} asks for nothing");
        }
    }

    #[test]
    fn our_own_format_is_read_and_what_is_missing_is_told() {
        let text = "{\"braid_trace\":1,\"volume\":\"v\"}\n[5000,1,\"W\",4096,8192,\"fm\"]\n[1000,2,\"R\",0,4096]\n";
        let trace = Trace::parse(text).expect("a trace");
        assert_eq!(trace.requests[0].at_ns, 0, "from the first on, by time");
        let second = trace.requests[1];
        assert_eq!((second.at_ns, second.client, second.fua, second.metadata), (4000, 1, true, true));
        assert!(trace.notes[0].contains("cut off"));
        let torn = Trace::parse(&format!("{text}[6000,1,\"W")).expect("what is whole of it");
        assert_eq!((torn.requests.len(), torn.notes.len()), (2, 1), "its recorder was killed");
        let whole = Trace::parse(&format!("{text}{{\"end\":{{\"lost\":7}}}}\n")).expect("a trace");
        assert!(whole.notes[0].contains("7 requests"), "{:?}", whole.notes);
    }

    #[test]
    fn each_volume_of_a_pool_is_a_trace_on_the_same_clock() {
        let text = "{\"braid_trace\":1,\"pool\":\"t\",\"volume\":null}\n[9000,1,\"W\",0,4096,\"\",\"b\"]\n\
                    [1000,2,\"R\",0,4096,\"\",\"a\"]\n[5000,1,\"R\",1048576,4096,\"\",\"b\"]\n{\"end\":{}}\n";
        let all = Trace::parse(text).expect("a trace").by_volume();
        let told = |(name, trace): &(String, Trace)| {
            let requests = trace.requests.iter().map(|r| (r.at_ns, r.client)).collect::<Vec<_>>();
            (name.clone(), requests, trace.bytes_needed() >> 20)
        };
        let told: Vec<_> = all.iter().map(told).collect();
        assert_eq!(told, [("b".into(), vec![(4000, 1), (8000, 1)], 2), ("a".into(), vec![(0, 2)], 1)]);
        let one = Trace::parse(&text.replace("\"a\"]", "\"b\"]")).expect("a trace").by_volume();
        assert_eq!(one.iter().map(|(name, trace)| (&**name, trace.requests.len())).collect::<Vec<_>>(), [("b", 3)]);
        let named = Trace::parse("{\"braid_trace\":1,\"volume\":\"v\"}\n[1,1,\"R\",0,4096,\"\"]\n").expect("a trace");
        assert_eq!(named.volumes, ["v"]);
    }

    #[test]
    fn what_is_no_trace_is_told_with_its_line() {
        let rows = [
            ("", "no request"),
            ("hello\nworld", "no request"),
            ("{\"braid_trace\":2}", "line 1: version 2"),
            ("{\"braid_trace\":1}\n[1,2,\"X\",0,1]", "line 2: no operation \"X\""),
            ("{\"braid_trace\":1}\n[1,2,\"R\",18446744073709551615,1]", "line 2: 1 bytes at byte"),
            ("{\"braid_trace\":1}\n[1,2]\n", "line 2: not a line"),
            ("8,0 3 1 soon 697 Q W 223490 + 8 [x]", "line 1: the time"),
            ("8,0 3 1 0.0 697 Q W many + 8 [x]", "line 1: the place"),
        ];
        for (text, wanted) in rows {
            let error = Trace::parse(text).expect_err(text);
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }
}
