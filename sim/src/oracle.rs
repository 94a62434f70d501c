//! What a volume may say: the slow, obvious twin.
//!
//! Every sector has *versions*: each the set of values that could stand there after one answered change. The last
//! version is what a read may see; what was written and not answered yet may be seen as well. A flush, or a forced
//! write, makes a version durable and those before it impossible.
//!
//! ```text
//!   process died    last version, or anything that was on its way
//!   power cut       any version since the last durable one, or anything that was on its way
//! ```
//!
//! A sector that a crash left undecided is decided by the first read of it: whatever copy it came from, every later read sees
//! the same. As long as nothing was flushed since, a power cut may undo that too. What this does not see: order between sectors (a later unflushed write may survive an earlier
//! one), bytes within a sector, and content that nobody reads. Sectors that a misdirected write spoilt may be wrong in that
//! one way until they are written again: without checksums nobody can know better.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk;

/// Sectors of a block.
const SECTORS: u64 = disk::SECTORS as u64;

/// One set of values, and when the change that made it was answered.
#[derive(Clone, Debug)]
struct Version {
    seq: u64,
    values: Vec<u64>,
    /// A reader said so, not a writer.
    is_decided: bool,
}

#[derive(Clone, Debug)]
struct Cell {
    versions: Vec<Version>,
    on_the_way: Vec<(u64, u64)>,
    /// What a misdirected write made of a copy, and the last change submitted before: a later one puts it right.
    spoilt: Vec<(u64, u64)>,
    /// Its only copy lost it while the record that it is there stayed, or it may be made of what a misdirected write spoilt:
    /// whatever the place held before may be read, until it is written again.
    may_be_anything: bool,
    /// The change since that wrote it again, which no flush covers: a power cut takes that back.
    written_since: Option<u64>,
    /// Changes that were on their way then: they may be part of what was lost.
    lost: Vec<u64>,
    /// When a crash found that no flush covered it: also where it is the same as before, as zeros in a hole are.
    cut: Option<u64>,
}

impl Default for Cell {
    fn default() -> Self {
        Cell {
            versions: vec![Version { seq: 0, values: vec![0], is_decided: false }],
            on_the_way: Vec::new(),
            spoilt: Vec::new(),
            may_be_anything: false,
            written_since: None,
            lost: Vec::new(),
            cut: None,
        }
    }
}

impl Cell {
    fn last(&self) -> &Version {
        self.versions.last().expect("never empty")
    }

    fn may_be(&self, value: u64) -> bool {
        self.may_be_anything || self.last().values.contains(&value) || self.pending().any(|v| v == value)
    }

    fn must_be(&self, value: u64) -> bool {
        let is_sure = !self.may_be_anything && self.lost.is_empty() && self.pending().next().is_none();
        is_sure && self.last().values == [value]
    }

    /// Nobody has written since that moment, several values could be there, and this one is.
    fn is_decided_by(&self, value: u64, since: u64) -> bool {
        let last = self.last();
        let is_calm = self.on_the_way.is_empty() && self.spoilt.is_empty() && last.seq <= since;
        is_calm && last.values.len() > 1 && last.values.contains(&value)
    }

    /// What failed since the last change that was answered well is open again, whatever readers saw of it. Without such a change, as after
    /// a power cut, everything is.
    fn reopen(&mut self, seq: u64) {
        let is_sure = |v: &Version| !v.is_decided && v.values.len() == 1;
        let from = self.versions.iter().rposition(is_sure).unwrap_or(0);
        let values = self.versions.drain(from..).flat_map(|v| v.values).collect();
        self.versions.push(Version { seq, values, is_decided: false });
    }

    /// What may be seen besides the last version.
    fn pending(&self) -> impl Iterator<Item = u64> {
        self.on_the_way.iter().chain(&self.spoilt).map(|&(_, value)| value)
    }
}

/// One volume.
#[derive(Clone, Debug, Default)]
struct Volume {
    cells: BTreeMap<u64, Cell>,
    /// Sectors with more than one version.
    undecided: BTreeSet<u64>,
}

impl Volume {
    /// Whether a read that begins now may see this value in a sector.
    fn may_be(&self, sector: u64, value: u64) -> bool {
        self.cells.get(&sector).map_or(value == 0, |cell| cell.may_be(value))
    }
}

/// A read on its way.
#[derive(Clone, Debug)]
struct Reader {
    tag: u64,
    /// When it was submitted.
    seq: u64,
    volume: u32,
    start: u64,
    /// By sector: what it may see.
    allowed: Vec<Vec<u64>>,
    /// Sectors that may have been anything since it was submitted, although they were written meanwhile.
    open: BTreeSet<u64>,
}

/// What a crash takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loses {
    /// Whatever was answered is there: the process ended.
    Nothing,
    /// The same, of a pool that could not write its records any more: what readers saw of changes that failed may be undone.
    Records,
    /// What no flush covers: a power cut.
    Unflushed,
    /// The same, of a member alone: the records of what it lost may be there.
    Cache,
}

/// The model of all volumes.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    seq: u64,
    volumes: BTreeMap<u32, Volume>,
    /// Volumes whose end is not answered yet: a crash may bring them back.
    going: BTreeMap<u32, Volume>,
    /// Those of them that were not found after a crash, and no flush since: a power cut may still bring them back.
    vanished: BTreeSet<u32>,
    /// Volumes that were found after a crash though nobody was told of them, and no flush since: they may go again.
    tentative: BTreeSet<u32>,
    /// Volume and sector whose changes are told.
    pub watch: Option<(u32, u64)>,
    readers: Vec<Reader>,
    /// What the last flush covers.
    covered: u64,
}

impl Oracle {
    /// A volume came to be.
    pub fn create(&mut self, volume: u32) {
        self.going.remove(&volume);
        self.vanished.remove(&volume);
        self.volumes.entry(volume).or_default();
    }

    /// The end of a volume is submitted.
    pub fn destroy(&mut self, volume: u32) {
        if let Some(v) = self.volumes.remove(&volume) {
            self.going.insert(volume, v);
        }
    }

    /// It is answered.
    pub fn destroyed(&mut self, volume: u32) {
        self.going.remove(&volume);
    }

    /// These volumes were found after a crash; says which are not there though they should be.
    pub fn found(&mut self, volumes: &[u32]) -> Vec<u32> {
        let (back, gone) = std::mem::take(&mut self.going).into_iter().partition(|(id, _)| volumes.contains(id));
        self.volumes.extend::<BTreeMap<_, _>>(back);
        self.going = gone;
        self.vanished = self.going.keys().copied().collect();
        let tentative = std::mem::take(&mut self.tentative);
        let gone = |id: &u32| !volumes.contains(id) && !tentative.contains(id);
        let lost = self.volumes.keys().copied().filter(gone).collect();
        self.tentative = tentative.into_iter().filter(|id| volumes.contains(id)).collect();
        self.volumes.retain(|id, _| volumes.contains(id));
        for &id in volumes {
            if !self.knows(id) {
                self.create(id);
                self.tentative.insert(id);
            }
        }
        lost
    }

    /// Volumes that may be used.
    pub fn knows(&self, volume: u32) -> bool {
        self.volumes.contains_key(&volume)
    }

    /// A change is submitted: `value` of each sector in the range.
    pub fn change(&mut self, op: u64, volume: u32, start: u64, end: u64, value: impl Fn(u64) -> u64) {
        if self.watch.is_some_and(|(w, s)| w == volume && (start..end).contains(&s)) {
            println!("change {op:#x} submitted: sectors {start}..{end}");
        }
        let Some(v) = self.volumes.get_mut(&volume) else { return };
        for sector in start..end {
            v.cells.entry(sector).or_default().on_the_way.push((op, value(sector)));
        }
        for reader in self.readers.iter_mut().filter(|r| r.volume == volume) {
            for (i, allowed) in reader.allowed.iter_mut().enumerate() {
                let sector = reader.start + i as u64;
                if (start..end).contains(&sector) {
                    allowed.push(value(sector));
                }
            }
        }
    }

    /// It is answered.
    pub fn changed(&mut self, op: u64, volume: u32, start: u64, end: u64, fine: bool, durable: bool) {
        self.seq += 1;
        if self.watch.is_some_and(|(w, s)| w == volume && (start..end).contains(&s)) {
            println!("change {op:#x} answered: fine {fine} durable {durable}");
        }
        let Some(v) = self.volumes.get_mut(&volume) else { return };
        for sector in start..end {
            let cell = v.cells.get_mut(&sector).expect("it was submitted");
            let at = cell.on_the_way.iter().position(|&(o, _)| o == op).expect("it was submitted");
            let (_, value) = cell.on_the_way.remove(at);
            let was_lost = cell.lost.iter().position(|&lost| lost == op).map(|at| cell.lost.swap_remove(at)).is_some();
            if fine {
                // What is answered as stable is, whatever was lost beside it.
                let was_anything = cell.may_be_anything;
                cell.may_be_anything &= !durable && (was_lost || !cell.lost.is_empty());
                if was_anything && !cell.may_be_anything {
                    cell.written_since = Some(self.seq);
                }
                cell.written_since = cell.written_since.filter(|_| !durable);
                // A power cut may bring back what it puts right.
                let (right, spoilt): (Vec<_>, Vec<_>) = cell.spoilt.drain(..).partition(|&(after, _)| after < op);
                cell.spoilt = spoilt;
                let last = cell.versions.last_mut().expect("never empty");
                last.values.extend(right.into_iter().map(|(_, value)| value));
            }
            let mut values = if fine { Vec::new() } else { cell.last().values.clone() };
            if !values.contains(&value) {
                values.push(value);
            }
            if fine && durable {
                cell.versions.clear();
            }
            // What failed makes nothing sure that only readers saw.
            let is_decided = !fine && cell.versions.last().is_some_and(|last| last.is_decided);
            cell.versions.push(Version { seq: self.seq, values, is_decided });
            if cell.versions.len() > 1 {
                v.undecided.insert(sector);
            } else {
                v.undecided.remove(&sector);
            }
        }
    }

    /// A misdirected write left `value` in one copy of a sector, where nobody asked for it; `after` is the last change
    /// that was submitted before. A later one that is answered well puts it right.
    pub fn spoil(&mut self, volume: u32, sector: u64, value: u64, after: u64) {
        let Some(v) = self.volumes.get_mut(&volume) else { return };
        v.cells.entry(sector).or_default().spoilt.push((after, value));
        for reader in self.readers.iter_mut().filter(|r| r.volume == volume) {
            let at = sector.checked_sub(reader.start).map(|at| at as usize);
            if let Some(allowed) = at.and_then(|at| reader.allowed.get_mut(at)) {
                allowed.push(value);
            }
        }
    }

    /// What this sector was is gone: it may be anything until it is written again.
    pub fn unmake(&mut self, volume: u32, sector: u64) {
        self.open_cell(volume, sector);
    }

    fn open_cell(&mut self, volume: u32, sector: u64) -> Option<&mut Cell> {
        self.readers.iter_mut().filter(|r| r.volume == volume).for_each(|r| _ = r.open.insert(sector));
        let v = self.volumes.get_mut(&volume).or_else(|| self.going.get_mut(&volume))?;
        let cell = v.cells.entry(sector).or_default();
        cell.may_be_anything = true;
        Some(cell)
    }

    /// Whether a read that begins now may see this value in a sector; of a volume that is not there, none.
    pub fn may_be(&self, volume: u32, sector: u64, value: u64) -> bool {
        self.volumes.get(&volume).is_some_and(|v| v.may_be(sector, value))
    }

    /// Whether a read that begins now may see this value and no other.
    pub fn must_be(&self, volume: u32, sector: u64, value: u64) -> bool {
        let cell = self.volumes.get(&volume).and_then(|v| v.cells.get(&sector));
        cell.is_some_and(|cell| cell.must_be(value))
    }

    /// What a flush submitted now covers.
    pub fn mark(&self) -> u64 {
        self.seq
    }

    /// A flush is answered.
    pub fn flushed(&mut self, mark: u64) {
        self.covered = self.covered.max(mark);
        self.tentative.clear();
        let vanished = std::mem::take(&mut self.vanished);
        self.going.retain(|id, _| !vanished.contains(id));
        for v in self.volumes.values_mut().chain(self.going.values_mut()) {
            let Volume { cells, undecided } = v;
            undecided.retain(|sector| {
                let cell = cells.get_mut(sector).expect("undecided sectors exist");
                cell.written_since = cell.written_since.filter(|&seq| seq > mark);
                let versions = &mut cell.versions;
                let keep = versions.iter().rposition(|version| version.seq <= mark).unwrap_or(0);
                versions.drain(..keep);
                versions.len() > 1
            });
        }
    }

    /// A read is submitted.
    pub fn read(&mut self, tag: u64, volume: u32, start: u64, end: u64) {
        let v = self.volumes.get(&volume);
        let allowed = |sector| match v.and_then(|v| v.cells.get(&sector)) {
            None => vec![0],
            Some(cell) => {
                let mut values = cell.last().values.clone();
                values.extend(cell.pending());
                values
            }
        };
        let allowed = (start..end).map(allowed).collect();
        let cells = v.into_iter().flat_map(|v| v.cells.range(start..end));
        let open = cells.filter(|(_, cell)| cell.may_be_anything).map(|(&sector, _)| sector).collect();
        self.readers.push(Reader { tag, seq: self.seq, volume, start, allowed, open });
    }

    /// It is answered with these values, or failed.
    pub fn was_read(&mut self, tag: u64, values: Option<&[u64]>) -> Result<(), String> {
        let at = self.readers.iter().position(|r| r.tag == tag).expect("it was submitted");
        let reader = self.readers.swap_remove(at);
        self.seq += 1;
        let seq = self.seq;
        let (Some(values), Some(v)) = (values, self.volumes.get_mut(&reader.volume)) else { return Ok(()) };
        for (i, (&value, allowed)) in values.iter().zip(&reader.allowed).enumerate() {
            let sector = reader.start + i as u64;
            let now = v.may_be(sector, value);
            if !allowed.contains(&value) && !now && !reader.open.contains(&sector) {
                let (volume, versions) = (reader.volume, v.cells.get(&sector).map(|c| &c.versions));
                return Err(format!(
                    "volume {volume} sector {sector} reads {value:#x}, not one of {allowed:x?}; versions {versions:x?}"
                ));
            }
            if let Some(cell) = v.cells.get_mut(&sector)
                && cell.is_decided_by(value, reader.seq)
            {
                cell.versions.push(Version { seq, values: vec![value], is_decided: true });
                v.undecided.insert(sector);
            }
        }
        Ok(())
    }

    /// Everything stops, and what is lost of it is undecided again. When only the process died, it stays as undecided as it
    /// was: a power cut may follow before anything is flushed.
    pub fn crash(&mut self, loses: Loses) {
        self.seq += 1;
        self.readers.clear();
        if loses == Loses::Cache {
            self.cache_lost();
        }
        let power = matches!(loses, Loses::Unflushed | Loses::Cache);
        for v in self.volumes.values_mut().chain(self.going.values_mut()) {
            if loses == Loses::Records {
                for sector in &v.undecided {
                    v.cells.get_mut(sector).into_iter().for_each(|cell| cell.reopen(self.seq));
                }
            }
            if power {
                v.undecided.clear();
            }
            for cell in v.cells.values_mut() {
                if cell.versions.len() > 1 || !cell.on_the_way.is_empty() {
                    cell.cut = Some(self.seq);
                }
                if power && cell.versions.len() > 1 {
                    let is_taken_back = cell.written_since.take().is_some();
                    cell.may_be_anything |= is_taken_back;
                    let values = cell.versions.drain(..).flat_map(|v| v.values).collect();
                    cell.versions.push(Version { seq: self.seq, values, is_decided: false });
                }
                let values = &mut cell.versions.last_mut().expect("never empty").values;
                values.extend(cell.on_the_way.drain(..).map(|(_, v)| v));
                cell.lost.clear();
                values.sort_unstable();
                values.dedup();
            }
        }
    }

    /// A member that goes on lost what no flush covered, and no other one stands in for it.
    pub fn cache_lost(&mut self) {
        let mut lost = Vec::new();
        for (&volume, v) in self.volumes.iter().chain(&self.going) {
            // What a crash cut short is one version, and no flush covered it.
            let is_cut = |cell: &Cell| cell.last().values.len() > 1 || cell.cut.is_some_and(|cut| cut > self.covered);
            let is_open = |cell: &Cell| cell.versions.len() > 1 || is_cut(cell) || !cell.on_the_way.is_empty();
            // A block goes to its first place as a whole.
            let blocks: BTreeSet<u64> = v.cells.iter().filter(|(_, c)| is_open(c)).map(|(s, _)| s / SECTORS).collect();
            let sectors = blocks.into_iter().flat_map(|block| block * SECTORS..(block + 1) * SECTORS);
            lost.extend(sectors.map(|sector| (volume, sector)));
        }
        for (volume, sector) in lost {
            let cell = self.open_cell(volume, sector).expect("it was just seen");
            cell.lost = cell.on_the_way.iter().map(|&(op, _)| op).collect();
        }
    }

    /// Sectors of a volume that were ever touched and what each may be by its last version; also of a volume that is going.
    pub(crate) fn sectors(&self, volume: u32) -> impl Iterator<Item = (u64, &[u64])> {
        let there = self.volumes.get(&volume).or_else(|| self.going.get(&volume));
        there.into_iter().flat_map(|v| &v.cells).map(|(&sector, cell)| (sector, cell.last().values.as_slice()))
    }

    /// Sectors of a volume that were ever touched.
    pub fn touched(&self, volume: u32) -> Vec<u64> {
        self.volumes.get(&volume).map(|v| v.cells.keys().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Answered {
        Flushed,
        Fine,
        Failed,
    }

    /// Of the one sector there is.
    fn change(oracle: &mut Oracle, op: u64, value: u64, answered: Answered) {
        let (fine, durable) = (!matches!(answered, Answered::Failed), matches!(answered, Answered::Flushed));
        oracle.change(op, 1, 0, 1, |_| value);
        oracle.changed(op, 1, 0, 1, fine, durable);
    }

    fn read(oracle: &mut Oracle, value: u64) -> Result<(), String> {
        oracle.read(9, 1, 0, 1);
        oracle.was_read(9, Some(&[value]))
    }

    /// A pool that could write no records showed zeros that were never recorded; more changes of that kind failed after that.
    #[test]
    fn what_failed_is_open_again_although_it_agrees_with_what_was_seen() {
        let mut oracle = Oracle::default();
        oracle.create(1);
        change(&mut oracle, 1, 5, Answered::Flushed);
        change(&mut oracle, 2, 0, Answered::Failed);
        assert_eq!(read(&mut oracle, 0), Ok(()));
        change(&mut oracle, 3, 0, Answered::Failed);
        assert!(read(&mut oracle.clone(), 5).is_err());
        oracle.crash(Loses::Records);
        assert!(read(&mut oracle.clone(), 6).is_err());
        assert_eq!(read(&mut oracle.clone(), 0), Ok(()));
        assert_eq!(read(&mut oracle, 5), Ok(()));
    }

    /// The same of what a power cut had left open.
    #[test]
    fn what_failed_is_open_again_where_nothing_was_sure() {
        let mut oracle = Oracle::default();
        oracle.create(1);
        change(&mut oracle, 1, 5, Answered::Fine);
        oracle.crash(Loses::Unflushed);
        change(&mut oracle, 2, 7, Answered::Failed);
        assert_eq!(read(&mut oracle, 7), Ok(()));
        assert!(read(&mut oracle.clone(), 5).is_err());
        oracle.crash(Loses::Records);
        for value in [0, 5, 7] {
            assert_eq!(read(&mut oracle.clone(), value), Ok(()), "{value}");
        }
    }

    /// The record of a block that was in the cache of a member without a copy may be there, whatever the end of the process made
    /// of its change before.
    #[test]
    fn what_went_with_a_cache_before_the_process_ended_may_be_anything() {
        let ends = [(Loses::Nothing, None), (Loses::Nothing, Some(false)), (Loses::Records, Some(false))];
        // Zeros in a hole are a first write, too.
        for ((ends, fine), content) in ends.into_iter().flat_map(|ends| [(ends, 5), (ends, 0)]) {
            let mut oracle = Oracle::default();
            oracle.create(1);
            oracle.change(1, 1, 0, 1, |_| content);
            fine.into_iter().for_each(|fine| oracle.changed(1, 1, 0, 1, fine, true));
            oracle.crash(ends);
            assert!(read(&mut oracle.clone(), 7).is_err(), "{ends:?} {fine:?}: nothing went yet");
            let mut flushed = oracle.clone();
            flushed.flushed(flushed.mark());
            oracle.crash(Loses::Cache);
            assert_eq!(read(&mut oracle, 7), Ok(()), "{ends:?} {fine:?}");
            if content == 0 {
                flushed.crash(Loses::Cache);
                assert!(read(&mut flushed, 7).is_err(), "{ends:?} {fine:?}: it was flushed");
            }
        }
    }
}
