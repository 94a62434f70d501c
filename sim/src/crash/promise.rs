//! What must be there after a power cut, as far as clients and operators were told.
//!
//! Blocks are those of the [oracle](Oracle); what operators changed stands in [`Books`]: of each volume whether it is there
//! and how long, and the commit interval as one property of all. A command that was not answered may have been done or not.

use std::collections::BTreeMap;

use braid_core::Pool;

use crate::disk::SECTORS;
use crate::oracle::{Loses, Oracle};

/// Something that an operator changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// A volume, by name; its value is its size.
    Volume(String),
    /// In ms.
    CommitInterval,
}

/// What operators asked and were told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    /// What each may be; the last one is what was answered last.
    settled: BTreeMap<Entry, Vec<Option<u64>>>,
    under_way: BTreeMap<u64, (Entry, Option<u64>)>,
    /// Ids of volumes.
    ids: BTreeMap<String, u32>,
}

impl Books {
    /// A command was given.
    pub(crate) fn begin(&mut self, tag: u64, entry: Entry, value: Option<u64>) {
        self.settled.entry(entry.clone()).or_insert_with(|| vec![None]);
        self.under_way.insert(tag, (entry, value));
    }

    /// It was answered; says whether anything of it concerns the books.
    pub(crate) fn end(&mut self, tag: u64, fine: bool, id: Option<u32>) -> bool {
        let Some((entry, value)) = self.under_way.remove(&tag) else { return false };
        if let (Entry::Volume(name), Some(id)) = (&entry, id) {
            self.ids.insert(name.clone(), id);
        }
        let values = self.settled.entry(entry).or_default();
        if fine {
            values.clear();
        }
        values.push(value);
        true
    }

    /// This holds.
    pub(crate) fn settle(&mut self, entry: Entry, value: Option<u64>) {
        self.settled.insert(entry, vec![value]);
    }

    /// What was under way may have been done.
    fn after_cut(&self) -> Books {
        let mut settled = self.settled.clone();
        for (entry, value) in self.under_way.values() {
            settled.entry(entry.clone()).or_default().push(*value);
        }
        Books { settled, under_way: BTreeMap::new(), ids: self.ids.clone() }
    }

    /// A pool was opened: volumes are what they are.
    pub(crate) fn found(&mut self, pool: &Pool) {
        self.ids = pool.volumes().filter(|v| !v.is_internal()).map(|v| (v.name.clone(), v.id.0)).collect();
    }
}

/// What one block may be.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    first: [u64; SECTORS],
    more: Vec<(u8, u64)>,
}

/// A block that nobody wrote.
static UNTOUCHED: Allowed = Allowed { first: [0; SECTORS], more: Vec::new() };

impl Allowed {
    /// The first sector that may not be what it is.
    pub(crate) fn wrong(&self, stamps: &[u64; SECTORS]) -> Option<usize> {
        // Most blocks may be one thing only, and are that.
        if self.first == *stamps {
            return None;
        }
        let is_wrong = |i: &usize| self.first[*i] != stamps[*i] && !self.more.contains(&(*i as u8, stamps[*i]));
        (0..SECTORS).find(is_wrong)
    }

    /// All that a sector may be.
    pub(crate) fn of(&self, sector: usize) -> Vec<u64> {
        let more = self.more.iter().filter(|(i, _)| usize::from(*i) == sector).map(|&(_, value)| value);
        std::iter::once(self.first[sector]).chain(more).collect()
    }
}

/// What a volume must be.
#[derive(Debug)]
pub(crate) struct VolumePromise {
    pub(crate) name: String,
    /// None: it may be gone.
    pub(crate) sizes: Vec<Option<u64>>,
    /// By block; what is not here was never touched.
    pub(crate) blocks: Vec<(u64, Allowed)>,
}

impl VolumePromise {
    /// What a block may be.
    pub(crate) fn block(&self, at: u64) -> &Allowed {
        match self.blocks.binary_search_by_key(&at, |(block, _)| *block) {
            Ok(i) => &self.blocks[i].1,
            Err(_) => &UNTOUCHED,
        }
    }
}

/// What is known at a moment, and what follows for a power cut then.
#[derive(Debug)]
pub(crate) struct Known {
    /// As after a power cut.
    pub(crate) oracle: Oracle,
    /// Likewise.
    pub(crate) books: Books,
    pub(crate) volumes: Vec<VolumePromise>,
    pub(crate) commit_interval: Vec<Option<u64>>,
}

impl Known {
    /// What follows from what was asked and answered by now.
    pub(crate) fn of(oracle: &Oracle, books: &Books) -> Known {
        let (mut oracle, books) = (oracle.clone(), books.after_cut());
        oracle.crash(Loses::Unflushed);
        let mut volumes = Vec::new();
        for (entry, sizes) in &books.settled {
            let Entry::Volume(name) = entry else { continue };
            let blocks = books.ids.get(name).map(|&id| blocks(&oracle, id)).unwrap_or_default();
            volumes.push(VolumePromise { name: name.clone(), sizes: sizes.clone(), blocks });
        }
        let commit_interval = books.settled.get(&Entry::CommitInterval).cloned().unwrap_or_default();
        Known { oracle, books, volumes, commit_interval }
    }

    /// What a volume of this name must be.
    pub(crate) fn volume(&self, name: &str) -> Option<&VolumePromise> {
        self.volumes.iter().find(|v| v.name == name)
    }
}

fn blocks(oracle: &Oracle, volume: u32) -> Vec<(u64, Allowed)> {
    let mut blocks: Vec<(u64, Allowed)> = Vec::new();
    for (sector, values) in oracle.sectors(volume) {
        let (block, i) = (sector / SECTORS as u64, sector as usize % SECTORS);
        if blocks.last().is_none_or(|(last, _)| *last != block) {
            blocks.push((block, UNTOUCHED.clone()));
        }
        let allowed = &mut blocks.last_mut().expect("just pushed").1;
        if let Some((&first, more)) = values.split_first() {
            allowed.first[i] = first;
            allowed.more.extend(more.iter().map(|&value| (i as u8, value)));
        }
    }
    blocks
}
