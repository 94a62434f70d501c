//! Runs of small reads that belong together: a policy is asked about each of them once a window.
//!
//! ```text
//!   a client's reads     [4K][4K][4K] ... [4K] | [4K][4K] ...
//!   asked                 ^                      ^               after 256 KiB
//!   copy                  0   0   0  ...   0     1   1  ...
//! ```
//!
//! Merging comes after the choice of a copy and never changes it, so a policy that is asked for every piece of 4 KiB can
//! leave nothing to merge: with `roundrobin-v3` each mirror gets every other block, 256 commands a MiB. The published
//! policies were asked for what the page cache and the plug had put together; the window stands for that.
//!
//! A read of the window's size or more is always asked about. A run is known by client, chunk, column set and the byte
//! where it would go on, one entry each in a table of fixed size: whoever comes later to an entry's place takes it, and
//! the run that had it is asked about once more. What runs on several column sets has one entry in each.

use alloc::vec::Vec;

use crate::units::{ChunkId, ClientId, KIB};

/// Bytes that a policy is asked about once: one turn of the published rotation by bytes.
pub const WINDOW: u64 = 256 * KIB;

/// Entries: 256 runs at once, 10 KiB.
const ENTRIES: usize = 256;

/// Where a read starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The chunk.
    pub chunk: ChunkId,
    /// First column of the set.
    pub first: u16,
    /// Byte within the column.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    client: ClientId,
    /// Where it would go on.
    next: Place,
    copy: usize,
    /// Bytes since the policy was asked.
    bytes: u64,
}

/// The runs that are remembered.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    window: u64,
    /// Empty until the first run.
    runs: Vec<Option<Run>>,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { window: WINDOW, runs: Vec::new() }
    }
}

impl Streams {
    pub(super) fn set_window(&mut self, bytes: u64) {
        self.window = bytes;
        self.forget();
    }

    /// Every run is asked about anew.
    pub(super) fn forget(&mut self) {
        self.runs.clear();
    }

    /// The run that a read continues within its window: its copy, and the bytes since the policy was asked.
    pub(super) fn take(&mut self, client: ClientId, place: Place, len: u64) -> Option<(usize, u64)> {
        let entry = self.runs.get_mut(slot(client, place))?;
        let run = entry.filter(|run| run.client == client && run.next == place)?;
        *entry = None;
        (run.bytes.saturating_add(len) <= self.window).then_some((run.copy, run.bytes))
    }

    /// A read of this copy began at `place`, `bytes` into its window.
    pub(super) fn put(&mut self, client: ClientId, place: Place, len: u64, copy: usize, bytes: u64) {
        let bytes = bytes.saturating_add(len);
        if bytes >= self.window {
            return;
        }
        if self.runs.is_empty() {
            self.runs.resize(ENTRIES, None);
        }
        let next = Place { offset: place.offset.saturating_add(len), ..place };
        self.runs[slot(client, next)] = Some(Run { client, next, copy, bytes });
    }
}

fn slot(client: ClientId, place: Place) -> usize {
    let key =
        u64::from(client.0) << 40 ^ u64::from(place.chunk.0) << 20 ^ u64::from(place.first) << 52 ^ place.offset >> 9;
    // Fibonacci hashing (Knuth, volume 3, 6.4): the high bits of the product with 2^64 / phi.
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(3);

    fn at(offset: u64) -> Place {
        Place { chunk: ChunkId(7), first: 2, offset }
    }

    /// How many times one is asked in a run of so many reads of `len` bytes.
    fn asked(streams: &mut Streams, reads: u64, len: u64) -> u64 {
        let mut asked = 0;
        for i in 0..reads {
            let (copy, bytes) = streams.take(CLIENT, at(i * len), len).unwrap_or_else(|| {
                asked += 1;
                (asked as usize, 0)
            });
            assert_eq!(copy as u64, asked, "read {i} of {len}");
            streams.put(CLIENT, at(i * len), len, copy, bytes);
        }
        asked
    }

    #[test]
    fn one_question_a_window() {
        // bytes of a read, reads, questions
        let rows = [(4 * KIB, 256, 4), (64 * KIB, 16, 4), (96 * KIB, 8, 4), (256 * KIB, 4, 4), (1024 * KIB, 4, 4)];
        for (len, reads, expected) in rows {
            assert_eq!(asked(&mut Streams::default(), reads, len), expected, "{len}");
        }
        let mut streams = Streams::default();
        streams.set_window(0);
        assert_eq!(asked(&mut streams, 64, 4 * KIB), 64, "no window");
    }

    #[test]
    fn a_run_is_known_by_client_and_place() {
        let mut streams = Streams::default();
        streams.put(CLIENT, at(0), 4096, 1, 0);
        let other = Place { first: 0, ..at(4096) };
        let away = Place { chunk: ChunkId(8), ..at(4096) };
        for (client, place) in [(ClientId(4), at(4096)), (CLIENT, at(8192)), (CLIENT, other), (CLIENT, away)] {
            assert_eq!(streams.take(client, place, 4096), None, "{client:?} {place:?}");
        }
        assert_eq!(streams.take(CLIENT, at(4096), 4096), Some((1, 4096)));
        assert_eq!(streams.take(CLIENT, at(4096), 4096), None, "one read continues it");
        streams.put(CLIENT, at(0), 4096, 1, 0);
        streams.forget();
        assert_eq!(streams.take(CLIENT, at(4096), 4096), None);
    }
}
