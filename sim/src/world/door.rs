//! The door of the engine: inputs with their time, and everything it wants until it rests.

use std::collections::BTreeMap;

use braid_core::control::Done;
use braid_core::request::{Copy, Event, Expected, Input, IoError, NO_BUF, Output, PageWork, RequestError};
use braid_core::units::{BufRange, DeviceId, Instant, IoId};

use super::client::Answer;
use super::life::config_of;
use super::{World, mix};
use crate::checker::hold;
use crate::combine;
use crate::disk::SECTOR;
use crate::pages::{self, is_page};
use crate::sabotage::Sabotage;

impl World {
    pub(super) fn input(&mut self, input: Input) {
        mix(&mut self.hash, self.now);
        match &input {
            Input::Submit(r) => [1, r.tag, r.offset, r.len].iter().for_each(|&n| mix(&mut self.hash, n)),
            Input::Complete { id, result } => {
                [2, u64::from(id.0), u64::from(result.is_ok())].iter().for_each(|&n| mix(&mut self.hash, n));
            }
            Input::Intact { id } => [2, u64::from(id.0), 2].iter().for_each(|&n| mix(&mut self.hash, n)),
            Input::Control { tag, .. } => mix(&mut self.hash, tag ^ 3),
            Input::Compared { tag, equal } => mix(&mut self.hash, tag << 1 ^ u64::from(*equal) ^ 6 << 50),
            Input::Verified { tag, bad } => mix(&mut self.hash, tag << 1 ^ u64::from(*bad) ^ 7 << 50),
            Input::Digested { tag, crc } => mix(&mut self.hash, tag << 1 ^ u64::from(*crc) ^ 8 << 50),
            Input::Superblock { tag, generation } => mix(&mut self.hash, tag ^ generation.unwrap_or(0) << 1 ^ 9 << 50),
            Input::Clock { unix_s } => mix(&mut self.hash, *unix_s),
            Input::Tick => mix(&mut self.hash, 4),
        }
        let is_control = matches!(input, Input::Control { .. });
        self.engine.as_mut().expect("the engine is up").handle(Instant(self.now), input);
        if is_control {
            let engine = self.engine.as_ref().expect("the engine is up");
            for (i, watch) in self.watches.iter_mut().enumerate() {
                watch.configure(config_of(engine, DeviceId(i as u32 + 1)));
                if self.sabotage == Some(Sabotage::IgnoreLimits) {
                    watch.expect_one();
                }
            }
        }
    }

    /// Hands over the batch and takes what the engine wants, up to idle.
    pub fn drain(&mut self) {
        for input in std::mem::take(&mut self.batch) {
            self.input(input);
        }
        loop {
            let output = self.engine.as_mut().expect("the engine is up").poll(Instant(self.now));
            self.outputs += 1;
            match output {
                Output::Issue(dispatch) => self.issue(dispatch),
                Output::Copy(copy) => self.copy(copy),
                Output::Combine(work) => {
                    if self.keeps_payload {
                        work.addends.iter().for_each(|addend| self.check_current(addend.from));
                        work.to.iter().flatten().for_each(|to| self.renew(*to));
                        let made = combine::made(&work, |range| self.memory(range).to_vec());
                        made.into_iter().for_each(|(to, stamps)| self.memory(to).copy_from_slice(&stamps));
                    }
                }
                Output::Reply(reply) => {
                    mix(&mut self.hash, reply.tag ^ u64::from(reply.result.is_ok()) << 40);
                    let mut answer = Answer { tag: reply.tag, result: reply.result, hole: reply.hole };
                    if self.sabotage == Some(Sabotage::FailForNothing) && answer.tag.is_multiple_of(20) {
                        answer.result = Err(RequestError::Io);
                    }
                    self.reply(answer);
                    if self.sabotage == Some(Sabotage::ReplyTwice) {
                        self.reply(answer);
                    }
                }
                Output::Done { tag, result } => {
                    mix(&mut self.hash, tag ^ u64::from(result.is_ok()) << 41);
                    if let Some(tape) = &mut self.tape {
                        let id = if let Ok(Done::Volume(id)) = &result { Some(id.0) } else { None };
                        if tape.books.end(tag, result.is_ok(), id) {
                            tape.answered(&self.oracle);
                        }
                    }
                    self.done.push((tag, result));
                }
                Output::Page(work) => {
                    if let PageWork::Sum { data, .. } = work {
                        self.check_current(data);
                    }
                    self.compared.1 += u64::from(matches!(work, PageWork::Verify { .. }));
                    let answer = match self.keeps_payload {
                        true => {
                            let World { pages, buffers, .. } = self;
                            pages.work(work, |range| memory_in(buffers, range))
                        }
                        false => pages::work_bare(work),
                    };
                    answer.into_iter().for_each(|answer| self.input(answer));
                }
                Output::Compare { tag, a, b } => {
                    let turned = self.sabotage == Some(Sabotage::CompareWrongly);
                    let equal = !self.keeps_payload || (self.memory(a).to_vec() == self.memory(b)) != turned;
                    self.input(Input::Compared { tag, equal });
                }
                Output::Digest { tag, data } => {
                    let mut stamps = Vec::new();
                    let data = if self.keeps_payload { data } else { Vec::new() };
                    for range in data {
                        stamps.extend_from_slice(self.memory(range));
                    }
                    let crc = combine::digest(&stamps);
                    self.input(Input::Digested { tag, crc });
                }
                Output::Superblock { tag, slot, pool, device } => {
                    let World { records, buffers, .. } = self;
                    let generation = match self.keeps_payload {
                        true => records.superblock(memory_in(buffers, slot), pool, device),
                        false => Some(u64::MAX),
                    };
                    self.input(Input::Superblock { tag, generation });
                }
                Output::Event(event) => {
                    mix(&mut self.hash, 5);
                    self.check_difference(&event);
                    // Pulled: it comes back without its cache.
                    if self.may_lose_caches && matches!(event, Event::DeviceFailed { error: IoError::Gone, .. }) {
                        self.oracle.cache_lost();
                    }
                    self.events.push(event);
                }
                Output::Idle { until } => {
                    self.wake = until.map(|at| at.0);
                    return self.rest();
                }
            }
        }
    }

    /// What a command that was well comes back as: a read is compared at once, where its checksums are known.
    pub(super) fn read_done(&mut self, id: IoId) -> Input {
        let World { engine, pages, buffers, keeps_payload, .. } = self;
        let is_right =
            |expected: Expected| !*keeps_payload || pages.wrong(&expected, memory_in(buffers, expected.data)) == 0;
        match engine.as_ref().expect("the engine is up").expects(id, is_right) {
            true => {
                self.compared.0 += 1;
                Input::Intact { id }
            }
            false => Input::Complete { id, result: Ok(()) },
        }
    }

    fn rest(&mut self) {
        let engine = self.engine.as_ref().expect("the engine is up");
        self.watches.iter_mut().for_each(|watch| watch.rest(engine, self.wake.is_some()));
        // A scrub that gathers does so turn by turn, and has nothing to show for it until the last; one that was ended
        // drops its pieces one by one.
        let runs = |state| state == braid_core::scrub::State::Running;
        let gathers = runs(engine.pool().scrub.state) || engine.pool().job.as_ref().is_some_and(|job| runs(job.state));
        let in_vain = self.outputs == 1 && !gathers && self.wake.is_some_and(|at| at <= self.now);
        self.idle_ticks = if in_vain { self.idle_ticks + 1 } else { 0 };
        hold!(Drain, self.idle_ticks < 200, "it wants to be woken at {:?}, and then does nothing", self.wake);
        self.outputs = 0;
    }

    fn copy(&mut self, copy: Copy) {
        if !self.keeps_payload {
            return;
        }
        match copy {
            Copy::Zero(range) if is_page(range.buf) => self.pages.zero(range),
            Copy::Zero(range) => {
                self.renew(range);
                self.memory(range).fill(0);
            }
            Copy::Move { from, to } if is_page(from.buf) => self.pages.copy(from.buf, to.buf),
            Copy::Move { from, to } => {
                self.check_current(from);
                self.renew(to);
                let stamps = self.memory(from).to_vec();
                self.memory(to).copy_from_slice(&stamps);
            }
            Copy::Scratch { buf, len } => {
                assert!(buf != NO_BUF && self.scratch.insert(buf.0), "scratch {buf} is in use");
                // Other rubbish each time: what was not read must not look alike.
                let rubbish = 0xdead_beef_0000_0000 | u64::from(buf.0);
                self.buffers.insert(buf.0, vec![rubbish; (u64::from(len) / SECTOR) as usize]);
            }
            Copy::Drop(id) if is_page(id) => self.pages.drop(id),
            Copy::Drop(id) => {
                assert!(self.scratch.remove(&id.0), "scratch {id} is not in use");
                self.buffers.remove(&id.0);
                self.outdated.retain(|block| block.0 != id.0);
            }
        }
    }

    pub(super) fn memory(&mut self, range: BufRange) -> &mut [u64] {
        memory_in(&mut self.buffers, range)
    }
}

fn memory_in(buffers: &mut BTreeMap<u32, Vec<u64>>, range: BufRange) -> &mut [u64] {
    let memory = buffers.get_mut(&range.buf.0).unwrap_or_else(|| panic!("no buffer for {range:?}"));
    let (from, len) = (u64::from(range.offset), u64::from(range.len));
    assert!(from.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR));
    &mut memory[(from / SECTOR) as usize..((from + len) / SECTOR) as usize]
}
