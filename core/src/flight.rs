//! A flight record: everything that came into one engine, from its opening on, so that another engine can be given the same.
//!
//! ```text
//!   "BRAIDFL2"  boot  superblocks  reads of the opening  open  { handle | poll | digest }*
//! ```
//!
//! An engine is a function of what it was opened from and of its inputs and their times. So the record holds those, and of
//! the outputs only how many there were and a digest of them in order. Each entry is a tag and its fields, little-endian; the
//! format is in `docs/lab.md`. Payload is in none of them.
//!
//! A record may end anywhere: there is a digest every 64 KiB, which says whether the outputs were the same up to there.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::allocator::{Hint, Tiers};
use crate::control::{Command, VolumeClass};
use crate::device::DeviceClass;
use crate::meta::assembly::MetaRead;
use crate::meta::codec::{Malformed, Reader, Writer};
use crate::meta::format::NewDevice;
use crate::meta::record::{decode_choice, encode_choice};
use crate::meta::superblock::Age;
use crate::request::{Content, Input, IoError, Op, Output, Request};
use crate::units::{BufId, ClientId, DeviceId, Instant, IoId, Uuid, VolumeId};

/// What a record begins with.
pub const MAGIC: &[u8; 8] = b"BRAIDFL2";

/// One entry.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The boot of the machine.
    Boot(Uuid),
    /// The superblock of a member that was there.
    Superblock(Vec<u8>),
    /// What a read of the opening gave.
    Read(MetaRead, Result<Vec<u8>, IoError>),
    /// The engine began, with this random number.
    Open(Uuid),
    /// An input.
    Handle(Instant, Input),
    /// So many outputs were taken at one moment, with no input between them.
    Poll(Instant, u32),
    /// How many outputs there were so far, and their digest.
    End(u64, u64),
}

/// A digest of outputs in order: FNV-1a over what they say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How many.
    pub outputs: u64,
    /// The digest.
    pub hash: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { outputs: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

impl Digest {
    /// Takes in one.
    pub fn add(&mut self, output: &Output) {
        self.outputs += 1;
        write!(self, "{output:?};").expect("a digest takes everything");
    }
}

impl Entry {
    /// Appends it.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut w = Writer { bytes: core::mem::take(bytes) };
        match self {
            Entry::Boot(boot) => w.u8(1).uuid(*boot),
            Entry::Superblock(slot) => w.u8(2).u32(slot.len() as u32).raw(slot),
            Entry::Read(read, result) => {
                w.u8(3).u32(read.device.0).u64(read.offset).u64(read.len);
                match result {
                    Ok(found) => w.u8(0).u32(found.len() as u32).raw(found),
                    Err(error) => w.u8(error_code(*error)),
                }
            }
            Entry::Open(opening) => w.u8(4).uuid(*opening),
            Entry::Handle(now, input) => encode_input(w.u8(5).u64(now.0), input),
            Entry::Poll(now, count) => w.u8(6).u64(now.0).u32(*count),
            Entry::End(outputs, hash) => w.u8(7).u64(*outputs).u64(*hash),
        };
        *bytes = w.bytes;
    }
}

/// The entries of a record.
pub struct Entries<'a>(Reader<'a>);

#[deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
impl<'a> Entries<'a> {
    /// Of a whole record.
    pub fn new(record: &'a [u8]) -> Result<Entries<'a>, Malformed> {
        let mut reader = Reader::new(record);
        match reader.take(MAGIC.len())? == MAGIC {
            true => Ok(Entries(reader)),
            false => Err(Malformed),
        }
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let r = &mut self.0;
        let bytes = |r: &mut Reader<'a>| {
            let len = r.u32()?;
            r.take(len as usize).map(<[u8]>::to_vec)
        };
        Ok(match r.u8()? {
            1 => Entry::Boot(r.uuid()?),
            2 => Entry::Superblock(bytes(r)?),
            3 => {
                let read = MetaRead { device: DeviceId(r.u32()?), offset: r.u64()?, len: r.u64()? };
                let result = match r.u8()? {
                    0 => Ok(bytes(r)?),
                    code => Err(error_of(code)?),
                };
                Entry::Read(read, result)
            }
            4 => Entry::Open(r.uuid()?),
            5 => Entry::Handle(Instant(r.u64()?), decode_input(r)?),
            6 => Entry::Poll(Instant(r.u64()?), r.u32()?),
            7 => Entry::End(r.u64()?, r.u64()?),
            _ => return Err(Malformed),
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = (!self.0.is_empty()).then(|| self.entry())?;
        if entry.is_err() {
            // What follows is no entry, whatever it looks like.
            self.0 = Reader::new(&[]);
        }
        Some(entry)
    }
}

const ERRORS: [IoError; 4] = [IoError::Media, IoError::Gone, IoError::NoSpace, IoError::Unsupported];

fn error_code(error: IoError) -> u8 {
    ERRORS.iter().position(|known| *known == error).map_or(1, |at| at as u8 + 1)
}

fn error_of(code: u8) -> Result<IoError, Malformed> {
    ERRORS.get(usize::from(code).wrapping_sub(1)).copied().ok_or(Malformed)
}

fn encode_input<'a>(w: &'a mut Writer, input: &Input) -> &'a mut Writer {
    match input {
        Input::Submit(request) => encode_request(w.u8(1), request),
        Input::Complete { id, result } => w.u8(2).u32(id.0).u8(result.map_or_else(error_code, |()| 0)),
        Input::Control { tag, command } => encode_command(w.u8(3).u64(*tag), command),
        Input::Compared { tag, equal } => w.u8(4).u64(*tag).u8(u8::from(*equal)),
        Input::Clock { unix_s } => w.u8(5).u64(*unix_s),
        Input::Tick => w.u8(6),
        Input::Verified { tag, bad } => w.u8(7).u64(*tag).u16(*bad),
        Input::Digested { tag, crc } => w.u8(8).u64(*tag).u32(*crc),
        Input::Intact { id } => w.u8(9).u32(id.0),
        Input::Superblock { tag, generation } => w.u8(10).u64(*tag).u64(generation.unwrap_or(0)),
    }
}

fn decode_input(r: &mut Reader<'_>) -> Result<Input, Malformed> {
    Ok(match r.u8()? {
        1 => Input::Submit(decode_request(r)?),
        2 => {
            let id = IoId(r.u32()?);
            let result = match r.u8()? {
                0 => Ok(()),
                code => Err(error_of(code)?),
            };
            Input::Complete { id, result }
        }
        3 => Input::Control { tag: r.u64()?, command: decode_command(r)? },
        4 => Input::Compared { tag: r.u64()?, equal: r.u8()? == 1 },
        5 => Input::Clock { unix_s: r.u64()? },
        6 => Input::Tick,
        7 => Input::Verified { tag: r.u64()?, bad: r.u16()? },
        8 => Input::Digested { tag: r.u64()?, crc: r.u32()? },
        9 => Input::Intact { id: IoId(r.u32()?) },
        10 => Input::Superblock { tag: r.u64()?, generation: Some(r.u64()?).filter(|&generation| generation > 0) },
        _ => return Err(Malformed),
    })
}

fn encode_request<'a>(w: &'a mut Writer, request: &Request) -> &'a mut Writer {
    let Request { tag, client, volume, op, offset, len, buf, content, no_merge } = *request;
    let op = match op {
        Op::Read => 0,
        Op::Write { fua } => 1 + u8::from(fua),
        Op::Flush => 3,
        Op::Discard => 4,
        Op::WriteZeroes { fua, no_hole } => 5 + u8::from(fua) + 2 * u8::from(no_hole),
    };
    w.u64(tag).u32(client.0).u32(volume.0).u8(op).u64(offset).u64(len).u32(buf.0);
    w.u8(content as u8).u8(u8::from(no_merge))
}

fn decode_request(r: &mut Reader<'_>) -> Result<Request, Malformed> {
    let (tag, client, volume) = (r.u64()?, ClientId(r.u32()?), VolumeId(r.u32()?));
    let op = match r.u8()? {
        0 => Op::Read,
        1 => Op::Write { fua: false },
        2 => Op::Write { fua: true },
        3 => Op::Flush,
        4 => Op::Discard,
        bits @ 5..=8 => Op::WriteZeroes { fua: matches!(bits, 6 | 8), no_hole: bits > 6 },
        _ => return Err(Malformed),
    };
    let (offset, len, buf) = (r.u64()?, r.u64()?, BufId(r.u32()?));
    let content = match r.u8()? {
        0 => Content::Unsaid,
        1 => Content::Data,
        2 => Content::Metadata,
        _ => return Err(Malformed),
    };
    Ok(Request { tag, client, volume, op, offset, len, buf, content, no_merge: r.u8()? == 1 })
}

fn encode_command<'a>(w: &'a mut Writer, command: &Command) -> &'a mut Writer {
    match command {
        Command::CreateVolume { name, size, class } => w.u8(1).text(name).u64(*size).u8(*class as u8),
        Command::ResizeVolume { volume, size } => w.u8(2).u32(volume.0).u64(*size),
        Command::RenameVolume { volume, name } => w.u8(3).u32(volume.0).text(name),
        Command::SetVolumeClass { volume, class } => w.u8(4).u32(volume.0).u8(*class as u8),
        Command::DestroyVolume { volume } => w.u8(5).u32(volume.0),
        Command::Set { name, value } => w.u8(6).text(name).text(value),
        Command::SetDevice { device, name, value } => w.u8(7).u32(device.0).text(name).text(value),
        Command::Checkpoint => w.u8(8),
        Command::Close => w.u8(9),
        Command::ScrubStart => w.u8(10),
        Command::ScrubPause => w.u8(11),
        Command::ScrubResume => w.u8(12),
        Command::ScrubCancel => w.u8(13),
        Command::OnlineDevice { device, found: None } => w.u8(16).u32(device.0),
        Command::OnlineDevice { device, found: Some(Age { generation, image }) } => {
            w.u8(19).u32(device.0).u64(*generation).u64(*image)
        }
        Command::OfflineDevice { device } => w.u8(17).u32(device.0),
        Command::ClearErrors { device } => w.u8(18).u32(device.map_or(0, |id| id.0)),
        Command::AddDevice(new) => encode_new(w.u8(20), new),
        Command::AddSpare(new) => encode_new(w.u8(27), new),
        Command::RemoveDevice { device } => w.u8(21).u32(device.0),
        Command::Balance { data, metadata } => {
            w.u8(22);
            [data, metadata].into_iter().for_each(|choice| encode_choice(w, choice.as_ref()));
            w
        }
        Command::ReplaceDevice { device, by } => w.u8(26).u32(device.0).u32(by.0),
        Command::ReplaceWith { device, new } => encode_new(w.u8(28).u32(device.0), new),
        Command::JobPause => w.u8(23),
        Command::JobResume => w.u8(24),
        Command::JobCancel => w.u8(25),
        Command::SetVolumeChecksum { volume, on } => w.u8(14).u32(volume.0).u8(u8::from(*on)),
    }
}

fn decode_command(r: &mut Reader<'_>) -> Result<Command, Malformed> {
    let class = |r: &mut Reader<'_>| {
        let class = r.u8()?;
        VolumeClass::ALL.into_iter().find(|known| *known as u8 == class).ok_or(Malformed)
    };
    Ok(match r.u8()? {
        1 => Command::CreateVolume { name: r.text()?, size: r.u64()?, class: class(r)? },
        2 => Command::ResizeVolume { volume: VolumeId(r.u32()?), size: r.u64()? },
        3 => Command::RenameVolume { volume: VolumeId(r.u32()?), name: r.text()? },
        4 => Command::SetVolumeClass { volume: VolumeId(r.u32()?), class: class(r)? },
        5 => Command::DestroyVolume { volume: VolumeId(r.u32()?) },
        6 => Command::Set { name: r.text()?, value: r.text()? },
        7 => Command::SetDevice { device: DeviceId(r.u32()?), name: r.text()?, value: r.text()? },
        8 => Command::Checkpoint,
        9 => Command::Close,
        10 => Command::ScrubStart,
        11 => Command::ScrubPause,
        12 => Command::ScrubResume,
        13 => Command::ScrubCancel,
        16 => Command::OnlineDevice { device: DeviceId(r.u32()?), found: None },
        17 => Command::OfflineDevice { device: DeviceId(r.u32()?) },
        18 => Command::ClearErrors { device: Some(DeviceId(r.u32()?)).filter(|id| id.0 > 0) },
        19 => Command::OnlineDevice {
            device: DeviceId(r.u32()?),
            found: Some(Age { generation: r.u64()?, image: r.u64()? }),
        },
        20 => Command::AddDevice(decode_new(r)?.into()),
        21 => Command::RemoveDevice { device: DeviceId(r.u32()?) },
        22 => Command::Balance { data: decode_choice(r)?, metadata: decode_choice(r)? },
        23 => Command::JobPause,
        24 => Command::JobResume,
        25 => Command::JobCancel,
        26 => Command::ReplaceDevice { device: DeviceId(r.u32()?), by: DeviceId(r.u32()?) },
        27 => Command::AddSpare(decode_new(r)?.into()),
        28 => Command::ReplaceWith { device: DeviceId(r.u32()?), new: decode_new(r)?.into() },
        14 => Command::SetVolumeChecksum { volume: VolumeId(r.u32()?), on: r.u8()? == 1 },
        _ => return Err(Malformed),
    })
}

fn encode_new<'a>(w: &'a mut Writer, new: &NewDevice) -> &'a mut Writer {
    let NewDevice { uuid, path, size, class, rotational, tiers, hint } = new;
    w.uuid(*uuid).text(path).u64(*size).text(class.name()).u8(u8::from(*rotational)).u8(*hint as u8);
    match tiers {
        None => w.u8(0),
        Some(tiers) => w.u8(1).u8(tiers.data).u8(tiers.metadata),
    }
}

fn decode_new(r: &mut Reader<'_>) -> Result<NewDevice, Malformed> {
    let (uuid, path, size) = (r.uuid()?, r.text()?, r.u64()?);
    let class = DeviceClass::parse(&r.text()?).ok_or(Malformed)?;
    let rotational = r.u8()? == 1;
    let hint = Hint::ALL.get(usize::from(r.u8()?)).copied().ok_or(Malformed)?;
    let tiers = match r.u8()? {
        0 => None,
        _ => Some(Tiers { data: r.u8()?, metadata: r.u8()? }),
    };
    Ok(NewDevice { uuid, path, size, class, rotational, tiers, hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::job::Choice;
    use std::format;
    use std::vec;

    fn request(op: Op) -> Input {
        let (client, volume, buf) = (ClientId(2), VolumeId(3), BufId(4));
        let content = Content::Metadata;
        Input::Submit(Request { tag: 1, client, volume, op, offset: 5, len: 6, buf, content, no_merge: true })
    }

    fn new_device(tiers: Option<Tiers>) -> NewDevice {
        let class = DeviceClass::parse("ssd").expect("a class");
        let (uuid, hint) = (Uuid([7; 16]), Hint::MetadataOnly);
        NewDevice { uuid, path: "disk".into(), size: 1 << 30, class, rotational: true, tiers, hint }
    }

    #[test]
    fn every_entry_reads_back_and_a_cut_is_malformed() {
        let read = MetaRead { device: DeviceId(1), offset: 4096, len: 3 };
        let control = |command| Entry::Handle(Instant(9), Input::Control { tag: 8, command });
        let (volume, name, value) = (VolumeId(1), "n".into(), "v".into());
        let choice = Choice { convert: Some(Profile::Raid1), device: Some(DeviceId(2)), limit: 3, ..Choice::default() };
        let mut entries = vec![
            Entry::Boot(Uuid([1; 16])),
            Entry::Superblock(vec![1, 2, 3]),
            Entry::Read(read, Ok(vec![7; 3])),
            Entry::Read(read, Err(IoError::Unsupported)),
            Entry::Open(Uuid([2; 16])),
            Entry::Poll(Instant(4), 5),
            Entry::Handle(Instant(1), Input::Complete { id: IoId(1), result: Err(IoError::Gone) }),
            Entry::Handle(Instant(1), Input::Complete { id: IoId(1), result: Ok(()) }),
            Entry::Handle(Instant(1), Input::Compared { tag: 1, equal: true }),
            Entry::Handle(Instant(1), Input::Clock { unix_s: 1 }),
            Entry::Handle(Instant(1), Input::Tick),
            control(Command::CreateVolume { name: "v".into(), size: 1, class: VolumeClass::Data }),
            control(Command::ResizeVolume { volume, size: 2 }),
            control(Command::RenameVolume { volume, name: "w".into() }),
            control(Command::SetVolumeClass { volume, class: VolumeClass::Metadata }),
            control(Command::DestroyVolume { volume }),
            control(Command::SetVolumeChecksum { volume, on: true }),
            Entry::Handle(Instant(1), Input::Verified { tag: 1, bad: 0x8001 }),
            Entry::Handle(Instant(1), Input::Digested { tag: 2, crc: 0x89ab_cdef }),
            Entry::Handle(Instant(1), Input::Intact { id: IoId(7) }),
            Entry::Handle(Instant(1), Input::Superblock { tag: 1, generation: Some(7) }),
            Entry::Handle(Instant(1), Input::Superblock { tag: 1, generation: None }),
            control(Command::Set { name, value }),
            control(Command::SetDevice { device: DeviceId(1), name: "n".into(), value: "v".into() }),
            control(Command::OnlineDevice { device: DeviceId(1), found: None }),
            control(Command::OnlineDevice { device: DeviceId(1), found: Some(Age { generation: 7, image: 3 }) }),
            control(Command::OfflineDevice { device: DeviceId(1) }),
            control(Command::ClearErrors { device: None }),
            control(Command::ClearErrors { device: Some(DeviceId(2)) }),
            control(Command::AddDevice(new_device(None).into())),
            control(Command::AddSpare(new_device(None).into())),
            control(Command::AddDevice(new_device(Some(Tiers { data: 1, metadata: 2 })).into())),
            control(Command::RemoveDevice { device: DeviceId(3) }),
            control(Command::ReplaceDevice { device: DeviceId(3), by: DeviceId(4) }),
            control(Command::ReplaceWith { device: DeviceId(3), new: new_device(None).into() }),
            control(Command::Balance { data: None, metadata: Some(choice) }),
            Entry::End(1, 2),
        ];
        let simple = [Command::Checkpoint, Command::Close, Command::ScrubStart, Command::ScrubPause];
        let simple = simple.into_iter().chain([Command::ScrubResume, Command::ScrubCancel]);
        let simple = simple.chain([Command::JobPause, Command::JobResume, Command::JobCancel]);
        entries.extend(simple.map(control));
        let changes = [false, true].into_iter().flat_map(|fua| {
            let zeroes = [false, true].map(|no_hole| Op::WriteZeroes { fua, no_hole });
            zeroes.into_iter().chain([Op::Write { fua }])
        });
        let ops = changes.chain([Op::Read, Op::Flush, Op::Discard]);
        entries.extend(ops.map(|op| Entry::Handle(Instant(1), request(op))));
        for entry in entries {
            let mut bytes = MAGIC.to_vec();
            entry.encode(&mut bytes);
            let back: Vec<_> = Entries::new(&bytes).expect("a record").collect();
            assert_eq!(format!("{back:?}"), format!("{:?}", [Ok::<_, Malformed>(&entry)]));
            for cut in MAGIC.len() + 1..bytes.len() {
                let last = Entries::new(&bytes[..cut]).expect("a record").last();
                assert!(matches!(last, Some(Err(Malformed))), "{entry:?} cut at {cut}");
            }
        }
        assert!(Entries::new(b"something else").is_err());
    }
}
