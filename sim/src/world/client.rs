//! The client's side: requests and commands go in, answers come out and are judged by the oracle.
//!
//! A sector of a write is a stamp that no other write shares: its tag and its place.

use braid_core::control::{Command, ControlError, Done, VolumeClass};
use braid_core::request::{Content as Tag, Input, NO_BUF, Op, Request, RequestError};
use braid_core::units::{BLOCK, BufId, ClientId, VolumeId};

use super::{Asked, Missed, World};
use crate::checker::{Checker, hold};
use crate::disk::SECTOR;

/// Answers of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The tag of the request.
    pub tag: u64,
    /// The reply.
    pub result: Result<(), RequestError>,
    /// For reads.
    pub hole: bool,
}

impl World {
    /// Puts a request into the present batch; the tag. Offsets are multiples of 512.
    pub fn submit(&mut self, client: u32, volume: VolumeId, op: Op, offset: u64, len: u64, content: Tag) -> u64 {
        if !self.keeps_payload {
            return self.submit_bare(Request {
                tag: 0,
                client: ClientId(client),
                volume,
                op,
                offset,
                len,
                buf: NO_BUF,
                content,
                no_merge: false,
            });
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let (first, last) = (offset / BLOCK * BLOCK, (offset + len).next_multiple_of(BLOCK));
        let (start, end) = (offset / SECTOR, (offset + len) / SECTOR);
        let has_payload = matches!(op, Op::Read | Op::Write { .. });
        let buf = if has_payload { BufId(tag as u32) } else { NO_BUF };
        if has_payload {
            // What a careless server would leave in it.
            let mut memory = vec![0xdead_beef_dead_beef; ((last - first) / SECTOR) as usize];
            if op != Op::Read {
                for sector in start..end {
                    memory[(sector - first / SECTOR) as usize] = stamp(tag, sector);
                }
            }
            self.buffers.insert(buf.0, memory);
        }
        match op {
            Op::Read => self.oracle.read(tag, volume.0, start, end),
            Op::Write { .. } => self.oracle.change(tag, volume.0, start, end, |sector| stamp(tag, sector)),
            Op::Flush => {}
            Op::Discard | Op::WriteZeroes { .. } => {
                let (start, end) = changed_sectors(op, offset, len);
                self.oracle.change(tag, volume.0, start, end, |_| 0);
            }
        }
        if let (Some(tape), true) = (&mut self.tape, op != Op::Read) {
            let mark = self.oracle.mark();
            tape.asked(&self.oracle, |oracle| match op {
                Op::Flush => oracle.flushed(mark),
                Op::Write { fua: true } => oracle.changed(tag, volume.0, start, end, true, true),
                _ => {}
            });
        }
        let no_merge = self.no_merge > 0 && self.rng.percent(self.no_merge);
        let request = Request { tag, client: ClientId(client), volume, op, offset, len, buf, content, no_merge };
        self.asked.insert(tag, Asked { request, op: tag, mark: self.oracle.mark() });
        self.batch.push(Input::Submit(request));
        tag
    }

    /// Puts a command into the present batch; the tag.
    pub fn command(&mut self, command: Command) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.batch.push(Input::Control { tag, command });
        tag
    }

    /// Requests that no answer came to yet.
    pub fn outstanding(&self) -> usize {
        self.asked.len()
    }

    /// Memory that the engine asked for, and has still.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch.iter().map(|id| self.buffers[id].len() as u64 * SECTOR).sum()
    }

    /// Runs a request to its answer.
    pub fn run(&mut self, volume: VolumeId, op: Op, offset: u64, len: u64) -> Result<(), RequestError> {
        let tag = self.submit(0, volume, op, offset, len, Tag::Unsaid);
        self.run_until(|w| !w.asked.contains_key(&tag));
        let at = self.answers.iter().position(|a| a.tag == tag).expect("it was answered");
        self.answers.swap_remove(at).result
    }

    /// Runs a command to its answer.
    pub fn control(&mut self, command: Command) -> Result<Done, ControlError> {
        let tag = self.command(command);
        self.run_until(|w| w.done.iter().any(|d| d.0 == tag));
        let at = self.done.iter().position(|d| d.0 == tag).expect("the command was answered");
        self.done.swap_remove(at).1
    }

    /// Makes a volume.
    pub fn volume(&mut self, name: &str, size: u64, class: VolumeClass) -> VolumeId {
        match self.control(Command::CreateVolume { name: name.into(), size, class }) {
            Ok(Done::Volume(id)) => {
                self.oracle.create(id.0);
                id
            }
            other => panic!("creating {name}: {other:?}"),
        }
    }

    /// A write was answered well: its copies that failed are stale from now on.
    fn believed(&mut self, volume: VolumeId, start: u64, end: u64) {
        if self.failed.is_empty() || !self.oracle.knows(volume.0) {
            return;
        }
        for block in (start..end).step_by(BLOCK as usize) {
            let places = self.places(volume, block);
            let failed =
                places.into_iter().map(|(d, at)| (d.0, at / BLOCK)).filter(|place| self.failed.contains(place));
            let since = self.next_tag - 1;
            let missed = Missed { since, at: self.now, volume, block };
            self.stale.extend(failed.map(|place| (place, missed)).collect::<Vec<_>>());
        }
    }

    pub(super) fn reply(&mut self, answer: Answer) {
        let asked = self.asked.remove(&answer.tag);
        hold!(Reply, asked.is_some(), "nobody waits for {answer:?}");
        let asked = asked.expect("just seen");
        if !self.keeps_payload {
            return self.answers.push(answer);
        }
        let Request { volume, op, offset, len, buf, .. } = asked.request;
        let memory = self.buffers.remove(&buf.0);
        let fine = answer.result.is_ok();
        match op {
            Op::Read => {
                let memory = memory.expect("a read has a buffer");
                let skip = (offset % BLOCK / SECTOR) as usize;
                let values = &memory[skip..skip + (len / SECTOR) as usize];
                if fine && answer.hole && values.iter().any(|&v| v != 0) {
                    self.wrong.push(Checker::Content.says(format_args!("a hole is not zero: {:?}", asked.request)));
                }
                if let Err(why) = self.oracle.was_read(answer.tag, fine.then_some(values)) {
                    self.wrong.push(Checker::Content.says(format_args!("at {} ns: {why}", self.now)));
                }
            }
            Op::Flush => {
                if fine {
                    self.oracle.flushed(asked.mark);
                }
            }
            Op::Write { .. } | Op::Discard | Op::WriteZeroes { .. } => {
                let (start, end) = changed_sectors(op, offset, len);
                let fua = matches!(op, Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. });
                self.oracle.changed(asked.op, volume.0, start, end, fine, fua);
                if fine && matches!(op, Op::Write { .. }) {
                    self.believed(volume, offset / BLOCK * BLOCK, offset + len);
                }
            }
        }
        let tells = matches!(op, Op::Flush | Op::Write { fua: true } | Op::WriteZeroes { fua: true, .. });
        if let (Some(tape), true) = (&mut self.tape, fine && tells) {
            tape.answered(&self.oracle);
        }
        self.answers.push(answer);
    }
}

fn stamp(tag: u64, sector: u64) -> u64 {
    tag << 32 | (sector & 0xffff_ffff)
}

/// Sectors whose content a change decides: whole blocks only, where it makes holes without writing.
fn changed_sectors(op: Op, offset: u64, len: u64) -> (u64, u64) {
    match op {
        Op::Discard => {
            let start = offset.next_multiple_of(BLOCK);
            let end = ((offset + len) / BLOCK * BLOCK).max(start);
            (start / SECTOR, end / SECTOR)
        }
        _ => (offset / SECTOR, (offset + len) / SECTOR),
    }
}
