//! Every page and every copy of the log: which member is asked for it, and whether what it gave is what was written.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::OnceCell;

use super::log::Ring;
use super::{Assembly, Damage, MetaRead, Stop};
use crate::chunk::Chunk;
use crate::meta::PAGE;
use crate::meta::codec::crc32c;
use crate::meta::pages::{self, Page};
use crate::meta::superblock::Superblock;
use crate::request::IoError;
use crate::units::{ChunkId, DeviceId};

/// Most copies of a page: raid1c4.
const COPIES_MAX: usize = 4;
/// Most bytes of the root: a bound for what a damaged superblock can ask for.
const ROOT_MAX: u64 = 1 << 31;

/// What a read gave.
pub(super) struct Held {
    pub(super) result: Result<Arc<Vec<u8>>, IoError>,
    /// For pages: the seal is right. Looked at once, though steps go over the same pages again and again.
    pub(super) is_sealed: OnceCell<bool>,
}

enum Fetch<'a> {
    Have(&'a [u8]),
    Need(MetaRead),
    Lost,
}

impl Assembly {
    /// The root, and its pages with those that list them. A member that missed a checkpoint has older pages at the same
    /// addresses, each of them sealed: so the root as a whole has a checksum, and each copy in turn is the first to be
    /// asked.
    pub(super) fn root(&self, system: &BTreeMap<ChunkId, &Chunk>) -> Result<(Vec<u8>, Vec<Page>), Stop> {
        let mut reason = Stop::because("its root is no copy of what was written");
        for first_copy in 0..COPIES_MAX {
            match self.root_from(system, first_copy) {
                Ok((root, pages)) if crc32c(&root) == self.superblock.root_crc => return Ok((root, pages)),
                Ok(_) => {}
                Err(need @ Stop::Need(_)) => return Err(need),
                Err(because) => reason = because,
            }
        }
        Err(reason)
    }

    fn root_from(&self, system: &BTreeMap<ChunkId, &Chunk>, first_copy: usize) -> Result<(Vec<u8>, Vec<Page>), Stop> {
        let sb = &self.superblock;
        let mut taken = Vec::new();
        let mut root_pages = unroll(&sb.root);
        if sb.root_is_listed {
            let mut runs = Vec::new();
            for payload in self.pages(system, &root_pages, first_copy)? {
                runs.extend(pages::decode_runs(payload)?);
            }
            check_runs(sb, &runs).map_err(|pages| Stop::Because(format!("its root is said to have {pages} pages")))?;
            taken.extend(root_pages.into_iter().map(|(page, _)| page));
            root_pages = unroll(&runs);
        }
        let mut root = self.pages(system, &root_pages, first_copy)?.concat();
        if root.len() < sb.root_len as usize {
            return Err(Stop::because("its root is too short"));
        }
        root.truncate(sb.root_len as usize);
        taken.extend(root_pages.into_iter().map(|(page, _)| page));
        Ok((root, taken))
    }

    /// The payloads of these pages, with their checksums where those are known; `first_copy` is asked first.
    pub(super) fn pages<'a>(
        &'a self,
        system: &BTreeMap<ChunkId, &Chunk>,
        addresses: &[(Page, Option<u32>)],
        first_copy: usize,
    ) -> Result<Vec<&'a [u8]>, Stop> {
        let mut payloads = Vec::with_capacity(addresses.len());
        let mut needs = Vec::new();
        for &(page, crc) in addresses {
            let (chunk, byte) = pages::locate(page);
            let chunk = system.get(&chunk).ok_or(Stop::because("a page is outside the system chunks"))?;
            let intact = |bytes: &[u8], is_sealed: &OnceCell<bool>| {
                *is_sealed.get_or_init(|| pages::open(bytes, self.superblock.pool, page).is_ok())
                    && crc.is_none_or(|crc| crc == pages::checksum(bytes))
            };
            match self.fetch(chunk, byte, first_copy, intact) {
                Fetch::Have(bytes) => payloads.push(pages::content(bytes)?),
                Fetch::Need(read) => needs.push(read),
                Fetch::Lost => return Err(Stop::Because(self.without_page(chunk, page))),
            }
        }
        if needs.is_empty() { Ok(payloads) } else { Err(Stop::Need(needs)) }
    }

    /// No copy that is here gives this page: in words, with the members that have others. Where those were seen last is in the
    /// records, so it is their numbers that are known.
    fn without_page(&self, chunk: &Chunk, page: Page) -> String {
        let is_here = |device: &DeviceId| self.present.contains_key(device);
        let mut absent: Vec<_> = chunk.columns.iter().map(|c| c.device).filter(|device| !is_here(device)).collect();
        absent.sort_unstable();
        absent.dedup();
        let none_is_here = !chunk.columns.iter().any(|c| is_here(&c.device));
        let names: Vec<String> = absent.iter().map(|device| format!("device {device}")).collect();
        let names = names.join(" and ");
        match (none_is_here, absent.is_empty()) {
            (true, _) => format!("its records are on {names}, and not on what is here: connect one of them"),
            (false, true) => format!("page {page:x} of its records is damaged on every copy that is here"),
            (false, false) => format!(
                "page {page:x} of its records is damaged on every copy that is here; other copies are on {names}: connect one of them"
            ),
        }
    }

    /// The first intact copy of a page, or what to read to find one.
    fn fetch(
        &self,
        chunk: &Chunk,
        byte: u64,
        first_copy: usize,
        intact: impl Fn(&[u8], &OnceCell<bool>) -> bool,
    ) -> Fetch<'_> {
        let columns = chunk.columns.iter().cycle().skip(first_copy).take(chunk.columns.len());
        for column in columns.filter(|c| self.present.contains_key(&c.device)) {
            let read = MetaRead { device: column.device, offset: column.offset + byte, len: PAGE };
            match self.have.get(&read) {
                None => return Fetch::Need(read),
                Some(Held { result: Ok(bytes), is_sealed })
                    if bytes.len() as u64 == PAGE && intact(bytes, is_sealed) =>
                {
                    return Fetch::Have(bytes);
                }
                Some(_) => {}
            }
        }
        Fetch::Lost
    }

    /// Every copy of the ring that can be read.
    pub(super) fn rings(&self) -> Result<Vec<Ring<'_>>, Stop> {
        let sb = &self.superblock;
        let ring = u64::from(sb.log_blocks);
        let (mut rings, mut needs) = (Vec::new(), Vec::new());
        for column in sb.system[0].columns.iter().filter(|c| self.present.contains_key(&c.device)) {
            let read = MetaRead { device: column.device, offset: column.offset, len: ring * PAGE };
            match self.have.get(&read).map(|held| &held.result) {
                None => needs.push(read),
                Some(Ok(bytes)) => rings.push(Ring { place: read, bytes }),
                Some(Err(_)) => {}
            }
        }
        if !needs.is_empty() {
            return Err(Stop::Need(needs));
        }
        if rings.is_empty() {
            return Err(Stop::because("its log cannot be read from any copy"));
        }
        Ok(rings)
    }

    /// Copies of pages that were looked at and are none. What was never written is no damage, nor are older pages.
    pub(super) fn bad_pages(&self) -> impl Iterator<Item = Damage> + '_ {
        self.have.iter().filter_map(|(&place, held)| match &held.result {
            Err(IoError::Gone) => None,
            &Err(error) => Some(Damage { place, error: Some(error) }),
            Ok(bytes) => {
                let is_bad = held.is_sealed.get() == Some(&false) && bytes.iter().any(|&b| b != 0);
                is_bad.then_some(Damage { place, error: None })
            }
        })
    }
}

/// Bounds what a list of runs can ask to be read, by what the system chunks hold; the error is the number of pages.
pub(super) fn check_runs(sb: &Superblock, runs: &[(Page, u32)]) -> Result<(), u64> {
    let count: u64 = runs.iter().map(|&(_, n)| u64::from(n)).sum();
    let beyond = |&(first, n): &(u64, u32)| first.checked_add(u64::from(n)).is_none();
    let there: u64 = sb.system.iter().map(|chunk| chunk.length / PAGE).sum();
    let fine = count <= there.min(ROOT_MAX / pages::PAYLOAD as u64) && !runs.iter().any(beyond);
    if fine { Ok(()) } else { Err(count) }
}

/// Every page of these runs; what it holds is not known.
fn unroll(runs: &[(Page, u32)]) -> Vec<(Page, Option<u32>)> {
    runs.iter().flat_map(|&(first, n)| (0..u64::from(n)).map(move |i| (first + i, None))).collect()
}
