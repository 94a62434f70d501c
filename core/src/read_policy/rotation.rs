//! Taking turns by device id.
//!
//! `roundrobin-v3` takes another device on every read: one counter for the whole pool, incremented before use.
//! `round-robin:BYTES` takes another device after so many bytes: blocks are counted as reads are admitted, whatever
//! they are for, and `blocks / blocks per turn` is the turn. Its sequence is not per file; parallel readers share it.
//!
//! **Resonance.** Both counters belong to the pool, not to the candidate set. On raid10 a sequential reader walks the
//! pairs in order; if the turn changes in step with the pairs, each pair always sees the same parity and one mirror of
//! each pair serves everything:
//!
//! ```text
//!   strip          0  1  2  3  4  5  ..      two pairs, a turn per 64 KiB read
//!   pair           0  1  0  1  0  1
//!   turn mod 2     1  0  1  0  1  0          pair 0 only ever sees 1, pair 1 only ever sees 0
//! ```
//!
//! `round-robin` at its default of four strips has it with eight pairs instead of two: whenever the number of pairs is
//! an even multiple of the strips per turn. Both stay as published; `latency` and `queue` have no counter to resonate.

use super::Candidate;
use crate::units::BLOCK;

/// One turn per read. The published counter is a signed 32-bit number that goes negative after 2^31 reads, and its
/// remainder with it: an index before the first stripe. Here the counter wraps the same way, but the remainder is the
/// one that is never negative; up to the wrap the two agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountRotation(i32);

impl CountRotation {
    /// As if so many turns had passed.
    pub fn starting_at(turns: i32) -> Self {
        CountRotation(turns)
    }

    /// Whose turn it is among `n`; 0 of none.
    pub fn next_of(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        i64::from(self.0).rem_euclid((n as i64).max(1)) as usize
    }
}

/// One turn per so many blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteRotation {
    read_blocks: u64,
}

impl ByteRotation {
    /// As if so many blocks had been read.
    pub fn starting_at(read_blocks: u64) -> Self {
        ByteRotation { read_blocks }
    }

    /// These bytes were read.
    pub fn advance(&mut self, bytes: u64) {
        self.read_blocks = self.read_blocks.wrapping_add(bytes / BLOCK);
    }

    /// Whose turn it is among `n`; 0 of none.
    pub fn turn_of(&self, n: usize, bytes_per_turn: u64) -> usize {
        let blocks_per_turn = (bytes_per_turn / BLOCK).max(1);
        (self.read_blocks / blocks_per_turn % (n as u64).max(1)) as usize
    }
}

/// Position of the candidate with the `n`-th lowest device id. Counting beats sorting: there are two to four of them, and
/// nothing is copied.
pub fn nth_by_device(candidates: &[Candidate], n: usize) -> usize {
    let key = |position: usize| (candidates[position].device, position);
    let rank = |position: usize| (0..candidates.len()).filter(|&other| key(other) < key(position)).count();
    (0..candidates.len()).find(|&position| rank(position) == n).unwrap_or(0)
}
