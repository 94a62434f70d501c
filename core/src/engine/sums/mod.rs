//! Checksums at work: made at every write, compared at every read, kept in pages of a volume of the pool's own.
//!
//! ```text
//!   write   data on all copies --> page there? else load --> sums put in (page dirty) --> map, log, reply
//!   read    data --> page there? else load --> verified --> reply
//!                                                 '- wrong: another copy; none left: the unit is mended, and says
//!   page    load all copies, each sector from the best --> in memory --> written when a checkpoint or a full cache says so
//! ```
//!
//! The home of a page follows from the chunk and the unit: page `i` of chunk `c` is block `c * SPAN + i` of volume
//! [`SUMS_VOLUME`], which is placed, replicated and scrubbed like any other of class metadata and has no sums itself. Its
//! units are reserved when the chunk comes to be, so that no write fails for want of room for its sums. A page is written
//! to its place for the first time when a sum in it is; until then its block has no bit in the map, and nothing to be read.
//!
//! Outside marked regions what a page says, at home, agrees with what every copy holds that is not behind. A region is marked
//! before anything is written over (see [`super::intent`]), and by the record that makes a first write visible: the opening
//! marks what it finds such records of. It is cleaned when the sums of what was written there are at home. So a page may go
//! home when it likes, and a page that was torn on the way is as good as the old one or the new one.
//!
//! In a row that is live this holds of blocks that nobody wrote as well, since others are made with them: a place begins with
//! the sums of zeros, if its row is about to become live, or with none, and a mend after a crash leaves none of what is not
//! written. Of a free place nothing is promised, nor of one that a volume without checksums has: there nobody asks.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | which page; who waits for one |
//! | `cache.rs` | pages in memory: loaded, evicted |
//! | `write_back.rs` | pages on their way to their home |
//! | `room.rs` | their units, reserved and given back |
//! | `scrub.rs` | what a scrub asks |
//! | `verify.rs` | reads compared with their sums |
//! | `update.rs` | sums of what was written |

mod cache;
mod room;
mod scrub;
mod update;
mod verify;
mod write_back;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use self::cache::Page;
pub(super) use self::cache::{BESIDE, memory};
pub(super) use self::scrub::Part;
use self::verify::Check;
pub(super) use self::write_back::page_on_its_way;
use super::Engine;
use super::rows::Writer;
use crate::report::SumsReport;
use crate::slab::Slab;
use crate::sparse::{CHUNK_ROW, Sparse};
use crate::sums::Checksum;
use crate::units::{BLOCK, BLOCKS_PER_UNIT, BufId, BufRange, ChunkId, UNIT, VolumeId};

/// The volume that holds the pages; no client sees it.
pub(super) const SUMS_VOLUME: VolumeId = crate::volume::INTERNAL;
/// Blocks of it for each chunk: enough for the largest one with the widest sums.
const SPAN: u64 = 1 << 14;
/// Ids of chunks in a pool with checksums are below.
const CHUNKS_MAX: u32 = (crate::volume::VOLUME_MAX / (SPAN * BLOCK)) as u32;
const _: () = assert!(Checksum::Xxh3.pages_for(crate::chunk::CHUNK_MAX) as u64 <= SPAN);

/// Tokens of the range lock for pages being written have this bit. Requests are below, units that move and mends above.
pub(super) const PAGE_TOKENS: u32 = 1 << 29;
/// Bits of questions: about pages that are loaded, of mends, of scrubs. Those about reads have none.
const PAGE_TAG: u64 = 1 << 63;
pub(super) const MEND_TAG: u64 = 1 << 62;
const SCRUB_TAG: u64 = 1 << 61;

/// Pages that a cache of the least size has.
const PAGES_MIN: u64 = 16;

/// What waits for a page.
#[derive(Clone)]
pub(super) enum Need {
    /// Blocks of a read are to be compared.
    Verify { check: u32, data: BufRange, first: u16 },
    /// Blocks of a request were written.
    Put { request: u32, what: Put, first: u16 },
    /// A unit is being mended.
    Mend(u32),
    /// A scrub compares a unit.
    Scrub(Part),
    /// A scrub wants it loaded, for this piece.
    Loaded(u32),
    /// The page of a unit's new place.
    Moved(u32),
    /// A strip of a row was read.
    Row { work: u32, member: u8, first: u16 },
    /// Lanes of a row are lost.
    Forget { work: u32, member: u8, first: u16 },
    /// A page goes elsewhere itself, as one block of this unit.
    MovedPage { id: u32, block: u64 },
}

/// What stands somewhere, as far as sums go.
#[derive(Clone, Copy)]
pub(super) enum Put {
    /// These blocks.
    Data(BufRange),
    /// So many blocks of zeros.
    Zeros(u16),
    /// So many blocks of which nothing is known.
    Nothing(u16),
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Sums {
    kind: Checksum,
    pages: Slab<Page>,
    /// By chunk and index: where in `pages`, plus one.
    places: Sparse<Vec<u32>, CHUNK_ROW>,
    /// Who needs a page that there is no room for yet.
    line: VecDeque<(ChunkId, u32, Need)>,
    /// The next one to look at when a page has to go.
    hand: u32,
    /// Pages with sums that their home does not have.
    dirty: u32,
    /// Of them those that their home would not take.
    failed: u32,
    /// Counts what is put into pages.
    pub(super) changes: u64,
    /// What was put in before this is at home; None when it has to be counted anew.
    at_home: Option<u64>,
    /// A checkpoint waits until what was put in before this is at home.
    awaited: Option<u64>,
    /// Pages to write, and how many are on their way.
    to_write: VecDeque<u32>,
    writing: u32,
    /// Drains that have ended.
    drains: u64,
    /// Reads that are being compared.
    checks: Slab<Check>,
    /// Places in rows that were taken and have got no sums yet, and what those of their blocks are to be at first.
    uninitialized: BTreeMap<(ChunkId, u32), fn(u16) -> Put>,
    /// Places in rows that somebody wrote to, and who: their sums follow before it is answered, or moved.
    lagging: BTreeSet<(ChunkId, u32, Writer)>,
}

impl Sums {
    pub(super) fn new(kind: Checksum) -> Sums {
        Sums { kind, ..Sums::default() }
    }

    /// A checkpoint waits for sums on their way home.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Memory is what was asked for.
    pub(super) fn drained(&mut self) {
        self.drains += 1;
    }

    pub(super) fn kind(&self) -> Checksum {
        self.kind
    }

    /// Nobody has the place any more.
    pub(super) fn place_given_back(&mut self, chunk: ChunkId, place: u32) {
        self.uninitialized.remove(&(chunk, place));
    }

    /// Somebody wrote to a place.
    pub(super) fn lag(&mut self, chunk: ChunkId, place: u32, writer: Writer) {
        self.lagging.insert((chunk, place, writer));
    }

    /// The sums of a place have followed, or never will.
    pub(super) fn lags_no_more(&mut self, chunk: ChunkId, place: u32, writer: Writer) {
        self.lagging.remove(&(chunk, place, writer));
    }

    /// Somebody wrote to a place, and its sums are not what they are about to be.
    pub(super) fn is_lagging(&self, chunk: ChunkId, place: u32) -> bool {
        self.lagging.range((chunk, place, Writer::Request(0))..=(chunk, place, Writer::Nobody)).next().is_some()
    }

    pub(super) fn is_on(&self) -> bool {
        self.kind.is_on()
    }
}

/// Page and place in it of a block of a chunk.
pub(super) fn locate(kind: Checksum, byte: u64) -> (u32, u16) {
    let unit = (byte / UNIT) as u32;
    let (index, within) = kind.page_of(unit);
    (index, (u64::from(within) * (UNIT / BLOCK) + byte % UNIT / BLOCK) as u16)
}

/// First byte of a page in the volume of pages.
fn home(chunk: ChunkId, index: u32) -> u64 {
    (u64::from(chunk.0) * SPAN + u64::from(index)) * BLOCK
}

/// Which page is this block of the volume of pages.
fn name_of(block: u64) -> (ChunkId, u32) {
    (ChunkId((block / SPAN) as u32), (block % SPAN) as u32)
}

/// Whose sums stand in a unit of the volume of pages.
pub(super) fn whose(unit: u64) -> ChunkId {
    name_of(unit * BLOCKS_PER_UNIT).0
}

impl Engine {
    /// Whether what is written to this volume gets sums, and what is read is compared.
    pub(super) fn is_summed(&self, volume: VolumeId) -> bool {
        self.sums.is_on() && self.pool.is_summed(volume)
    }

    /// What is read of this unit is what was written, or an error: it has checksums and nothing makes their word doubtful.
    pub fn knows_better(&self, volume: VolumeId, unit: u64) -> bool {
        self.is_summed(volume) && !self.is_dirty(volume, unit)
    }

    /// For the laboratory: the page that has the sum of a block, if it is in memory, and the place in it.
    pub fn sum_place(&self, volume: VolumeId, block: u64) -> Option<(BufId, Checksum, u32)> {
        let entry = self.entry(volume, block * BLOCK / UNIT);
        let at = u64::from(entry.unit()) * UNIT + block * BLOCK % UNIT;
        let (index, place) = locate(self.sums.kind, at);
        let slot = self.sums.ready(entry.chunk(), index).filter(|_| entry.is_mapped() && self.is_summed(volume))?;
        Some((memory(slot, 0), self.sums.kind, place.into()))
    }

    pub(super) fn sums_report(&self) -> SumsReport {
        if !self.sums.is_on() {
            return SumsReport::default();
        }
        let (cached, dirty) = (self.sums.pages.len() as u64 * BLOCK, u64::from(self.sums.dirty) * BLOCK);
        SumsReport { cached, dirty, limit: self.pool.properties.checksum_cache }
    }

    /// The page is in memory: what waits for it goes on.
    fn serve(&mut self, slot: u32, need: Need) {
        match need {
            Need::Verify { check, data, first } => self.compare_with_sums(check, data, slot, first),
            Need::Put { request, what, first } => {
                self.put_sums(what, slot, first);
                self.count_down(request);
            }
            Need::Mend(id) => self.mend_page_ready(id, slot),
            Need::Scrub(part) => self.scrub_page_ready(part, slot),
            Need::Loaded(piece) => self.scrub_asks(piece, 0),
            Need::Moved(id) => self.put_moved_sums(id, slot),
            Need::Row { work, member, first } => self.row_page_ready(work, member, first, slot),
            Need::Forget { work, member, first } => self.forget_sums(work, member, first, slot),
            Need::MovedPage { id, block } => self.take_page_along(id, block, slot),
        }
    }

    /// The page cannot be had.
    fn refuse(&mut self, need: Need) {
        match need {
            Need::Verify { check, .. } => self.check_fails(check),
            Need::Put { request, .. } => {
                self.requests[request].error = Some(crate::request::RequestError::Io);
                self.count_down(request);
            }
            Need::Mend(id) => self.mend_page_refused(id),
            // Nothing is known of it, now.
            Need::Scrub(Part { piece, .. }) | Need::Loaded(piece) => self.scrub_asks(piece, 0),
            Need::Row { work, member, .. } => self.row_page_refused(work, member),
            Need::Moved(id) => self.fail_move(id),
            // What they say is of a region that is marked.
            Need::Forget { work, .. } => self.sums_not_forgotten(work),
            Need::MovedPage { id, .. } => {
                self.move_not_compared(id);
                self.count_move_down(id);
            }
        }
    }
}
