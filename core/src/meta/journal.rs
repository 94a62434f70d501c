//! The log: records in, sealed blocks out. It knows sequence numbers and nothing of devices.
//!
//! ```text
//!   append -> pending ---- take_group ----> in flight ---- group_written ----> written
//!                                                                                |  claim, after a flush
//!                                                                                v
//!                                                                              stable
//! ```
//!
//! Records are numbered by *lsn*, blocks by *seq*; the ring position of a block is `seq % blocks`. One group is in
//! flight at a time: while it is, records gather for the next one (group commit).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::PAGE;
use super::codec::{Malformed, Reader, Writer, crc32c, crc32c_without};
use super::record::Record;
use crate::units::Uuid;

/// A position among all records ever logged: everything below has happened.
pub(crate) type Lsn = u64;

const MAGIC: u32 = u32::from_le_bytes(*b"BRlg");
const HEADER: usize = 64;
const PAYLOAD: usize = PAGE as usize - HEADER;

/// Most blocks of one group: 256 KiB, one device command.
const GROUP_MAX: usize = 64;

/// The head of a log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) epoch: u32,
    pub(crate) seq: u64,
    pub(crate) first_lsn: Lsn,
    /// Data behind records below is on stable media.
    pub(crate) stable: Lsn,
    pub(crate) count: u16,
}

fn seal(pool: Uuid, head: BlockHead, payload: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(MAGIC).u32(0).uuid(pool).u32(head.epoch).u64(head.seq).u64(head.first_lsn).u64(head.stable);
    w.u16(head.count).u16(payload.len() as u16);
    let mut bytes = w.bytes;
    bytes.resize(HEADER, 0);
    bytes.extend_from_slice(payload);
    bytes.resize(PAGE as usize, 0);
    let crc = crc32c(&bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whether a block begins as one of this epoch and number does: worth a closer look.
pub(crate) fn claims_to_be(block: &[u8], epoch: u32, seq: u64) -> bool {
    let mut r = Reader::new(block);
    let head = (|| {
        let magic = r.u32()?;
        r.u32()?;
        r.uuid()?;
        Ok::<_, Malformed>((magic, r.u32()?, r.u64()?))
    })();
    head == Ok((MAGIC, epoch, seq))
}

/// Head and records of a block, if it is one of this pool.
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(crate) fn open(block: &[u8], pool: Uuid) -> Result<(BlockHead, Vec<Record>), Malformed> {
    let mut r = Reader::new(block);
    if r.u32()? != MAGIC || block.len() != PAGE as usize {
        return Err(Malformed);
    }
    let crc = r.u32()?;
    if crc32c_without(block, 4) != crc || r.uuid()? != pool {
        return Err(Malformed);
    }
    let head = BlockHead { epoch: r.u32()?, seq: r.u64()?, first_lsn: r.u64()?, stable: r.u64()?, count: r.u16()? };
    let used = usize::from(r.u16()?);
    let mut r = Reader::new(block.get(HEADER..).ok_or(Malformed)?);
    let mut r = Reader::new(r.take(used)?);
    let mut records = Vec::new();
    for _ in 0..head.count {
        records.push(Record::decode(&mut r)?);
    }
    if r.is_empty() { Ok((head, records)) } else { Err(Malformed) }
}

#[derive(Clone, Default)]
struct Pending {
    count: u16,
    payload: Vec<u8>,
}

/// Blocks to write at one place of the ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First block within the ring.
    pub(crate) block: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Journal {
    pool: Uuid,
    epoch: u32,
    /// Blocks of the ring.
    blocks: u64,
    /// Blocks from here on are still needed.
    tail: u64,
    /// The next block to write.
    next: u64,
    pending: VecDeque<Pending>,
    /// Number of the first pending record.
    pending_lsn: Lsn,
    appended: Lsn,
    written: Lsn,
    stable: Lsn,
    /// The group in flight: everything below will be written, everything below the second will be stable.
    in_flight: Option<(Lsn, Lsn)>,
}

impl Journal {
    pub(crate) fn new(pool: Uuid, epoch: u32, blocks: u64, seq: u64, lsn: Lsn) -> Journal {
        Journal {
            pool,
            epoch,
            blocks,
            tail: seq,
            next: seq,
            pending: VecDeque::new(),
            pending_lsn: lsn,
            appended: lsn,
            written: lsn,
            stable: lsn,
            in_flight: None,
        }
    }

    /// Notes a change; it is safe from a crash of the process once `written()` is above the returned lsn, from a
    /// power cut once `stable()` is.
    pub(crate) fn append(&mut self, record: &Record) -> Lsn {
        let mut w = Writer::default();
        record.encode(&mut w);
        assert!(w.bytes.len() <= PAYLOAD, "a record of {} bytes", w.bytes.len());
        match self.pending.back_mut() {
            Some(block) if block.payload.len() + w.bytes.len() <= PAYLOAD && block.count < u16::MAX => {
                block.payload.extend_from_slice(&w.bytes);
                block.count += 1;
            }
            _ => self.pending.push_back(Pending { count: 1, payload: w.bytes }),
        }
        self.appended += 1;
        self.appended - 1
    }

    pub(crate) fn appended(&self) -> Lsn {
        self.appended
    }
    pub(crate) fn written(&self) -> Lsn {
        self.written
    }
    pub(crate) fn stable(&self) -> Lsn {
        self.stable
    }
    pub(crate) fn next_seq(&self) -> u64 {
        self.next
    }
    /// Blocks of the ring that a checkpoint would free.
    pub(crate) fn blocks_used(&self) -> u64 {
        self.next - self.tail
    }
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The next group, if none is in flight, there is something to say and room to say it. `claim` says that the data
    /// behind records below it is on stable media now; a claim may need a block of its own.
    pub(crate) fn take_group(&mut self, claim: Option<Lsn>) -> Vec<Run> {
        let room = (self.blocks - self.blocks_used()) as usize;
        let claim = claim.filter(|&c| c > self.stable);
        if self.in_flight.is_some() || room == 0 || (self.pending.is_empty() && claim.is_none()) {
            return Vec::new();
        }
        let stable = claim.unwrap_or(self.stable);
        let mut runs: Vec<Run> = Vec::new();
        for i in 0..room.min(GROUP_MAX) {
            let pending = match self.pending.pop_front() {
                Some(pending) => pending,
                None if i == 0 => Pending::default(),
                None => break,
            };
            let head = BlockHead {
                epoch: self.epoch,
                seq: self.next,
                first_lsn: self.pending_lsn,
                stable,
                count: pending.count,
            };
            let bytes = seal(self.pool, head, &pending.payload);
            let block = self.next % self.blocks;
            match runs.last_mut() {
                Some(run) if block != 0 => run.bytes.extend_from_slice(&bytes),
                _ => runs.push(Run { block, bytes }),
            }
            self.pending_lsn += u64::from(pending.count);
            self.next += 1;
        }
        self.in_flight = Some((self.pending_lsn, stable));
        runs
    }

    /// The group is on at least one copy of the log.
    pub(crate) fn group_written(&mut self) {
        let (written, stable) = self.in_flight.take().expect("a group is in flight");
        // A checkpoint that was durable meanwhile may have said more.
        self.written = self.written.max(written);
        self.stable = self.stable.max(stable);
    }

    /// The ring is another one now, of so many blocks; nothing in the old one is needed.
    pub(crate) fn set_blocks(&mut self, blocks: u64) {
        debug_assert!(self.tail == self.next && self.in_flight.is_none(), "a ring moves between two groups");
        self.blocks = blocks;
    }

    /// A checkpoint that holds everything below `lsn` is durable; blocks before `seq` are free.
    pub(crate) fn checkpointed(&mut self, lsn: Lsn, seq: u64) {
        self.tail = seq;
        self.stable = self.stable.max(lsn);
        self.written = self.written.max(lsn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ChunkId, VolumeId};

    fn record(i: u32) -> Record {
        Record::VolumeRemove(VolumeId(i))
    }

    #[test]
    fn groups_wrap_around_the_ring_and_read_back_in_order() {
        let pool = Uuid([1; 16]);
        let mut journal = Journal::new(pool, 7, 8, 6, 100);
        let mut ring = std::vec![std::vec![0u8; PAGE as usize]; 8];
        let per_block = PAYLOAD / 5;
        for i in 0..4 * per_block as u32 {
            assert_eq!(journal.append(&record(i)), 100 + u64::from(i));
        }
        let runs = journal.take_group(None);
        assert_eq!(runs.iter().map(|r| (r.block, r.bytes.len())).collect::<Vec<_>>(), [(6, 8192), (0, 8192)]);
        assert!(journal.take_group(Some(120)).is_empty(), "one group at a time");
        for run in runs {
            for (i, block) in run.bytes.chunks(4096).enumerate() {
                ring[run.block as usize + i] = block.to_vec();
            }
        }
        journal.group_written();
        assert_eq!((journal.written(), journal.stable()), (100 + 4 * per_block as u64, 100));
        let claim = journal.take_group(Some(journal.written()));
        assert_eq!(claim.len(), 1, "a claim gets a block of its own");
        journal.group_written();
        assert_eq!(journal.stable(), journal.written());
        let mut lsn = 100;
        for seq in 6..10u64 {
            let (head, records) = open(&ring[seq as usize % 8], pool).unwrap();
            assert_eq!((head.epoch, head.seq, head.first_lsn), (7, seq, lsn));
            lsn += records.len() as u64;
        }
    }

    #[test]
    fn a_full_ring_waits_for_the_checkpoint() {
        let mut journal = Journal::new(Uuid::default(), 1, 4, 0, 0);
        for _ in 0..4 {
            journal.append(&record(1));
            assert_eq!(journal.take_group(None).len(), 1);
            journal.group_written();
        }
        journal.append(&record(2));
        assert!(journal.take_group(None).is_empty());
        journal.checkpointed(4, 4);
        assert_eq!(journal.take_group(None).len(), 1);
    }

    #[test]
    fn one_flipped_bit_anywhere_spoils_a_block() {
        let pool = Uuid([3; 16]);
        let mut journal = Journal::new(pool, 1, 8, 0, 0);
        journal.append(&Record::ChunkRemove(ChunkId(9)));
        let block = journal.take_group(None).remove(0).bytes;
        assert!(open(&block, pool).is_ok() && open(&block, Uuid([4; 16])).is_err());
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bad, pool).is_err(), "bit {bit}");
        }
    }
}
