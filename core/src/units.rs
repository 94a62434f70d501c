//! Units and names: the only place where one turns into another.
//!
//! | name | size | what it is |
//! |---|---|---|
//! | sector | 512 B | the unit of the published stripe arithmetic only |
//! | block | 4 KiB | what a volume is addressed in; the smallest device I/O |
//! | strip | 64 KiB | part of a stripe in one column |
//! | unit | 64 KiB | granularity of a volume's map |
//!
//! All offsets and lengths are bytes unless the name says otherwise.

use core::fmt;
use core::ops::{Add, Sub};

/// 1 KiB.
pub const KIB: u64 = 1 << 10;
/// 1 MiB.
pub const MIB: u64 = 1 << 20;
/// 1 GiB.
pub const GIB: u64 = 1 << 30;
/// 1 TiB.
pub const TIB: u64 = 1 << 40;

/// Smallest addressable piece of a volume and of a device.
pub const BLOCK: u64 = 4 * KIB;
/// Bytes of one stripe element in one column.
pub const STRIP: u64 = 64 * KIB;
/// Bytes of one entry of a volume's map.
pub const UNIT: u64 = 64 * KIB;
/// Blocks in one map entry: each has its own "written" bit.
pub const BLOCKS_PER_UNIT: u64 = UNIT / BLOCK;

const _: () = assert!(UNIT.is_multiple_of(BLOCK) && BLOCKS_PER_UNIT == 16);
const _: () = assert!(UNIT.is_multiple_of(STRIP), "a unit never ends inside a strip");

/// A moment, in nanoseconds since an origin that only the caller knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Nanoseconds from `earlier` to `self`; zero when the caller's clock went backwards.
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Instant {
    type Output = Instant;
    fn add(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Instant {
    type Output = Instant;
    fn sub(self, ns: u64) -> Instant {
        Instant(self.0.saturating_sub(ns))
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A member device; 1-based as users see it, never reused within a pool.
    DeviceId
);
id!(
    /// A chunk: the allocation unit of pool space.
    ChunkId
);
id!(
    /// A volume.
    VolumeId
);
id!(
    /// Who is asking: a connection, a FUSE mount, a queue. The key of the `pid` read policy.
    ClientId
);
id!(
    /// One I/O to one device; dispatches are named by their first one.
    IoId
);
id!(
    /// A payload buffer that the host owns; the core only passes the name around.
    BufId
);

/// A piece of a payload buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufRange {
    /// The buffer.
    pub buf: BufId,
    /// First byte within the buffer.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// 128-bit identity of a pool or device, written the RFC 4122 way.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Largest multiple of `to` that is not above `value`.
pub const fn round_down(value: u64, to: u64) -> u64 {
    value / to * to
}

/// Smallest multiple of `to` that is not below `value`.
pub const fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}
