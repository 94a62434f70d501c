//! The nouns that cross the door: what comes in, what goes out.
//!
//! ```text
//!            Input                         Output
//!   world  --------->  handle(now, ..)  ---------->  world
//!            Submit      the engine         Issue  a command for one device
//!            Complete                       Copy   bytes to move or to clear in memory
//!                                           Combine  sums of bytes in memory
//!            Control                        Reply  a request is answered
//!            Tick                           Done   a control command is answered
//!                                           Event  something an operator may want to know
//! ```
//!
//! Law of the door: any number of inputs with [`Engine::handle`](crate::Engine::handle), then
//! [`Engine::poll`](crate::Engine::poll) until it says [`Output::Idle`]. The inputs between two drains are one
//! *batch*: neighbours among them merge into one device command. A caller that drains after each input gets no
//! merging and no other difference.

use crate::combine::Combine;
use crate::sums::{Checksum, PageName};
use crate::units::{BufId, BufRange, ChunkId, ClientId, DeviceId, Instant, IoId, Uuid, VolumeId};

pub use crate::content::Content;

/// What a client asks of a volume.
///
/// The buffer covers the *block-aligned envelope* of `[offset, offset + len)`: its byte 0 is the volume's byte
/// `round_down(offset, BLOCK)`, its length at least the envelope's. For a write the payload stands at
/// `offset % BLOCK`; the engine fills the rest of the first and last block itself (read-modify-write), so the host
/// must allow it to write there. Operations without payload leave `buf` at [`NO_BUF`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host's own name for the request; comes back in the [`Reply`] and is never looked at.
    pub tag: u64,
    /// Who asks.
    pub client: ClientId,
    /// Of which volume.
    pub volume: VolumeId,
    /// What.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 only for [`Op::Flush`].
    pub len: u64,
    /// Payload memory, see above.
    pub buf: BufId,
    /// What kind of content this is, when the client says.
    pub content: Content,
    /// Its device commands are to be its own: neighbours don't join them.
    pub no_merge: bool,
}

/// The buffer of a request without payload.
pub const NO_BUF: BufId = BufId(u32::MAX);

/// Operations on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read; blocks never written give zeros.
    Read,
    /// Write; with `fua` the reply means "on stable media".
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Everything replied to before this request was submitted is on stable media when the reply comes.
    Flush,
    /// The content of the range is no longer needed; whole blocks are released and read as zeros.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// As for write.
        fua: bool,
        /// Keep the space allocated (write real zeros).
        no_hole: bool,
    },
}

/// Everything that can happen to a pool.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client wants something.
    Submit(Request),
    /// A device finished the dispatch named by its first I/O.
    Complete {
        /// [`Dispatch::id`].
        id: IoId,
        /// How it went.
        result: Result<(), IoError>,
    },
    /// A device finished a read, and [`Engine::expects`](crate::Engine::expects) found it to be what its checksums say, at
    /// once before: instead of [`Input::Complete`], and with no [`PageWork::Verify`] to follow.
    Intact {
        /// [`Dispatch::id`].
        id: IoId,
    },
    /// The operator wants something; the answer is [`Output::Done`] with the same tag.
    Control {
        /// The host's own name for the command.
        tag: u64,
        /// The command.
        command: crate::control::Command,
    },
    /// Two ranges of memory were compared: the answer to [`Output::Compare`], given before the next drain ends.
    Compared {
        /// The tag of the question.
        tag: u64,
        /// Every byte is the same.
        equal: bool,
    },
    /// The answer to [`PageWork::Verify`], [`PageWork::Unsummed`] and [`PageWork::Check`], given before the next drain ends.
    Verified {
        /// The tag of the question.
        tag: u64,
        /// One bit for each block, or sector, that is not right.
        bad: u16,
    },
    /// The answer to [`Output::Digest`], given before the next drain ends.
    Digested {
        /// The tag of the question.
        tag: u64,
        /// crc32c of all of it.
        crc: u32,
    },
    /// The answer to [`Output::Superblock`], given before the next drain ends.
    Superblock {
        /// The tag of the question.
        tag: u64,
        /// Its generation; none if it is not one of this pool, for this device.
        generation: Option<u64>,
    },
    /// What the clock on the wall says now, for people to read; the engine adds what has passed since.
    Clock {
        /// Seconds since 1970.
        unix_s: u64,
    },
    /// The moment of the last [`Output::Idle`] arrived.
    Tick,
}

/// Everything a pool wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// One command for one device. Its memory is [`Engine::segments`](crate::Engine::segments); it is answered by
    /// [`Input::Complete`] exactly once.
    Issue(Dispatch),
    /// Bytes to move or to clear in memory, at once and before the next output is carried out; no answer.
    Copy(Copy),
    /// Sums of bytes in memory: parity, and what it makes up for. At once and before the next output is carried out; no
    /// answer.
    Combine(Combine),
    /// Are these bytes in memory the same? Both ranges have one length. Answered at once, and exactly once, by
    /// [`Input::Compared`].
    Compare {
        /// Comes back in the answer.
        tag: u64,
        /// The one.
        a: BufRange,
        /// The other.
        b: BufRange,
    },
    /// What is the crc32c of these bytes in memory, one range after the other? Answered at once, and exactly once, by
    /// [`Input::Digested`].
    Digest {
        /// Comes back in the answer.
        tag: u64,
        /// Whole blocks.
        data: alloc::vec::Vec<BufRange>,
    },
    /// Is what was read into memory a superblock of this pool for this device, and of which generation:
    /// [`crate::meta::superblock::generation`]? Answered at once, and exactly once, by [`Input::Superblock`].
    Superblock {
        /// Comes back in the answer.
        tag: u64,
        /// One slot.
        slot: BufRange,
        /// The pool.
        pool: Uuid,
        /// The device.
        device: Uuid,
    },
    /// Checksums to make, to put in and to compare, at once and before the next output is carried out.
    Page(PageWork),
    /// A request is answered; its buffer belongs to the host again.
    Reply(Reply),
    /// A control command is answered.
    Done {
        /// The tag of the command.
        tag: u64,
        /// How it went.
        result: Result<crate::control::Done, crate::control::ControlError>,
    },
    /// Something an operator may want to know.
    Event(Event),
    /// Nothing more to do until the next input, or until this moment.
    Idle {
        /// When to send [`Input::Tick`], if ever.
        until: Option<Instant>,
    },
}

/// One command for one device: an I/O, or a merged run of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The first I/O of the run; names the dispatch until it completes.
    pub id: IoId,
    /// The device.
    pub device: DeviceId,
    /// What to do.
    pub op: DeviceOp,
    /// First byte on the device; a multiple of `BLOCK`.
    pub offset: u64,
    /// Bytes; a multiple of `BLOCK`, the sum of the segments for reads and writes.
    pub len: u64,
}

/// What a device can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceOp {
    /// Read into the segments.
    Read,
    /// Write from the segments; with `fua` on stable media before completion.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Everything completed before is on stable media.
    Flush,
    /// The range may be forgotten. A device that cannot completes with success.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
}

/// Memory of one part of a dispatch, in device order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// A piece of a payload buffer; aligned to `BLOCK` in offset and length.
    Payload(BufRange),
    /// The pool's own records, to be written as they are.
    Record(&'a [u8]),
    /// Bytes between two reads that are read for nothing, so that one command does for both; at most 32 MiB. What comes
    /// is thrown away.
    Gap(u64),
}

/// Memory work that the core cannot do itself, since it never sees payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// Clear the range.
    Zero(BufRange),
    /// Copy `from` to `to`; same length, never overlapping.
    Move {
        /// Source.
        from: BufRange,
        /// Destination.
        to: BufRange,
    },
    /// The host must make a scratch buffer under this name (ids from the top of the range, never in use twice at
    /// once): a block for an edge, up to [`crate::scrub::SCRATCH_MAX`] for a scrub.
    Scratch {
        /// Its name.
        buf: BufId,
        /// Bytes, a multiple of `BLOCK`.
        len: u32,
    },
    /// The scratch buffer is not needed any more.
    Drop(BufId),
}

/// Names of memory for checksum pages are from here up to those of scratch buffers; they are dense.
pub const PAGES_FIRST: u32 = 1 << 30;

/// Work on memory that holds a page of checksums, which the core never sees; [`crate::sums`] has what to do with bytes. A
/// page is memory like a scratch buffer of one block, and goes with [`Copy::Drop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageWork {
    /// Make a page of zeros under this name.
    New(BufId),
    /// Sum the blocks of `data` and put the sums in, from place `first` of the page on.
    Sum {
        /// With what.
        kind: Checksum,
        /// Whole blocks.
        data: BufRange,
        /// The page.
        page: BufId,
        /// Place of the first block's sum.
        first: u16,
    },
    /// As `Sum`, for blocks that hold nothing but zeros.
    SumZeros {
        /// With what.
        kind: Checksum,
        /// The page.
        page: BufId,
        /// Place of the first block's sum.
        first: u16,
        /// How many blocks.
        count: u16,
    },
    /// Take the sums of these blocks out: they have none.
    Clear {
        /// Of what kind sums are.
        kind: Checksum,
        /// The page.
        page: BufId,
        /// Place of the first block's sum.
        first: u16,
        /// How many blocks.
        count: u16,
    },
    /// The page is about to be written.
    Seal {
        /// The page.
        page: BufId,
        /// Who it is.
        name: PageName,
    },
    /// Which blocks of `data` are not what their sums say? A block without a sum is right. Answered at once, and exactly
    /// once, by [`Input::Verified`].
    Verify {
        /// Comes back in the answer.
        tag: u64,
        /// With what.
        kind: Checksum,
        /// Whole blocks, sixteen at most.
        data: BufRange,
        /// The page.
        page: BufId,
        /// Place of the first block's sum.
        first: u16,
    },
    /// Which of these blocks have no sum? Answered like `Verify`.
    Unsummed {
        /// Comes back in the answer.
        tag: u64,
        /// Of what kind sums are.
        kind: Checksum,
        /// The page.
        page: BufId,
        /// Place of the first block's sum.
        first: u16,
        /// How many blocks, sixteen at most.
        count: u16,
    },
    /// A page was read: [`crate::sums::merge`], whose answer is that of [`Input::Verified`].
    Check {
        /// Comes back in the answer.
        tag: u64,
        /// The page.
        page: BufId,
        /// Another copy of it.
        other: Option<BufId>,
        /// Who it should be.
        name: PageName,
    },
}

/// Blocks that were read and the place of their sums, both in memory; see [`Engine::expects`](crate::Engine::expects). A
/// block without a sum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// With what they are summed.
    pub kind: Checksum,
    /// Whole blocks, sixteen at most.
    pub data: BufRange,
    /// The page.
    pub page: BufId,
    /// Place of the first block's sum.
    pub first: u16,
}

/// A request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// [`Request::tag`].
    pub tag: u64,
    /// How it went.
    pub result: Result<(), RequestError>,
    /// For reads: nothing of the range was ever written, so the buffer is all zeros.
    pub hole: bool,
}

/// Why a request failed, in the terms that block protocols have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestError {
    /// The volume does not exist (any more).
    NoVolume,
    /// Reaches past the end of the volume, or the arithmetic does.
    OutOfRange,
    /// A malformed request, such as a length of zero.
    Invalid,
    /// The volume is read-only.
    ReadOnly,
    /// No space is left for a first write.
    NoSpace,
    /// No copy could be read, or too few could be written.
    Io,
    /// Too many requests are in flight; try again.
    Busy,
}

/// Why a device command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// This range could not be read or written (EIO).
    Media,
    /// The device is not there any more (ENODEV, ENXIO, ENOENT, ESTALE).
    Gone,
    /// The device is full (ENOSPC of a sparse file).
    NoSpace,
    /// The device does not know the operation.
    Unsupported,
}

/// What an operator may want to know; numbered and kept by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A chunk went to a tier that its type does not prefer.
    Spill {
        /// The chunk.
        chunk: crate::units::ChunkId,
        /// Its type.
        kind: crate::ChunkType,
        /// Its length.
        bytes: u64,
    },
    /// A chunk was allocated.
    ChunkAllocated {
        /// The chunk.
        chunk: crate::units::ChunkId,
        /// Its type.
        kind: crate::ChunkType,
        /// Its length.
        bytes: u64,
    },
    /// An empty chunk went back to free space.
    ChunkReleased {
        /// The chunk.
        chunk: crate::units::ChunkId,
    },
    /// A device command failed.
    DeviceError {
        /// The device.
        device: DeviceId,
        /// What was asked.
        op: DeviceOp,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
        /// Why.
        error: IoError,
    },
    /// A device is no longer used: it vanished, or missed a write.
    DeviceFailed {
        /// The device.
        device: DeviceId,
        /// Why.
        error: IoError,
    },
    /// A device is no longer used: somebody asked for that.
    DeviceOffline {
        /// The device.
        device: DeviceId,
    },
    /// A device that was found, or came back, is older than it can be: a copy of another time, or its superblock could not be written.
    DeviceOlder {
        /// The device.
        device: DeviceId,
        /// Others have what it holds: all of that is made anew. Otherwise it is used as it is.
        is_spared: bool,
    },
    /// A device answers, but missed something: it is read where it is up to date, and caught up.
    DeviceSuspect {
        /// The device.
        device: DeviceId,
        /// Why.
        error: IoError,
    },
    /// A device is there and up to date again.
    DeviceOnline {
        /// The device.
        device: DeviceId,
    },
    /// What is set for the queue of a device means nothing in this version: it goes by the defaults of its medium.
    QueueOnDefaults {
        /// The device.
        device: DeviceId,
        /// Why, in one sentence that names the setting.
        error: alloc::string::String,
    },
    /// No space for a first write of this type.
    NoSpace {
        /// The type.
        kind: crate::ChunkType,
    },
    /// A copy is not what its checksums say.
    BadCopy {
        /// The volume.
        volume: VolumeId,
        /// Its name.
        name: alloc::string::String,
        /// First byte within the volume.
        offset: u64,
        /// Bytes, whole blocks.
        len: u64,
        /// The device.
        device: DeviceId,
        /// First byte on it.
        device_offset: u64,
    },
    /// A copy of the pool's own records is not what was written there; another one was taken, and a checkpoint follows.
    BadRecord {
        /// The device.
        device: DeviceId,
        /// First byte on it.
        device_offset: u64,
        /// Bytes.
        len: u64,
    },
    /// No copy of these blocks is right any more: reads of them fail until they are written again.
    BlocksLost {
        /// The volume.
        volume: VolumeId,
        /// Its name.
        name: alloc::string::String,
        /// First byte within the volume.
        offset: u64,
        /// Bytes, whole blocks.
        len: u64,
    },
    /// Sectors of a page of checksums are damaged on every copy: what they were about is not verified until it is written
    /// again.
    SumsLost {
        /// The chunk that the page is about.
        chunk: crate::units::ChunkId,
        /// Which page of it.
        page: u32,
        /// How many sectors.
        sectors: u32,
    },
    /// A scrub found copies that are not alike.
    ScrubDifference {
        /// Whose; none for the pool's own records.
        volume: Option<VolumeId>,
        /// Its name.
        name: alloc::string::String,
        /// First byte within the volume, or within the chunk for the pool's own records.
        offset: u64,
        /// Bytes, whole blocks.
        len: u64,
        /// Every copy that was read.
        copies: alloc::vec::Vec<ScrubCopy>,
        /// Who says which of them are suspect; a checksum that none agrees with makes none of them more suspect than others.
        witness: Witness,
    },
    /// A scrub found a copy that cannot be read.
    ScrubReadError {
        /// Whose; none for the pool's own records.
        volume: Option<VolumeId>,
        /// Its name.
        name: alloc::string::String,
        /// First byte within the volume, or within the chunk for the pool's own records.
        offset: u64,
        /// Bytes, whole blocks.
        len: u64,
        /// The device.
        device: DeviceId,
        /// First byte on it.
        device_offset: u64,
    },
    /// A spare takes the place of a member that failed, or is missing for long: a job began by itself.
    SpareInUse {
        /// Whose place.
        device: DeviceId,
        /// The spare.
        by: DeviceId,
    },
    /// A member would need a spare, and none of those there are fits.
    NoSpareFits {
        /// The member.
        device: DeviceId,
    },
    /// What spilled goes back to the tier it prefers: a job began by itself.
    ReturnStarted,
    /// A job that moves content is done; with `lost` units left behind it was given up.
    JobEnded {
        /// Its task's name.
        task: &'static str,
        /// Bytes of content that it moved.
        bytes: u64,
        /// Units of which some block could not be read from any copy.
        lost: u64,
    },
    /// A job cannot go on by itself and is paused: there is no room, or what it writes to fails.
    JobStopped {
        /// Its task's name.
        task: &'static str,
        /// There is no room.
        no_room: bool,
    },
    /// A unit could not be moved: some block of it could not be read from any copy.
    MoveLost {
        /// Whose.
        volume: VolumeId,
        /// Its name.
        name: alloc::string::String,
        /// First byte within the volume.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A device is no member any more.
    DeviceRemoved {
        /// Which it was.
        device: DeviceId,
        /// Its superblock was cleared; else it still says that it is a member.
        cleared: bool,
    },
    /// Blocks of a copy could not be read, or were not what the other copies hold, and were written anew.
    Repaired {
        /// Whose.
        volume: Option<VolumeId>,
        /// Its name.
        name: alloc::string::String,
        /// First byte within the volume.
        offset: u64,
        /// Bytes, whole blocks.
        len: u64,
        /// The device.
        device: DeviceId,
        /// First byte on it.
        device_offset: u64,
    },
    /// Parity of a row was not what its data makes, or data was not what both parities make and had no checksum: it was
    /// written anew.
    RowRepaired {
        /// The chunk.
        chunk: ChunkId,
        /// The row.
        row: u32,
        /// A strip of data, which may have been read as it was.
        is_data: bool,
        /// Bytes, whole blocks.
        len: u64,
        /// The device.
        device: DeviceId,
        /// First byte on it.
        device_offset: u64,
    },
    /// The pool's records can be written nowhere any more: changes fail from now on.
    Suspended,
    /// A scrub reports no more places one by one; they are only counted.
    ScrubTellsNoMore,
    /// A scrub has read everything.
    ScrubFinished {
        /// Blocks whose copies are not alike.
        differences: u64,
        /// Blocks of copies that could not be read.
        read_errors: u64,
        /// Bytes of copies that were not read because their member was not there.
        unread: u64,
        /// Blocks of the pool's own records that checkpoints came between at every look.
        undecided: u64,
        /// Blocks of copies that were written anew.
        repaired: u64,
    },
}

/// Who says which copies of a block are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Its checksum.
    Checksum,
    /// More than half of the copies, which are alike.
    Majority,
    /// Nobody.
    Nobody,
}

/// One copy of what a scrub complains of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubCopy {
    /// The device.
    pub device: DeviceId,
    /// First byte on it.
    pub offset: u64,
    /// Copies of one number hold the same bytes.
    pub group: u8,
    /// It is not what the [`Witness`] says. Two copies that differ, without a checksum, suspect nobody.
    pub suspect: bool,
}
