//! Our own NBD client: blocking, pipelining, small. For tests, the demo and the load generator.
//!
//! Requests collect in a buffer until [`Client::push`] (or [`Client::recv`], which pushes first), so many leave in one
//! write. The caller limits how many are in flight. A server is trusted as little as a client: lengths and offsets of
//! replies are held against what was asked, and every answer carries its error.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::proto::{self, PAYLOAD_MAX, Put, Reader, RequestHeader, chunk, cmd, hs, info, opt, rep};

/// Bytes that one read takes.
const INPUT: usize = 256 << 10;
/// Longest option reply of a server that is believed.
const OPTION_REPLY_MAX: usize = 64 << 10;
/// Replies to one option that are read.
const OPTION_REPLIES_MAX: usize = 10_000;
/// Longest chunk without read data that is believed: 2^20 extents, as the protocol says.
const CHUNK_MAX: usize = (8 << 20) + 4;

/// Why it did not work.
#[derive(Debug)]
pub enum ClientError {
    /// The socket.
    Io(io::Error),
    /// The server said no to an option.
    Refused {
        /// [`opt`].
        option: u32,
        /// [`rep`].
        reply: u32,
        /// The server's words.
        message: String,
    },
    /// The server broke the protocol.
    Protocol(&'static str),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Io(e) => write!(f, "{e}"),
            ClientError::Refused { option, reply, message } => {
                write!(f, "the server refused option {option} ({reply:#x}): {message}")
            }
            ClientError::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        ClientError::Io(e)
    }
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Structured replies.
    pub structured: bool,
    /// `base:allocation`.
    pub allocation: bool,
    /// EXPORT_NAME instead of GO.
    pub old: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Wish { structured: true, allocation: true, old: false }
    }
}

/// A completed request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The request's name.
    pub cookie: u64,
    /// 0, or a number of [`proto::err`].
    pub error: u32,
    /// The server's words about the error.
    pub message: String,
    /// What was read.
    pub data: Vec<u8>,
    /// What block status said: length and flags.
    pub extents: Vec<(u32, u32)>,
    /// Bytes of `data` that came as holes.
    pub hole_bytes: u64,
    /// Content chunks that came.
    pub chunks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: u16,
    offset: u64,
    len: u32,
}

/// A connection after negotiation.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    /// Size of the export.
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Structured replies were agreed.
    pub structured: bool,
    /// `base:allocation` was agreed.
    pub allocation: bool,
    /// The server's canonical name and description, when it gave them.
    pub about: (String, String),
    /// Minimum, preferred and maximum size, when the server gave them.
    pub sizes: Option<(u32, u32, u32)>,
    out: Vec<u8>,
    input: Vec<u8>,
    start: usize,
    end: usize,
    asked: HashMap<u64, Asked>,
}

impl Client<UnixStream> {
    /// Connects to a Unix socket.
    pub fn connect(path: &Path, export: &str, wish: Wish) -> Result<Self, ClientError> {
        Client::negotiate(UnixStream::connect(path)?, export, wish)
    }
}

impl Client<TcpStream> {
    /// Connects over TCP.
    pub fn connect_tcp(address: SocketAddr, export: &str, wish: Wish) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Client::negotiate(stream, export, wish)
    }
}

/// Reads the greeting and sends the client flags.
pub fn greet<S: Read + Write>(stream: &mut S) -> Result<(), ClientError> {
    let mut greeting = [0u8; 18];
    stream.read_exact(&mut greeting)?;
    let mut r = Reader(&greeting);
    if r.u64() != Some(proto::NBDMAGIC) || r.u64() != Some(proto::IHAVEOPT) {
        return Err(ClientError::Protocol("not a newstyle NBD server"));
    }
    let theirs = r.u16().unwrap_or(0);
    if theirs & hs::FIXED_NEWSTYLE == 0 {
        return Err(ClientError::Protocol("no fixed newstyle"));
    }
    let ours = u32::from(theirs & (hs::FIXED_NEWSTYLE | hs::NO_ZEROES));
    stream.write_all(&ours.to_be_bytes())?;
    Ok(())
}

/// Sends an option and reads its replies; the last is the final one.
pub fn option<S: Read + Write>(stream: &mut S, option: u32, data: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
    let mut out = Vec::with_capacity(data.len().saturating_add(16));
    proto::put_option(&mut out, option, data);
    stream.write_all(&out)?;
    replies(stream, option)
}

/// Reads the replies to an option; the last is the final one.
pub fn replies<S: Read>(stream: &mut S, option: u32) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
    let mut all = Vec::new();
    loop {
        let mut header = [0u8; 20];
        stream.read_exact(&mut header)?;
        let mut r = Reader(&header);
        if r.u64() != Some(proto::REP_MAGIC) || r.u32() != Some(option) {
            return Err(ClientError::Protocol("not a reply to this option"));
        }
        let reply = r.u32().unwrap_or(0);
        let len = r.u32().unwrap_or(u32::MAX) as usize;
        if len > OPTION_REPLY_MAX || all.len() > OPTION_REPLIES_MAX {
            return Err(ClientError::Protocol("endless option replies"));
        }
        let mut data = vec![0; len];
        stream.read_exact(&mut data)?;
        all.push((reply, data));
        if reply == rep::ACK || reply & rep::ERR != 0 {
            return Ok(all);
        }
    }
}

fn accepted(option: u32, replies: Vec<(u32, Vec<u8>)>) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
    match replies.last() {
        Some((rep::ACK, _)) => Ok(replies),
        Some((reply, data)) => {
            Err(ClientError::Refused { option, reply: *reply, message: String::from_utf8_lossy(data).into_owned() })
        }
        None => Err(ClientError::Protocol("no reply")),
    }
}

/// The names of all exports, with descriptions.
pub fn list<S: Read + Write>(stream: &mut S) -> Result<Vec<(String, String)>, ClientError> {
    let mut all = Vec::new();
    for (reply, data) in accepted(opt::LIST, option(stream, opt::LIST, &[])?)? {
        if reply == rep::SERVER {
            let mut r = Reader(&data);
            let name = r.string().ok_or(ClientError::Protocol("a name longer than its reply"))?;
            all.push((String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(r.0).into_owned()));
        }
    }
    Ok(all)
}

/// Data of INFO and GO.
pub fn go_data(export: &str, items: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(export.len() as u32);
    data.put(export.as_bytes());
    data.put_u16(items.len() as u16);
    for item in items {
        data.put_u16(*item);
    }
    data
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn meta_data(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(export.len() as u32);
    data.put(export.as_bytes());
    data.put_u32(queries.len() as u32);
    for query in queries {
        data.put_u32(query.len() as u32);
        data.put(query.as_bytes());
    }
    data
}

#[cfg(feature = "tls")]
impl Client<rustls::StreamOwned<rustls::ClientConnection, UnixStream>> {
    /// Connects to a Unix socket and starts TLS; `server` is the name that the certificate must carry.
    pub fn connect_tls(
        path: &Path,
        export: &str,
        wish: Wish,
        config: std::sync::Arc<rustls::ClientConfig>,
        server: &str,
    ) -> Result<Self, ClientError> {
        let mut stream = UnixStream::connect(path)?;
        greet(&mut stream)?;
        accepted(opt::STARTTLS, option(&mut stream, opt::STARTTLS, &[])?)?;
        let name = rustls::pki_types::ServerName::try_from(server.to_owned()).map_err(io::Error::other)?;
        let tls = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
        Client::haggle(rustls::StreamOwned::new(tls, stream), export, wish)
    }
}

impl<S: Read + Write> Client<S> {
    /// The whole handshake on a fresh connection.
    pub fn negotiate(mut stream: S, export: &str, wish: Wish) -> Result<Self, ClientError> {
        greet(&mut stream)?;
        Client::haggle(stream, export, wish)
    }

    /// The options, after [`greet`].
    pub fn haggle(mut stream: S, export: &str, wish: Wish) -> Result<Self, ClientError> {
        let structured = wish.structured && {
            let replies = option(&mut stream, opt::STRUCTURED_REPLY, &[])?;
            accepted(opt::STRUCTURED_REPLY, replies).is_ok()
        };
        let allocation = structured && wish.allocation && {
            let data = meta_data(export, &[proto::BASE_ALLOCATION]);
            let replies = option(&mut stream, opt::SET_META_CONTEXT, &data)?;
            replies.iter().any(|(reply, _)| *reply == rep::META_CONTEXT)
        };
        let mut client = Client {
            stream,
            size: 0,
            flags: 0,
            structured,
            allocation,
            about: Default::default(),
            sizes: None,
            out: Vec::new(),
            input: vec![0; INPUT],
            start: 0,
            end: 0,
            asked: HashMap::new(),
        };
        if wish.old {
            let mut out = Vec::new();
            proto::put_option(&mut out, opt::EXPORT_NAME, export.as_bytes());
            client.stream.write_all(&out)?;
            let mut answer = [0u8; 10];
            client.stream.read_exact(&mut answer)?;
            let mut r = Reader(&answer);
            client.size = r.u64().unwrap_or(0);
            client.flags = r.u16().unwrap_or(0);
            return Ok(client);
        }
        let data = go_data(export, &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]);
        let mut seen = false;
        for (reply, data) in accepted(opt::GO, option(&mut client.stream, opt::GO, &data)?)? {
            let mut r = Reader(&data);
            match (reply, r.u16()) {
                (rep::INFO, Some(info::EXPORT)) => {
                    let (Some(size), Some(flags)) = (r.u64(), r.u16()) else {
                        return Err(ClientError::Protocol("a short INFO_EXPORT"));
                    };
                    (client.size, client.flags, seen) = (size, flags, true);
                }
                (rep::INFO, Some(info::NAME)) => client.about.0 = String::from_utf8_lossy(r.0).into_owned(),
                (rep::INFO, Some(info::DESCRIPTION)) => client.about.1 = String::from_utf8_lossy(r.0).into_owned(),
                (rep::INFO, Some(info::BLOCK_SIZE)) => {
                    client.sizes = (|| Some((r.u32()?, r.u32()?, r.u32()?)))();
                }
                _ => {}
            }
        }
        if seen { Ok(client) } else { Err(ClientError::Protocol("GO without INFO_EXPORT")) }
    }

    /// The stream, for tests that leave the beaten track.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Queues any request without payload; `cookie` must not be in flight.
    pub fn send(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
        RequestHeader { flags, kind, cookie, offset, len }.encode(&mut self.out);
        if kind != cmd::DISC {
            self.asked.insert(cookie, Asked { kind, offset, len });
        }
    }

    /// Queues a read.
    pub fn send_read(&mut self, cookie: u64, offset: u64, len: u32) {
        self.send(cmd::READ, 0, cookie, offset, len);
    }

    /// Queues a write of all of `data`.
    pub fn send_write(&mut self, cookie: u64, flags: u16, offset: u64, data: &[u8]) {
        self.send(cmd::WRITE, flags, cookie, offset, data.len() as u32);
        self.out.put(data);
    }

    /// Sends what is queued.
    pub fn push(&mut self) -> Result<(), ClientError> {
        if !self.out.is_empty() {
            let result = self.stream.write_all(&self.out).and_then(|()| self.stream.flush());
            self.out.clear();
            result?;
        }
        Ok(())
    }

    /// Says goodbye.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        self.send(cmd::DISC, 0, 0, 0, 0);
        self.push()
    }

    /// One request and its answer; nothing else may be in flight.
    pub fn call(&mut self, kind: u16, flags: u16, offset: u64, len: u32) -> Result<Answer, ClientError> {
        self.send(kind, flags, 1, offset, len);
        self.recv()
    }

    /// One read.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<Answer, ClientError> {
        self.call(cmd::READ, 0, offset, len)
    }

    /// One write.
    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Result<Answer, ClientError> {
        self.send_write(1, flags, offset, data);
        self.recv()
    }

    /// The next completed request.
    pub fn recv(&mut self) -> Result<Answer, ClientError> {
        let mut answer = Answer::default();
        self.recv_into(&mut answer)?;
        Ok(answer)
    }

    /// The next completed request, into memory used before. With structured replies the chunks of one request must
    /// not be mixed with those of others; braid's server never does.
    pub fn recv_into(&mut self, answer: &mut Answer) -> Result<(), ClientError> {
        self.push()?;
        answer.error = 0;
        answer.message.clear();
        answer.data.clear();
        answer.extents.clear();
        (answer.hole_bytes, answer.chunks) = (0, 0);
        let mut covered = 0u64;
        let mut first = true;
        loop {
            let magic = self.field(4)?;
            if magic == u64::from(proto::SIMPLE_REPLY_MAGIC) {
                let (error, cookie) = (self.field(4)? as u32, self.field(8)?);
                let asked = self.asked.remove(&cookie).ok_or(ClientError::Protocol("an answer to nothing"))?;
                (answer.cookie, answer.error) = (cookie, error);
                if asked.kind == cmd::READ && error == 0 {
                    if self.structured {
                        return Err(ClientError::Protocol("a simple reply to a read"));
                    }
                    self.bytes_into(&mut answer.data, asked.len as usize)?;
                }
                return Ok(());
            }
            if magic != u64::from(proto::STRUCTURED_REPLY_MAGIC) || !self.structured {
                return Err(ClientError::Protocol("not a reply"));
            }
            let (flags, kind) = (self.field(2)? as u16, self.field(2)? as u16);
            let (cookie, len) = (self.field(8)?, self.field(4)? as usize);
            let Some(&asked) = self.asked.get(&cookie) else {
                return Err(ClientError::Protocol("an answer to nothing"));
            };
            if !first && answer.cookie != cookie {
                return Err(ClientError::Protocol("mixed chunks"));
            }
            answer.cookie = cookie;
            let end = asked.offset.saturating_add(u64::from(asked.len));
            if first && asked.kind == cmd::READ {
                answer.data.resize(asked.len.min(PAYLOAD_MAX) as usize, 0);
            }
            first = false;
            match kind {
                chunk::NONE if len == 0 => {}
                chunk::OFFSET_DATA | chunk::OFFSET_HOLE if asked.kind == cmd::READ => {
                    let wrong = ClientError::Protocol("a chunk outside its request");
                    let hole = kind == chunk::OFFSET_HOLE;
                    if (hole && len != 12) || len < 9 {
                        return Err(ClientError::Protocol("a chunk of the wrong length"));
                    }
                    let offset = self.field(8)?;
                    let bytes = if hole { self.field(4)? } else { (len as u64).saturating_sub(8) };
                    let at = offset.checked_sub(asked.offset);
                    let (Some(at), true) = (at, offset.checked_add(bytes).is_some_and(|top| top <= end)) else {
                        return Err(wrong);
                    };
                    let mut data = std::mem::take(&mut answer.data);
                    let result = match data.get_mut(at as usize..at.saturating_add(bytes) as usize) {
                        Some(to) if hole => {
                            to.fill(0);
                            Ok(())
                        }
                        Some(to) => self.bytes(to),
                        None => Err(wrong),
                    };
                    answer.data = data;
                    result?;
                    if hole {
                        answer.hole_bytes = answer.hole_bytes.saturating_add(bytes);
                    }
                    answer.chunks = answer.chunks.saturating_add(1);
                    covered = covered.saturating_add(bytes);
                }
                _ => {
                    if len > CHUNK_MAX {
                        return Err(ClientError::Protocol("a chunk too long to believe"));
                    }
                    let mut body = Vec::new();
                    self.bytes_into(&mut body, len)?;
                    let mut r = Reader(&body);
                    if kind & chunk::ERR != 0 {
                        let short = || ClientError::Protocol("a short error chunk");
                        answer.error = r.u32().filter(|e| *e != 0).ok_or_else(short)?;
                        let words = r.u16().and_then(|n| r.take(n as usize)).ok_or_else(short)?;
                        answer.message = String::from_utf8_lossy(words).into_owned();
                    } else if kind == chunk::BLOCK_STATUS && asked.kind == cmd::BLOCK_STATUS {
                        r.u32();
                        while let (Some(len), Some(flags)) = (r.u32(), r.u32()) {
                            answer.extents.push((len, flags));
                        }
                    } else {
                        return Err(ClientError::Protocol("a chunk of unknown kind"));
                    }
                }
            }
            if flags & chunk::FLAG_DONE != 0 {
                self.asked.remove(&cookie);
                if asked.kind == cmd::READ && answer.error == 0 && covered != u64::from(asked.len) {
                    return Err(ClientError::Protocol("less data than was asked for"));
                }
                if answer.error != 0 {
                    answer.data.clear();
                }
                return Ok(());
            }
        }
    }

    /// A big-endian field of at most eight bytes.
    fn field(&mut self, n: usize) -> Result<u64, ClientError> {
        while self.end.saturating_sub(self.start) < n {
            self.input.copy_within(self.start..self.end, 0);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
            let got = self.stream.read(self.input.get_mut(self.end..).unwrap_or_default())?;
            if got == 0 {
                return Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            self.end = self.end.saturating_add(got);
        }
        let to = self.start.saturating_add(n);
        let bytes = self.input.get(self.start..to).unwrap_or_default();
        let value = bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        self.start = to;
        Ok(value)
    }

    fn bytes(&mut self, to: &mut [u8]) -> Result<(), ClientError> {
        let have = self.input.get(self.start..self.end).unwrap_or_default();
        let n = have.len().min(to.len());
        let (front, rest) = to.split_at_mut(n);
        front.copy_from_slice(have.get(..n).unwrap_or_default());
        self.start = self.start.saturating_add(n);
        // Small rests go through the buffer, so that the next replies come with them.
        if rest.is_empty() {
            return Ok(());
        }
        if rest.len() >= INPUT / 2 {
            self.stream.read_exact(rest)?;
            return Ok(());
        }
        (self.start, self.end) = (0, 0);
        while self.end < rest.len() {
            let got = self.stream.read(self.input.get_mut(self.end..).unwrap_or_default())?;
            if got == 0 {
                return Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            self.end = self.end.saturating_add(got);
        }
        rest.copy_from_slice(self.input.get(..rest.len()).unwrap_or_default());
        self.start = rest.len();
        Ok(())
    }

    fn bytes_into(&mut self, to: &mut Vec<u8>, len: usize) -> Result<(), ClientError> {
        to.resize(len, 0);
        self.bytes(to)
    }
}
