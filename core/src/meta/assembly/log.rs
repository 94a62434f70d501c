//! Reading the log back: what follows the last checkpoint, and which copies of it are not what they were.
//!
//! The log ends where no copy has the next block. Three things look alike there: nothing was written yet, a power cut
//! came before the flush, and a block was damaged since. What later blocks know of flushes tells the last from the
//! others, except for the very last group of all.

use alloc::vec::Vec;

use super::marks::is_mark;
use super::{Damage, MetaRead};
use crate::meta::PAGE;
use crate::meta::journal::{self, Lsn};
use crate::meta::record::Record;
use crate::meta::superblock::Superblock;

pub(super) struct Log {
    pub(super) records: Vec<(Lsn, Record)>,
    /// Marks of write intent and of what members missed: they count though their place in the order is not known to be
    /// stable.
    pub(super) marks: Vec<Record>,
    pub(super) end: Lsn,
    pub(super) stable: Lsn,
    pub(super) next_seq: u64,
    /// Something that is gone was on stable media.
    pub(super) is_broken: bool,
    /// Some copy lacks a block that counts, or has another one there.
    pub(super) copies_differ: bool,
    /// Copies of blocks that were on stable media and are not there any more.
    pub(super) damaged: Vec<Damage>,
}

impl Log {
    fn empty(sb: &Superblock) -> Log {
        let (end, stable, next_seq) = (sb.first_lsn, sb.first_lsn, sb.log_seq);
        Log {
            records: Vec::new(),
            marks: Vec::new(),
            end,
            stable,
            next_seq,
            is_broken: false,
            copies_differ: false,
            damaged: Vec::new(),
        }
    }

    /// All that follows the checkpoint of this superblock, each block from the first copy that holds it intact.
    pub(super) fn read(sb: &Superblock, rings: &[Ring<'_>]) -> Log {
        let ring = u64::from(sb.log_blocks);
        let mut log = Log::empty(sb);
        let mut has_gap = false;
        let mut spoilt: Vec<(Lsn, Damage)> = Vec::new();
        for seq in sb.log_seq..sb.log_seq.saturating_add(ring) {
            let blocks = rings.iter().map(|r| (r, r.block(seq % ring)));
            let open = |block: &[u8]| {
                let (head, records) = journal::open(block, sb.pool).ok()?;
                (head.epoch == sb.epoch && head.seq == seq).then_some((head, records))
            };
            let claims = |block: &[u8]| journal::claims_to_be(block, sb.epoch, seq);
            let mut ours = blocks.clone().filter(|(_, block)| claims(block));
            let Some((intact, (head, records))) = ours.find_map(|(_, block)| Some((block, open(block)?))) else {
                has_gap = true;
                continue;
            };
            log.copies_differ |= blocks.clone().any(|(_, block)| block != intact);
            if has_gap {
                // Behind a gap only marks count: they are forced one by one.
                log.marks.extend(records.into_iter().filter(is_mark));
                // A gap is where a power cut came before a flush, unless somebody knew of a flush that covers it.
                log.is_broken |= head.stable > log.end;
                continue;
            }
            for (i, record) in records.into_iter().enumerate() {
                log.records.push((head.first_lsn.saturating_add(i as u64), record));
            }
            log.end = head.first_lsn.saturating_add(u64::from(head.count));
            log.stable = log.stable.max(head.stable);
            log.next_seq = seq + 1;
            // Who was away then has older blocks there, or none.
            let is_spoilt = |block: &[u8]| {
                block != intact && journal::open(block, sb.pool).is_err() && block.iter().any(|&b| b != 0)
            };
            let bad = blocks.filter(|(_, block)| is_spoilt(block));
            spoilt.extend(bad.map(|(r, _)| (log.end, Damage { place: r.place_of(seq % ring), error: None })));
        }
        // What no flush covers may have been torn.
        log.damaged = spoilt.into_iter().filter(|(end, _)| *end <= log.stable).map(|(_, damage)| damage).collect();
        log
    }
}

/// A copy of the log.
pub(super) struct Ring<'a> {
    /// What was read.
    pub(super) place: MetaRead,
    pub(super) bytes: &'a [u8],
}

impl<'a> Ring<'a> {
    fn block(&self, index: u64) -> &'a [u8] {
        let at = (index * PAGE) as usize;
        self.bytes.get(at..at + PAGE as usize).unwrap_or_default()
    }

    fn place_of(&self, index: u64) -> MetaRead {
        MetaRead { offset: self.place.offset + index * PAGE, len: PAGE, ..self.place }
    }
}
