//! The pool's own records: how they look on disk, how they get there, how a pool is found again.
//!
//! ```text
//!   device   | 1 MiB reserved: superblock slots at 64 KiB and 512 KiB | chunks ...
//!   system   | log: a ring of 4 KiB blocks | pages of 4 KiB: the last checkpoint, and room for the next
//!   chunk
//! ```
//!
//! * A change of the maps is a [`Record`]; records go to the *log* in groups.
//! * A *checkpoint* writes the leaves that changed to fresh pages, then the *root* (everything else), then one
//!   superblock a device that points at the root. Old pages and the log before it are free from then on.
//! * Opening a pool: newest superblock, root, leaves, log; see [`assembly`].
//!
//! Two kinds of crash differ. When only the process died, every log block that was written is there and counts. After
//! a power cut, only what was flushed is there for certain: a record may have survived whose data has not. So each
//! log block says up to which record data is known to be *stable*, and after a power cut nothing beyond counts.
//! Which of the two happened is told by the boot id in the superblock.
//!
//! `docs/format.md` has every byte.

use alloc::sync::Arc;
use alloc::vec::Vec;

pub mod assembly;
pub mod codec;
pub mod format;
#[cfg(test)]
mod golden;
pub(crate) mod image;
pub(crate) mod journal;
pub(crate) mod pages;
pub mod record;
pub(crate) mod ring;
pub mod superblock;

/// Bytes of a log block and of a page.
pub const PAGE: u64 = 4096;

/// A record as it is written, shared by all of its copies. A vector, since that is what it is encoded to: `Arc<[u8]>` would be
/// a copy of it.
pub(crate) type Bytes = Arc<Vec<u8>>;

pub use record::Record;
pub use superblock::Superblock;
