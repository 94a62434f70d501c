//! What the engine wants of disks: commands with their memory to the reactor, completions back.
//!
//! A device that cannot clear by itself is given zeros to write, a piece at a time.

use braid_core::request::{DeviceOp, Dispatch, Input, IoError, Segment};
use braid_core::units::{DeviceId, IoId, MIB};

use super::Pump;
use crate::aligned::AlignedBox;
use crate::reactor::Seg;

/// Token of a disk command that is not the engine's: zeros written where a device cannot clear by itself.
const ZEROING: u64 = 1 << 63;

/// Bytes between two joined reads that one segment takes: the published limit of such a gap.
pub(super) const WASTE: usize = 32 << 10;

/// Bytes of zeros written with one command.
const ZEROS: usize = MIB as usize;

/// Zeros being written where a device cannot clear by itself.
pub(super) struct Zeroing {
    id: IoId,
    device: DeviceId,
    at: u64,
    end: u64,
}

impl Pump {
    pub(super) fn issue(&mut self, dispatch: Dispatch) {
        let Dispatch { id, device, op, offset, len } = dispatch;
        let Some(disk) = self.disks.get(device.index()).copied().flatten() else {
            let now = self.now();
            self.engine.handle(now, Input::Complete { id, result: Err(IoError::Gone) });
            return;
        };
        let mut segs = std::mem::take(&mut self.segs);
        let mut records = Vec::new();
        for segment in self.engine.segments(id) {
            let seg = match segment {
                Segment::Payload(range) => {
                    let (ptr, len) = self.buffers.raw(range).expect("the engine names buffers that it was given");
                    Seg { ptr, len }
                }
                Segment::Record(bytes) => {
                    // Records live anywhere on the heap; a disk wants them aligned.
                    let mut copy = AlignedBox::copy_of(bytes);
                    let ptr = copy.as_mut_ptr();
                    records.push(copy);
                    Seg { ptr, len: bytes.len() }
                }
                Segment::Gap(len) => {
                    // All gaps land in one place: nobody looks at it.
                    let (ptr, whole) = (self.waste.as_mut_ptr(), WASTE as u64);
                    segs.extend((0..len / whole).map(|_| Seg { ptr, len: WASTE }));
                    Seg { ptr, len: (len % whole) as usize }
                }
            };
            segs.push(seg);
        }
        if !records.is_empty() {
            self.records.insert(id.0, records);
        }
        // SAFETY: buffers belong to their request until it is answered, records until the dispatch completes.
        unsafe { self.reactor.submit(disk, u64::from(id.0), op, offset, len, &segs) };
        segs.clear();
        self.segs = segs;
        if op == DeviceOp::WriteZeroes {
            self.zeroings.resize_with(self.zeroings.len().max(id.index() + 1), || None);
            self.zeroings[id.index()] = Some(Zeroing { id, device, at: offset, end: offset + len });
        }
    }

    pub(super) fn disk_event(&mut self, token: u64, result: Result<(), IoError>) {
        match token & ZEROING {
            0 => self.completed(IoId(token as u32), result),
            _ => self.zeroed(token, result),
        }
    }

    fn completed(&mut self, id: IoId, result: Result<(), IoError>) {
        self.records.remove(&id.0);
        if let Some(zeroing) = self.zeroings.get_mut(id.index())
            && zeroing.is_some()
        {
            if result == Err(IoError::Unsupported) {
                return self.write_zeros(id);
            }
            *zeroing = None;
        }
        let input = match result {
            Ok(()) => self.read_done(id),
            Err(_) => Input::Complete { id, result },
        };
        let now = self.now();
        self.engine.handle(now, input);
    }

    /// The device cannot clear by itself: the next piece of zeros is written.
    fn write_zeros(&mut self, id: IoId) {
        let zeros = self.zeros.get_or_insert_with(|| AlignedBox::zeroed(ZEROS));
        let Some(zeroing) = self.zeroings[id.index()].as_ref() else { return };
        let (at, len) = (zeroing.at, (zeroing.end - zeroing.at).min(ZEROS as u64));
        let Some(disk) = self.disks.get(zeroing.device.index()).copied().flatten() else { return };
        let seg = [Seg { ptr: zeros.as_mut_ptr(), len: len as usize }];
        let op = DeviceOp::Write { fua: false };
        // SAFETY: the zeros live as long as the pump and are never written to.
        unsafe { self.reactor.submit(disk, ZEROING | u64::from(id.0), op, at, len, &seg) };
    }

    fn zeroed(&mut self, token: u64, result: Result<(), IoError>) {
        let id = IoId((token & !ZEROING) as u32);
        let Some(zeroing) = self.zeroings.get_mut(id.index()).and_then(Option::as_mut) else { return };
        zeroing.at = (zeroing.at + ZEROS as u64).min(zeroing.end);
        if result.is_ok() && zeroing.at < zeroing.end {
            return self.write_zeros(id);
        }
        let id = zeroing.id;
        self.zeroings[id.index()] = None;
        let now = self.now();
        self.engine.handle(now, Input::Complete { id, result });
    }
}
