//! Target `flight`: flight records, replayed. What stops the engine is a sentence of the replay and no failure: an engine
//! relies on its host, and a damaged record is none.

use braid_core::Engine;
use braid_core::control::Command;
use braid_core::flight::{Digest, Entry, MAGIC};
use braid_core::meta::superblock::{SUPERBLOCK_SIZE, Superblock};
use braid_core::request::{Content, Input, NO_BUF, Op, Output, Request};
use braid_core::units::{BLOCK, BufId, ClientId, Instant, Uuid};

use super::image::{Image, long};
use super::{Named, Sample, Target, change, pool, seeds};
use crate::lab::flight::replay;
use crate::pages;

/// Most memory for a record: what images take, as an opening is in it.
const MEMORY: usize = 256 << 20;
/// Boot of the machine, as openings of images have it.
const BOOT: Uuid = Uuid([1; 16]);
const OPENING: Uuid = Uuid([3; 16]);

pub(super) const TARGETS: &[Named] = &[("flight", || Target {
    name: "flight",
    about: "a flight record, replayed",
    corpus: corpus(),
    change: |rng, corpus| if rng.percent(70) { change::in_place(rng, corpus) } else { change::bytes(rng, corpus) },
    run: Box::new(|record| Ok(replay(record).is_ok())),
    memory: MEMORY,
})];

fn corpus() -> Vec<Sample> {
    let images = seeds::images().into_iter().filter(|image| image.name != "a-member-on-its-way-out");
    let fine = images.map(|image| Sample::fine(image.name, recorded(&Image::decode(&image.bytes))));
    let mut bytes = recorded(&Image::decode(&seeds::images()[0].bytes));
    bytes.truncate(bytes.len() / 2);
    fine.chain([Sample::damaged("the-first-half", bytes)]).collect()
}

/// An engine, and the record of what came into it.
struct Recorder {
    engine: Engine,
    now: Instant,
    digest: Digest,
    bytes: Vec<u8>,
}

/// The record of a pool that is opened and asked for this and that.
fn recorded(image: &Image) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    Entry::Boot(BOOT).encode(&mut bytes);
    let slots: Vec<Vec<u8>> = image.slots.iter().map(|slot| long(slot.clone(), SUPERBLOCK_SIZE)).collect();
    slots.iter().for_each(|slot| Entry::Superblock(slot.clone()).encode(&mut bytes));
    let superblocks = slots.iter().map(|slot| Superblock::decode(slot).expect("an engine wrote it")).collect();
    let opened = pool::assembled(superblocks, |read| {
        let found = Ok(image.read(read));
        Entry::Read(read, found.clone()).encode(&mut bytes);
        found
    });
    let opened = opened.ok().flatten().expect("an engine wrote it");
    Entry::Open(OPENING).encode(&mut bytes);
    let engine = Engine::new(opened, Instant(0), BOOT, OPENING);
    let mut recorder = Recorder { engine, now: Instant(0), digest: Digest::default(), bytes };
    recorder.ask();
    let Recorder { digest: Digest { outputs, hash }, mut bytes, .. } = recorder;
    Entry::End(outputs, hash).encode(&mut bytes);
    bytes
}

impl Recorder {
    fn ask(&mut self) {
        self.handle(Input::Clock { unix_s: 1_700_000_000 });
        let clients = self.engine.pool().volumes().filter(|volume| !volume.is_internal());
        let volumes: Vec<_> = clients.map(|volume| volume.id).collect();
        for (tag, &volume) in (0..).zip(&volumes) {
            for (op, len, buf) in
                [(Op::Write { fua: false }, 4 * BLOCK, BufId(1)), (Op::Read, BLOCK, BufId(1)), (Op::Flush, 0, NO_BUF)]
            {
                let (client, content, offset) = (ClientId(0), Content::Unsaid, 0);
                let request = Request { tag, client, volume, op, offset, len, buf, content, no_merge: false };
                self.handle(Input::Submit(request));
            }
            self.rest();
        }
        self.handle(Input::Control { tag: 0, command: Command::Checkpoint });
        self.rest();
    }

    fn handle(&mut self, input: Input) {
        Entry::Handle(self.now, input.clone()).encode(&mut self.bytes);
        self.engine.handle(self.now, input);
    }

    /// Until nothing is to be done at once. Disks answer a millisecond later, one command after the other.
    fn rest(&mut self) {
        loop {
            Entry::Poll(self.now, 1).encode(&mut self.bytes);
            let output = self.engine.poll(self.now);
            self.digest.add(&output);
            match output {
                Output::Issue(dispatch) => {
                    self.now = self.now + 1_000_000;
                    self.handle(Input::Complete { id: dispatch.id, result: Ok(()) });
                }
                Output::Compare { tag, .. } => self.handle(Input::Compared { tag, equal: true }),
                Output::Superblock { tag, .. } => self.handle(Input::Superblock { tag, generation: Some(u64::MAX) }),
                Output::Digest { tag, .. } => self.handle(Input::Digested { tag, crc: 0 }),
                Output::Page(work) => pages::work_bare(work).into_iter().for_each(|input| self.handle(input)),
                Output::Idle { .. } => break,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte at a time, everywhere behind the opening and here and there within it: nothing panics, and what is not
    /// under way is not answered.
    #[test]
    fn a_damaged_record_is_a_sentence() {
        let record = recorded(&Image::decode(&seeds::images()[0].bytes));
        replay(&record).expect("it is whole");
        let mut answers = 0;
        for at in 0..record.len() {
            if at + 1500 < record.len() && at % 499 != 0 {
                continue;
            }
            let mut damaged = record.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Err(why) = replay(&damaged) {
                assert!(why.len() > 20, "byte {at}: {why}");
                answers += u32::from(why.contains("answers a command that is not under way"));
            }
        }
        assert!(answers > 0, "an id of a command was changed");
    }
}
