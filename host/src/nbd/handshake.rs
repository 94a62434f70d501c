//! Fixed-newstyle negotiation, the server's side, without I/O.
//!
//! ```text
//!            greeting sent
//!                 │ client flags
//!                 ▼            STARTTLS            tls_started()
//!   ┌──────► Header ──────────────────► StartTls ───────────────┐
//!   │  len<=max │  │ len>max                                    │ forgets all options
//!   │           ▼  ▼                                            │
//!   └─── Payload  Swallow ◄──────────────────────────── Header ◄┘
//!           │ GO, EXPORT_NAME         │ ABORT
//!           ▼                         ▼
//!       Negotiated                  Closed
//! ```
//!
//! Promises: bounded memory whatever the client sends ([`OPTION_BYTES_MAX`], [`OUTPUT_PAUSE`]), bounded work
//! ([`OPTIONS_MAX`], [`SWALLOW_MAX`]), no state from before STARTTLS survives it, and not one byte in the clear is
//! accepted behind it. Export names are keys of a map and nothing else. The deadline is the caller's.

use std::fmt;

use braid_core::units::{BLOCK, Uuid, VolumeId};

use super::proto::{self, OPTION_LEN, PAYLOAD_MAX, Put, Reader, STRING_MAX, flag, hs, info, opt, rep};

/// Largest option payload that is read; a name and a good many context queries. Larger ones are thrown away and
/// refused with TOO_BIG.
pub const OPTION_BYTES_MAX: usize = 16 << 10;
/// Options in one negotiation. A real client sends fewer than ten; a flood is cut here.
pub const OPTIONS_MAX: u32 = 256;
/// Bytes of oversized options thrown away in one negotiation; an option that announces more ends it at once.
pub const SWALLOW_MAX: u64 = 4 << 20;
/// Unsent replies at which input is no longer read.
pub const OUTPUT_PAUSE: usize = 64 << 10;

const _: () = assert!(OPTION_BYTES_MAX > 2 * (STRING_MAX + 64), "two names of the longest kind fit");

/// What a client may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name.
    pub name: String,
    /// Sentence for people.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Every member of the pool turns; see the pitfalls of ublk and NBD.
    pub rotational: bool,
    /// A flush on one connection covers all of them.
    pub can_multi_conn: bool,
    /// Which pool, hence which pump.
    pub pool: Uuid,
    /// Which volume of it.
    pub volume: VolumeId,
    /// Which share of it: one volume may be served by several listeners, and each has clients of its own. Only whoever
    /// makes exports gives it a meaning.
    pub share: u32,
}

impl ExportInfo {
    /// The transmission flags of it.
    pub fn flags(&self, structured: bool) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_CACHE;
        flags |= if self.read_only {
            flag::READ_ONLY
        } else {
            flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
        };
        for (on, bit) in [
            (self.rotational, flag::ROTATIONAL),
            (self.can_multi_conn, flag::CAN_MULTI_CONN),
            (structured, flag::SEND_DF),
        ] {
            if on {
                flags |= bit;
            }
        }
        flags
    }
}

/// Where exports are looked up.
pub trait Exports {
    /// All that this kind of client may see.
    fn list(&self) -> Vec<ExportInfo>;
    /// One by its exact name.
    fn lookup(&self, name: &str) -> Option<ExportInfo>;
}

/// Whether TLS is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// STARTTLS is refused.
    #[default]
    Off,
    /// As the client likes.
    Allow,
    /// Nothing but STARTTLS and ABORT works before it.
    Require,
}

/// What was agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export.
    pub export: ExportInfo,
    /// Structured replies.
    pub structured: bool,
    /// `base:allocation` was selected for this export.
    pub allocation: bool,
}

/// Where the negotiation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not finished.
    Open,
    /// Send the output, then transmission begins; unconsumed input belongs to it.
    Negotiated(Session),
    /// Send the output, then do the TLS handshake and call [`Handshake::tls_started`].
    StartTls,
    /// Send the output, then close.
    Closed,
}

/// Why a client is dropped without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Not IHAVEOPT.
    BadMagic,
    /// Client flags nobody defined.
    UnknownFlags(u32),
    /// An option other than EXPORT_NAME from a client without fixed newstyle.
    NotFixed,
    /// More than [`OPTIONS_MAX`].
    TooManyOptions,
    /// More than [`SWALLOW_MAX`] bytes to throw away.
    TooBig,
    /// EXPORT_NAME cannot be refused in any other way.
    NoSuchExport,
    /// EXPORT_NAME before TLS where that is required.
    TlsRequired,
    /// Bytes in the clear behind STARTTLS.
    Injected,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::BadMagic => f.write_str("wrong option magic"),
            Violation::UnknownFlags(flags) => write!(f, "unknown client flags {flags:#x}"),
            Violation::NotFixed => f.write_str("option from a client without fixed newstyle"),
            Violation::TooManyOptions => write!(f, "more than {OPTIONS_MAX} options"),
            Violation::TooBig => write!(f, "more than {SWALLOW_MAX} bytes of oversized options"),
            Violation::NoSuchExport => f.write_str("no such export"),
            Violation::TlsRequired => f.write_str("TLS is required"),
            Violation::Injected => f.write_str("bytes in the clear behind STARTTLS"),
        }
    }
}

impl std::error::Error for Violation {}

/// What the server is willing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Whether TLS is spoken.
    pub tls: TlsMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ClientFlags,
    Header,
    Payload { option: u32, len: usize },
    Swallow { option: u32, left: u64 },
}

/// The state machine.
#[derive(Debug)]
pub struct Handshake {
    config: Config,
    state: State,
    outcome: Outcome,
    /// The message that is being collected; at most [`OPTION_BYTES_MAX`].
    message: Vec<u8>,
    output: Vec<u8>,
    options: u32,
    swallowed: u64,
    fixed: bool,
    no_zeroes: bool,
    tls: bool,
    structured: bool,
    /// The volume that `base:allocation` was selected for.
    allocation: Option<(Uuid, VolumeId)>,
}

/// An option is answered with this error and this sentence.
type Refusal = (u32, &'static str);

impl Handshake {
    /// A negotiation; the greeting is in the output already.
    pub fn new(config: Config) -> Self {
        let mut output = Vec::with_capacity(256);
        output.put_u64(proto::NBDMAGIC);
        output.put_u64(proto::IHAVEOPT);
        output.put_u16(hs::FIXED_NEWSTYLE | hs::NO_ZEROES);
        Handshake {
            config,
            state: State::ClientFlags,
            outcome: Outcome::Open,
            message: Vec::new(),
            output,
            options: 0,
            swallowed: 0,
            fixed: false,
            no_zeroes: false,
            tls: false,
            structured: false,
            allocation: None,
        }
    }

    /// Where it stands.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// What is to be sent; empty afterwards.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The TLS handshake of [`Outcome::StartTls`] is done: everything said before is forgotten.
    pub fn tls_started(&mut self) {
        self.tls = true;
        self.structured = false;
        self.allocation = None;
        self.message.clear();
        self.state = State::Header;
        self.outcome = Outcome::Open;
    }

    /// Takes bytes of the client; how many were used. Fewer than all are used when the negotiation ended, or when the
    /// output has to be taken first.
    pub fn feed(&mut self, input: &[u8], exports: &dyn Exports) -> Result<usize, Violation> {
        let mut rest = input;
        while self.outcome == Outcome::Open && self.output.len() < OUTPUT_PAUSE {
            let needed = match self.state {
                State::ClientFlags => 4,
                State::Header => OPTION_LEN,
                State::Payload { len, .. } => len,
                State::Swallow { option, left } => {
                    let n = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    rest = rest.get(n..).unwrap_or_default();
                    let left = left.saturating_sub(n as u64);
                    if left > 0 {
                        self.state = State::Swallow { option, left };
                        break;
                    }
                    self.state = State::Header;
                    self.swallowed_option(option)?;
                    continue;
                }
            };
            let missing = needed.saturating_sub(self.message.len()).min(rest.len());
            let (head, tail) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
            self.message.extend_from_slice(head);
            rest = tail;
            if self.message.len() < needed {
                break;
            }
            let message = std::mem::take(&mut self.message);
            let result = self.message(&message, exports);
            self.message = message;
            self.message.clear();
            result?;
        }
        if self.outcome == Outcome::StartTls && !rest.is_empty() {
            return Err(Violation::Injected);
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    fn message(&mut self, bytes: &[u8], exports: &dyn Exports) -> Result<(), Violation> {
        match self.state {
            State::ClientFlags => {
                let flags = Reader(bytes).u32().unwrap_or(u32::MAX);
                let known = u32::from(hs::FIXED_NEWSTYLE | hs::NO_ZEROES);
                if flags & !known != 0 {
                    return Err(Violation::UnknownFlags(flags));
                }
                self.fixed = flags & u32::from(hs::FIXED_NEWSTYLE) != 0;
                self.no_zeroes = flags & u32::from(hs::NO_ZEROES) != 0;
                self.state = State::Header;
                Ok(())
            }
            State::Header => {
                let mut r = Reader(bytes);
                if r.u64() != Some(proto::IHAVEOPT) {
                    return Err(Violation::BadMagic);
                }
                let (option, len) = (r.u32().unwrap_or(0), r.u32().unwrap_or(0));
                self.options = self.options.saturating_add(1);
                if self.options > OPTIONS_MAX {
                    return Err(Violation::TooManyOptions);
                }
                if !self.fixed && option != opt::EXPORT_NAME {
                    return Err(Violation::NotFixed);
                }
                if option == opt::EXPORT_NAME && len as usize > STRING_MAX {
                    return Err(Violation::NoSuchExport);
                }
                if len as usize <= OPTION_BYTES_MAX && known(option) {
                    self.state = State::Payload { option, len: len as usize };
                    if len == 0 {
                        return self.message(&[], exports);
                    }
                    return Ok(());
                }
                self.swallowed = self.swallowed.saturating_add(u64::from(len));
                if self.swallowed > SWALLOW_MAX {
                    return Err(Violation::TooBig);
                }
                self.state = State::Swallow { option, left: u64::from(len) };
                Ok(())
            }
            State::Payload { option, .. } => {
                self.state = State::Header;
                self.option(option, bytes, exports)
            }
            State::Swallow { .. } => Ok(()),
        }
    }

    /// The payload of an unknown or oversized option is gone; say so.
    fn swallowed_option(&mut self, option: u32) -> Result<(), Violation> {
        if option == opt::ABORT {
            self.reply(option, rep::ACK, &[]);
            self.outcome = Outcome::Closed;
        } else if self.must_start_tls(option) {
            self.refuse(option, (rep::ERR_TLS_REQD, "start TLS first"));
        } else if known(option) {
            self.refuse(option, (rep::ERR_TOO_BIG, "the option is too long"));
        } else {
            self.refuse(option, (rep::ERR_UNSUP, "the option is not known here"));
        }
        Ok(())
    }

    fn must_start_tls(&self, option: u32) -> bool {
        self.config.tls == TlsMode::Require && !self.tls && option != opt::STARTTLS && option != opt::ABORT
    }

    fn option(&mut self, option: u32, data: &[u8], exports: &dyn Exports) -> Result<(), Violation> {
        if self.must_start_tls(option) {
            if option == opt::EXPORT_NAME {
                return Err(Violation::TlsRequired);
            }
            self.refuse(option, (rep::ERR_TLS_REQD, "start TLS first"));
            return Ok(());
        }
        let result = match option {
            opt::EXPORT_NAME => return self.export_name(data, exports),
            opt::ABORT => {
                self.outcome = Outcome::Closed;
                Ok(())
            }
            opt::LIST => self.list(data, exports),
            opt::STARTTLS => self.start_tls(data),
            opt::INFO => self.info(option, data, exports).map(|_| ()),
            opt::GO => match self.info(option, data, exports) {
                Ok(export) => {
                    self.reply(option, rep::ACK, &[]);
                    self.negotiated(export);
                    return Ok(());
                }
                Err(refusal) => Err(refusal),
            },
            opt::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                Ok(())
            }
            opt::STRUCTURED_REPLY => Err((rep::ERR_INVALID, "this option has no data")),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.meta_context(option, data, exports),
            _ => Err((rep::ERR_UNSUP, "the option is not known here")),
        };
        match result {
            Ok(()) => self.reply(option, rep::ACK, &[]),
            Err(refusal) => self.refuse(option, refusal),
        }
        Ok(())
    }

    fn export_name(&mut self, data: &[u8], exports: &dyn Exports) -> Result<(), Violation> {
        let export = find(data, exports).map_err(|_| Violation::NoSuchExport)?;
        self.output.put_u64(export.size);
        self.output.put_u16(export.flags(self.structured));
        if !self.no_zeroes {
            self.output.put(&[0; 124]);
        }
        self.negotiated(export);
        Ok(())
    }

    fn negotiated(&mut self, export: ExportInfo) {
        let allocation = self.structured && self.allocation == Some((export.pool, export.volume));
        self.outcome = Outcome::Negotiated(Session { export, structured: self.structured, allocation });
    }

    fn list(&mut self, data: &[u8], exports: &dyn Exports) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err((rep::ERR_INVALID, "this option has no data"));
        }
        for export in exports.list() {
            let (name, description) = (text(&export.name), text(&export.description));
            let mut data = Vec::with_capacity(name.len().saturating_add(description.len()).saturating_add(4));
            data.put_u32(name.len() as u32);
            data.put(name);
            data.put(description);
            self.reply(opt::LIST, rep::SERVER, &data);
        }
        Ok(())
    }

    fn start_tls(&mut self, data: &[u8]) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err((rep::ERR_INVALID, "this option has no data"));
        }
        if self.tls {
            return Err((rep::ERR_INVALID, "TLS is running already"));
        }
        if self.config.tls == TlsMode::Off {
            return Err((rep::ERR_POLICY, "TLS is not configured"));
        }
        self.outcome = Outcome::StartTls;
        Ok(())
    }

    fn info(&mut self, option: u32, data: &[u8], exports: &dyn Exports) -> Result<ExportInfo, Refusal> {
        const LIES: Refusal = (rep::ERR_INVALID, "the lengths in the option do not add up");
        let mut r = Reader(data);
        let name = r.string().ok_or(LIES)?;
        let count = r.u16().ok_or(LIES)?;
        if r.len() != usize::from(count).saturating_mul(2) {
            return Err(LIES);
        }
        let export = find(name, exports)?;
        let (mut want_name, mut want_description, mut want_sizes) = (false, false, false);
        while let Some(item) = r.u16() {
            want_name |= item == info::NAME;
            want_description |= item == info::DESCRIPTION;
            want_sizes |= item == info::BLOCK_SIZE;
        }
        let mut item = Vec::with_capacity(64);
        item.put_u16(info::EXPORT);
        item.put_u64(export.size);
        item.put_u16(export.flags(self.structured));
        self.reply(option, rep::INFO, &item);
        for (want, kind, words) in [
            (want_name, info::NAME, &export.name),
            (want_description && !export.description.is_empty(), info::DESCRIPTION, &export.description),
        ] {
            if want {
                item.clear();
                item.put_u16(kind);
                item.put(text(words));
                self.reply(option, rep::INFO, &item);
            }
        }
        if want_sizes {
            item.clear();
            item.put_u16(info::BLOCK_SIZE);
            item.put_u32(1);
            item.put_u32(BLOCK as u32);
            item.put_u32(PAYLOAD_MAX);
            self.reply(option, rep::INFO, &item);
        }
        Ok(export)
    }

    fn meta_context(&mut self, option: u32, data: &[u8], exports: &dyn Exports) -> Result<(), Refusal> {
        const LIES: Refusal = (rep::ERR_INVALID, "the lengths in the option do not add up");
        let set = option == opt::SET_META_CONTEXT;
        if set {
            self.allocation = None;
        }
        if !self.structured {
            return Err((rep::ERR_INVALID, "ask for structured replies first"));
        }
        let mut r = Reader(data);
        let name = r.string().ok_or(LIES)?;
        let count = r.u32().ok_or(LIES)?;
        let mut matches = count == 0 && !set;
        for _ in 0..count {
            let query = r.string().ok_or(LIES)?;
            if query.len() > STRING_MAX {
                return Err((rep::ERR_INVALID, "the query is too long"));
            }
            matches |= query == proto::BASE_ALLOCATION.as_bytes() || (query == b"base:" && !set);
        }
        if !r.is_empty() {
            return Err(LIES);
        }
        let export = find(name, exports)?;
        if matches {
            let mut item = Vec::with_capacity(32);
            item.put_u32(if set { proto::BASE_ALLOCATION_ID } else { 0 });
            item.put(proto::BASE_ALLOCATION.as_bytes());
            self.reply(option, rep::META_CONTEXT, &item);
            if set {
                self.allocation = Some((export.pool, export.volume));
            }
        }
        Ok(())
    }

    fn reply(&mut self, option: u32, reply: u32, data: &[u8]) {
        proto::put_option_reply(&mut self.output, option, reply, data);
    }

    fn refuse(&mut self, option: u32, (error, words): Refusal) {
        self.reply(option, error, words.as_bytes());
    }
}

fn known(option: u32) -> bool {
    matches!(
        option,
        opt::EXPORT_NAME
            | opt::ABORT
            | opt::LIST
            | opt::STARTTLS
            | opt::INFO
            | opt::GO
            | opt::STRUCTURED_REPLY
            | opt::LIST_META_CONTEXT
            | opt::SET_META_CONTEXT
    )
}

/// No string of ours is longer than the protocol allows.
fn text(words: &str) -> &[u8] {
    words.as_bytes().get(..words.len().min(STRING_MAX)).unwrap_or_default()
}

/// The export of this name; the empty name is the only export when there is exactly one.
fn find(name: &[u8], exports: &dyn Exports) -> Result<ExportInfo, Refusal> {
    if name.len() > STRING_MAX {
        return Err((rep::ERR_TOO_BIG, "the name is too long"));
    }
    let name = match std::str::from_utf8(name) {
        Ok(name) if !name.contains('\0') => name,
        _ => return Err((rep::ERR_INVALID, "the name is not UTF-8 text")),
    };
    let found = exports.lookup(name).or_else(|| {
        let mut all = if name.is_empty() { exports.list() } else { Vec::new() };
        if all.len() == 1 { all.pop() } else { None }
    });
    found.ok_or((rep::ERR_UNKNOWN, "no export of this name"))
}
