//! The numbers of the NBD protocol, and readers and writers that cannot panic.
//!
//! Everything is big-endian. Names follow the protocol document (`NBD_OPT_GO` is [`opt::GO`] here).

/// First eight bytes of a server.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Before every option, and second in the greeting.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Before every option reply.
pub const REP_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request header.
pub const REQUEST_LEN: usize = 28;
/// Bytes of an option header.
pub const OPTION_LEN: usize = 16;
/// Longest string the protocol allows.
pub const STRING_MAX: usize = 4096;
/// Largest payload of one request, as advertised; the protocol's own default.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// Handshake and client flags.
pub mod hs {
    /// Both sides: fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// Both sides: no 124 zeroes after EXPORT_NAME.
    pub const NO_ZEROES: u16 = 2;
}

/// Options.
#[allow(missing_docs)]
pub mod opt {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Option replies.
#[allow(missing_docs)]
pub mod rep {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// All errors have this bit.
    pub const ERR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERR | 1;
    pub const ERR_POLICY: u32 = ERR | 2;
    pub const ERR_INVALID: u32 = ERR | 3;
    pub const ERR_PLATFORM: u32 = ERR | 4;
    pub const ERR_TLS_REQD: u32 = ERR | 5;
    pub const ERR_UNKNOWN: u32 = ERR | 6;
    pub const ERR_SHUTDOWN: u32 = ERR | 7;
    pub const ERR_TOO_BIG: u32 = ERR | 9;
}

/// Information items of INFO and GO.
#[allow(missing_docs)]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
#[allow(missing_docs)]
pub mod flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
#[allow(missing_docs)]
pub mod cmd {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
    pub const FLAG_FUA: u16 = 1 << 0;
    pub const FLAG_NO_HOLE: u16 = 1 << 1;
    pub const FLAG_DF: u16 = 1 << 2;
    pub const FLAG_REQ_ONE: u16 = 1 << 3;
    pub const FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks.
#[allow(missing_docs)]
pub mod chunk {
    pub const FLAG_DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// All error chunks have this bit.
    pub const ERR: u16 = 1 << 15;
    pub const ERROR: u16 = ERR | 1;
    pub const ERROR_OFFSET: u16 = ERR | 2;
}

/// Error numbers on the wire.
#[allow(missing_docs)]
pub mod err {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const ENOMEM: u32 = 12;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const EOVERFLOW: u32 = 75;
    pub const ENOTSUP: u32 = 95;
    pub const ESHUTDOWN: u32 = 108;
}

/// `base:allocation` states.
pub mod state {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// The only metadata context.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its id on the wire.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// A reader of big-endian fields that says None instead of reading past the end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    /// 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    /// 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    /// 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    /// A string with 32 bits of length before it.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
    /// Nothing left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Bytes left.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A writer of big-endian fields.
pub trait Put {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
    /// Appends 16 bits.
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_be_bytes());
    }
    /// Appends 32 bits.
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_be_bytes());
    }
    /// Appends 64 bits.
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_be_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A request header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// [`cmd`] flags.
    pub flags: u16,
    /// A [`cmd`].
    pub kind: u16,
    /// The client's own name for it.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl RequestHeader {
    /// From the front of `bytes`; `Ok(None)` when there are too few, `Err` with the wrong magic.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, u32> {
        let Some(bytes) = bytes.get(..REQUEST_LEN) else { return Ok(None) };
        let mut r = Reader(bytes);
        let magic = r.u32().unwrap_or(0);
        if magic != REQUEST_MAGIC {
            return Err(magic);
        }
        let (Some(flags), Some(kind), Some(cookie), Some(offset), Some(len)) =
            (r.u16(), r.u16(), r.u64(), r.u64(), r.u32())
        else {
            return Ok(None);
        };
        Ok(Some(RequestHeader { flags, kind, cookie, offset, len }))
    }

    /// Appends it.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_u32(REQUEST_MAGIC);
        out.put_u16(self.flags);
        out.put_u16(self.kind);
        out.put_u64(self.cookie);
        out.put_u64(self.offset);
        out.put_u32(self.len);
    }
}

/// Appends a simple reply.
pub fn put_simple_reply(out: &mut impl Put, error: u32, cookie: u64) {
    out.put_u32(SIMPLE_REPLY_MAGIC);
    out.put_u32(error);
    out.put_u64(cookie);
}

/// Appends the header of a final structured reply chunk.
pub fn put_chunk(out: &mut impl Put, kind: u16, cookie: u64, len: u32) {
    out.put_u32(STRUCTURED_REPLY_MAGIC);
    out.put_u16(chunk::FLAG_DONE);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(len);
}

/// Appends a final error chunk with a sentence for people.
pub fn put_error_chunk(out: &mut impl Put, cookie: u64, error: u32, message: &str) {
    let message = message.as_bytes().get(..message.len().min(STRING_MAX)).unwrap_or_default();
    put_chunk(out, chunk::ERROR, cookie, 6u32.saturating_add(message.len() as u32));
    out.put_u32(error);
    out.put_u16(message.len() as u16);
    out.put(message);
}

/// Appends an option.
pub fn put_option(out: &mut impl Put, option: u32, data: &[u8]) {
    out.put_u64(IHAVEOPT);
    out.put_u32(option);
    out.put_u32(data.len() as u32);
    out.put(data);
}

/// Appends an option reply.
pub fn put_option_reply(out: &mut impl Put, option: u32, reply: u32, data: &[u8]) {
    out.put_u64(REP_MAGIC);
    out.put_u32(option);
    out.put_u32(reply);
    out.put_u32(data.len() as u32);
    out.put(data);
}
