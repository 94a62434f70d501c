//! What a file system asks of its device: data and metadata apart, in the order that its promises need.
//!
//! ```text
//!   a file     CPU - metadata read - data read - data written -,
//!                                                              |-- with syncs: data, log, flush, superblock; wait
//!                                                              '-- without: stays in memory, written back in windows
//!   a package  (after so many files) steps of its state: CPU - a small file written - sync; with and without syncs of files
//!   a commit   (every so many files, or when the window is full)
//!              data, tree blocks, flush, superblock with force unit access
//!
//!   volume     |superblock| tree blocks ........ | data .......................... |
//!               metadata                          data, allocated one after the other
//! ```
//!
//! This is a tree that copies on write, as btrfs is: a sync writes the file and the blocks of a log, a commit writes what
//! changed in the trees to new places. Metadata says so in its requests, so that placement can go by it.
//!
//! Left out: names, what the tree looks like inside, reads of data that is still in memory, a commit that overlaps with the
//! writes of the next. One process does everything.

use braid_core::REQUESTS_MAX;
use braid_core::request::Content;
use braid_core::units::{KIB, MIB};

use super::job::Direction;
use super::places::Ask;
use super::script::Step;
use crate::rng::Rng;

/// The knobs; every size in bytes, every time in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Files that are worked on, one after the other.
    pub files: u64,
    /// Data written to each, at least and at most; the sizes are spread evenly over powers of two between them.
    pub write_bytes: (u64, u64),
    /// Data read for each from what was there before, one after the other: the package that it comes from.
    pub read_bytes: u64,
    /// Random reads of data for each.
    pub random_reads: u64,
    /// Blocks of the tree read for each, one by one and anywhere: what is not in memory.
    pub metadata_reads: u64,
    /// CPU for each.
    pub cpu_ns: u64,
    /// A sync after each so many files; 0 is never.
    pub sync_every: u64,
    /// Files that make up a package; 0 is no packages.
    pub package_files: u64,
    /// Steps of a package's state, each a file of 4 KiB that is written and synced.
    pub package_syncs: u64,
    /// CPU for each step.
    pub package_cpu_ns: u64,
    /// Tree blocks that a sync writes: the log.
    pub sync_metadata_bytes: u64,
    /// Flush at each sync and commit, and the superblock after it.
    pub barriers: bool,
    /// Data that may be in memory, unwritten.
    pub write_back: u64,
    /// Free space is in pieces: what goes out together begins anywhere, not behind what went out before.
    pub scattered: bool,
    /// A commit after so many files; 0 is only at the end.
    pub commit_every: u64,
    /// Tree blocks that a commit writes for each file since the last.
    pub metadata_bytes: u64,
    /// Size of a tree block.
    pub node: u64,
    /// Largest request.
    pub request: u64,
    /// Space of the tree blocks.
    pub metadata_area: u64,
    /// Space of the data; writes begin again at its front when it is full.
    pub data_area: u64,
}

impl Default for Files {
    fn default() -> Files {
        Files {
            files: 2_000,
            write_bytes: (4 * KIB, 64 * KIB),
            read_bytes: 0,
            random_reads: 0,
            metadata_reads: 1,
            cpu_ns: 100_000,
            sync_every: 1,
            package_files: 0,
            package_syncs: 0,
            package_cpu_ns: 0,
            sync_metadata_bytes: 32 * KIB,
            barriers: true,
            write_back: 64 * MIB,
            scattered: false,
            commit_every: 500,
            metadata_bytes: 16 * KIB,
            node: 16 * KIB,
            request: 512 * KIB,
            metadata_area: 256 * MIB,
            data_area: 1024 * MIB,
        }
    }
}

/// Names of the ready-made ones.
pub const NAMES: [&str; 4] = ["install", "install-unsafe", "tree", "mail"];

/// Most bytes of a knob: sums and products of a few stay far from where numbers end.
const BYTES_MAX: u64 = 1 << 50;
/// Most files.
const FILES_MAX: u64 = 1 << 40;
/// Longest CPU for one file, or one step.
const CPU_NS_MAX: u64 = 3_600_000_000_000;
/// Most requests that a file or a commit makes: they are in memory together, and the engine refuses more at once.
const STEPS_MAX: u64 = REQUESTS_MAX as u64;

/// Names of the knobs.
const KNOBS: &[&str] = &[
    "files",
    "write_bytes",
    "read_bytes",
    "random_reads",
    "metadata_reads",
    "cpu_ns",
    "sync_every",
    "sync_metadata_bytes",
    "barriers",
    "write_back",
    "commit_every",
    "metadata_bytes",
    "node",
    "request",
    "metadata_area",
    "data_area",
    "package_files",
    "package_syncs",
    "package_cpu_ns",
    "scattered",
];

impl Files {
    /// A ready-made one: `install` (packages are unpacked, each file synced), `install-unsafe` (the same without syncs),
    /// `tree` (many small files are read), `mail` (messages arrive, each synced, and others are read).
    pub fn named(name: &str) -> Option<Files> {
        let install = Files { read_bytes: 16 * KIB, cpu_ns: 400_000, ..Files::default() };
        Some(match name {
            "install" => install,
            "install-unsafe" => Files { sync_every: 0, ..install },
            "tree" => Files {
                write_bytes: (0, 0),
                random_reads: 1,
                metadata_reads: 2,
                cpu_ns: 50_000,
                sync_every: 0,
                commit_every: 0,
                ..Files::default()
            },
            "mail" => Files { write_bytes: (2 * KIB, 32 * KIB), random_reads: 2, cpu_ns: 30_000, ..Files::default() },
            _ => return None,
        })
    }

    /// Sets a knob by name; sizes as `64K`, times in ns.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || {
            super::pool_file::size(value)
                .ok_or_else(|| format!("{name}={value}: write a number such as 2000, or a size such as 64K"))
        };
        let knob = match name {
            "files" => &mut self.files,
            "write_bytes" => {
                let (min, max) = value.split_once('-').unwrap_or((value, value));
                let both = super::pool_file::size(min).zip(super::pool_file::size(max));
                self.write_bytes = both.ok_or_else(|| format!("{name}={value}: write 4K-64K"))?;
                return Ok(());
            }
            "barriers" => {
                self.barriers = number()? != 0;
                return Ok(());
            }
            "scattered" => {
                self.scattered = number()? != 0;
                return Ok(());
            }
            "read_bytes" => &mut self.read_bytes,
            "random_reads" => &mut self.random_reads,
            "metadata_reads" => &mut self.metadata_reads,
            "cpu_ns" => &mut self.cpu_ns,
            "sync_every" => &mut self.sync_every,
            "package_files" => &mut self.package_files,
            "package_syncs" => &mut self.package_syncs,
            "package_cpu_ns" => &mut self.package_cpu_ns,
            "sync_metadata_bytes" => &mut self.sync_metadata_bytes,
            "write_back" => &mut self.write_back,
            "commit_every" => &mut self.commit_every,
            "metadata_bytes" => &mut self.metadata_bytes,
            "node" => &mut self.node,
            "request" => &mut self.request,
            "metadata_area" => &mut self.metadata_area,
            "data_area" => &mut self.data_area,
            _ => return Err(format!("a file system has no knob {name:?}; it has {}", KNOBS.join(", "))),
        };
        *knob = number()?;
        Ok(())
    }

    /// What makes no sense, or would not end, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        self.check_bounds()?;
        let whole = |n: u64| n > 0 && n.is_multiple_of(4 * KIB);
        if ![self.node, self.request, self.metadata_area, self.data_area].into_iter().all(whole) {
            return Err("node, request and both areas are multiples of 4 KiB".into());
        }
        if self.write_bytes.0 > self.write_bytes.1 || self.files == 0 {
            return Err("there is a file at least, and sizes go from the smaller to the larger".into());
        }
        let largest = self.write_bytes.1.max(self.read_bytes).max(self.request).max(self.write_back);
        if self.data_area < largest
            || self.metadata_area < self.node.max(self.sync_metadata_bytes) + self.node + 4 * KIB
        {
            return Err("the area of the data holds the window of what is written back, and every file".into());
        }
        self.check_steps()
    }

    /// Numbers so large that sums of them would not be numbers any more.
    fn check_bounds(&self) -> Result<(), String> {
        let sizes = [
            ("write_bytes", self.write_bytes.0.max(self.write_bytes.1)),
            ("read_bytes", self.read_bytes),
            ("sync_metadata_bytes", self.sync_metadata_bytes),
            ("write_back", self.write_back),
            ("metadata_bytes", self.metadata_bytes),
            ("node", self.node),
            ("request", self.request),
            ("metadata_area", self.metadata_area),
            ("data_area", self.data_area),
        ];
        if let Some((name, bytes)) = sizes.into_iter().find(|(_, bytes)| *bytes > BYTES_MAX) {
            return Err(format!("{name}={bytes}: at most {BYTES_MAX} bytes, 1 PiB"));
        }
        if self.files > FILES_MAX {
            return Err(format!("files={}: at most {FILES_MAX}", self.files));
        }
        let times = [("cpu_ns", self.cpu_ns), ("package_cpu_ns", self.package_cpu_ns)];
        match times.into_iter().find(|(_, ns)| *ns > CPU_NS_MAX) {
            Some((name, ns)) => Err(format!("{name}={ns}: at most {CPU_NS_MAX} ns, an hour")),
            None => Ok(()),
        }
    }

    /// What one file makes, with its package and a commit: all of that is in memory at once.
    fn check_steps(&self) -> Result<(), String> {
        let log = self.sync_metadata_bytes.div_ceil(self.node);
        let unwritten = if self.commit_every == 0 { self.files } else { self.files.min(self.commit_every) };
        // In this order, so that what is small already is not blamed.
        let steps = [
            ("metadata_reads", self.metadata_reads),
            ("random_reads", self.random_reads),
            ("read_bytes", self.read_bytes.div_ceil(self.request)),
            ("sync_metadata_bytes", log),
            ("write_back", (self.write_back + self.write_bytes.1).div_ceil(self.request)),
            ("package_syncs", self.package_syncs.saturating_mul(log + 4)),
            ("metadata_bytes", unwritten.saturating_mul(self.metadata_bytes).div_ceil(self.node)),
        ];
        let Some((name, count)) = steps.into_iter().find(|(_, count)| *count > STEPS_MAX) else { return Ok(()) };
        let next = match name {
            "metadata_bytes" => "; a commit writes all files since the last: set commit_every, or larger nodes",
            "read_bytes" | "write_back" => "; lower it, or set a larger request",
            _ => "; lower it",
        };
        Err(format!(
            "{name} would make {count} requests for one file or commit, and there are at most {STEPS_MAX}{next}"
        ))
    }

    /// Size of a volume for it.
    pub fn bytes_needed(&self) -> u64 {
        self.metadata_area + self.data_area
    }

    pub(super) fn regions(&self) -> Vec<(u64, u64, Content)> {
        let border = self.metadata_area;
        vec![(0, border, Content::Metadata), (border, border + self.data_area, Content::Data)]
    }
}

/// Where the log begins: behind the superblock.
const LOG: u64 = 4 * KIB;

/// A run through the files.
#[derive(Debug)]
pub(super) struct FilesScript {
    knobs: Files,
    /// Places, and sizes by dice of their own: with and without syncs the files are the same.
    rng: Rng,
    sizes: Rng,
    steps: std::collections::VecDeque<Step>,
    done: u64,
    /// Where data goes next, and where the package is read next.
    at: u64,
    read_at: u64,
    log_at: u64,
    dirty: u64,
    since_commit: u64,
    since_sync: u64,
    ended: bool,
}

impl FilesScript {
    pub(super) fn new(knobs: &Files, seed: u64) -> FilesScript {
        FilesScript {
            knobs: knobs.clone(),
            rng: Rng::new(seed),
            sizes: Rng::new(seed ^ 0x512e),
            steps: Default::default(),
            done: 0,
            at: 0,
            // What is read was written long ago: elsewhere.
            read_at: knobs.data_area / 2,
            log_at: LOG,
            dirty: 0,
            since_commit: 0,
            since_sync: 0,
            ended: false,
        }
    }

    pub(super) fn next(&mut self) -> Option<Step> {
        while self.steps.is_empty() {
            if self.ended {
                return None;
            }
            match self.done < self.knobs.files {
                true => self.file(),
                false => {
                    self.commit();
                    self.ended = true;
                }
            }
        }
        self.steps.pop_front()
    }

    fn file(&mut self) {
        let knobs = self.knobs.clone();
        self.steps.push_back(Step::Compute(knobs.cpu_ns));
        for _ in 0..knobs.metadata_reads {
            let node = self.node();
            self.wait_for(vec![read(node, knobs.node, Content::Metadata)]);
        }
        for _ in 0..knobs.random_reads {
            let len = self.len().max(4 * KIB);
            let blocks = (knobs.data_area - len) / (4 * KIB);
            let offset = knobs.metadata_area + self.rng.below(blocks + 1) * 4 * KIB;
            self.wait_for(vec![read(offset, len, Content::Data)]);
        }
        if knobs.read_bytes > 0 {
            let asks = pieces(&knobs, &mut self.read_at, knobs.read_bytes);
            self.wait_for(asks.into_iter().map(|(offset, len)| read(offset, len, Content::Data)).collect());
        }
        (self.done, self.since_commit, self.since_sync) = (self.done + 1, self.since_commit + 1, self.since_sync + 1);
        self.dirty += self.len();
        if knobs.sync_every > 0 && self.since_sync >= knobs.sync_every {
            self.sync();
        }
        if self.dirty >= knobs.write_back {
            self.write_back();
        }
        if knobs.package_files > 0 && self.done.is_multiple_of(knobs.package_files) {
            self.package();
        }
        if knobs.commit_every > 0 && self.since_commit >= knobs.commit_every {
            self.commit();
        }
    }

    /// The package manager writes down how far it is, step by step. What was unpacked before stays in memory.
    fn package(&mut self) {
        for _ in 0..self.knobs.package_syncs {
            self.steps.push_back(Step::Compute(self.knobs.package_cpu_ns));
            let asks = self.allocate(4 * KIB);
            self.wait_for(asks);
            self.log();
            self.barrier();
        }
    }

    /// A file's size: any power of two between the bounds is as likely as another, and within it every block.
    fn len(&mut self) -> u64 {
        let (min, max) = self.knobs.write_bytes;
        if min == max {
            return max.next_multiple_of(4 * KIB);
        }
        let powers = u64::from((max / min.max(1)).max(1).ilog2());
        let low = min.max(1) << self.sizes.below(powers + 1);
        self.sizes.between(low.min(max), (2 * low).min(max)).next_multiple_of(4 * KIB)
    }

    fn node(&mut self) -> u64 {
        let nodes = (self.knobs.metadata_area - 4 * KIB) / self.knobs.node;
        4 * KIB + self.rng.below(nodes) * self.knobs.node
    }

    fn wait_for(&mut self, asks: Vec<Ask>) {
        if !asks.is_empty() {
            self.steps.extend([Step::Ask(asks), Step::Wait]);
        }
    }

    /// What is in memory goes out. Nobody waits, except that what went before is there.
    fn write_back(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        let asks = self.allocate(dirty);
        if !asks.is_empty() {
            self.steps.extend([Step::Wait, Step::Ask(asks)]);
        }
    }

    /// Writes of so many bytes of data to where there is room.
    fn allocate(&mut self, bytes: u64) -> Vec<Ask> {
        if self.knobs.scattered && bytes > 0 {
            self.at = self.rng.below(self.knobs.data_area / (4 * KIB)) * 4 * KIB;
        }
        let pieces = pieces(&self.knobs, &mut self.at, bytes);
        pieces.into_iter().map(|(offset, len)| write(offset, len, Content::Data)).collect()
    }

    /// The data, the log, and the barrier between them and the superblock.
    fn sync(&mut self) {
        self.since_sync = 0;
        self.write_back();
        self.steps.push_back(Step::Wait);
        self.log();
        self.barrier();
    }

    /// The blocks of a sync: new ones, side by side, behind those of the sync before. A commit frees them all.
    fn log(&mut self) {
        let Files { node, metadata_area, sync_metadata_bytes, .. } = self.knobs;
        let nodes = sync_metadata_bytes.div_ceil(node);
        if self.log_at + nodes * node > metadata_area {
            self.log_at = LOG;
        }
        let asks = (0..nodes).map(|i| write(self.log_at + i * node, node, Content::Metadata)).collect();
        self.log_at += nodes * node;
        self.wait_for(asks);
    }

    fn commit(&mut self) {
        self.write_back();
        self.steps.push_back(Step::Wait);
        self.log_at = LOG;
        let files = std::mem::take(&mut self.since_commit);
        self.nodes(files * self.knobs.metadata_bytes);
        self.barrier();
    }

    fn nodes(&mut self, bytes: u64) {
        let asks = (0..bytes.div_ceil(self.knobs.node)).map(|_| {
            let node = self.node();
            write(node, self.knobs.node, Content::Metadata)
        });
        let asks = asks.collect();
        self.wait_for(asks);
    }

    fn barrier(&mut self) {
        if self.knobs.barriers {
            let flush = Ask { direction: Direction::Sync, offset: 0, len: 0, fua: false, content: Content::Metadata };
            self.wait_for(vec![flush]);
            self.wait_for(vec![Ask { fua: true, ..write(0, 4 * KIB, Content::Metadata) }]);
        }
    }
}

fn read(offset: u64, len: u64, content: Content) -> Ask {
    Ask { direction: Direction::Read, offset, len, fua: false, content }
}

fn write(offset: u64, len: u64, content: Content) -> Ask {
    Ask { direction: Direction::Write, offset, len, fua: false, content }
}

/// Requests for the next bytes of the area of the data, which ends where it began.
fn pieces(knobs: &Files, at: &mut u64, bytes: u64) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut left = bytes.next_multiple_of(4 * KIB);
    while left > 0 {
        let len = left.min(knobs.request).min(knobs.data_area - *at);
        pieces.push((knobs.metadata_area + *at, len));
        left -= len;
        *at = (*at + len) % knobs.data_area;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_that_is_named_can_be_turned() {
        let mut files = Files::default();
        for knob in KNOBS {
            files.set(knob, "8K").unwrap_or_else(|why| panic!("{knob}: {why}"));
        }
        let unknown = files.set("speed", "1").expect_err("there is none");
        assert!(unknown.contains("no knob \"speed\"; it has files, write_bytes"), "{unknown}");
    }

    fn steps(files: &Files) -> Vec<Step> {
        let mut script = FilesScript::new(files, 1);
        std::iter::from_fn(|| script.next()).collect()
    }

    fn asked(steps: &[Step], mut of: impl FnMut(&Ask) -> bool) -> Vec<Ask> {
        let groups = steps.iter().filter_map(|step| if let Step::Ask(asks) = step { Some(asks) } else { None });
        groups.flatten().filter(|ask| of(ask)).copied().collect()
    }

    #[test]
    fn every_sync_is_data_log_flush_superblock_in_this_order() {
        let files = Files { files: 1, metadata_reads: 0, commit_every: 0, metadata_bytes: 0, ..Files::default() };
        let steps = steps(&files);
        let order: Vec<_> = asked(&steps, |_| true).iter().map(|a| (a.direction, a.content, a.fua)).collect();
        use Direction::{Sync, Write};
        let sync = [
            (Write, Content::Data, false),
            (Write, Content::Metadata, false),
            (Write, Content::Metadata, false),
            (Sync, Content::Metadata, false),
            (Write, Content::Metadata, true),
        ];
        assert_eq!(order[..5], sync);
        assert_eq!(order[5..], sync[3..], "and the last commit has nothing more to write");
        // Nothing of a sync overtakes what came before it.
        let waits = steps.iter().filter(|step| **step == Step::Wait).count();
        assert!(waits >= 4, "{steps:?}");
    }

    #[test]
    fn without_syncs_the_same_data_goes_out_in_large_requests() {
        let bytes = |asks: Vec<Ask>| asks.iter().map(|ask| ask.len).sum::<u64>();
        let is_data = |a: &Ask| a.direction == Direction::Write && a.content == Content::Data;
        let (safe, not) = (Files::named("install").expect("it"), Files::named("install-unsafe").expect("it"));
        let (safe, not) = (steps(&safe), steps(&not));
        assert_eq!(bytes(asked(&safe, is_data)), bytes(asked(&not, is_data)));
        assert!(asked(&safe, is_data).len() > 10 * asked(&not, is_data).len());
        let syncs = |steps: &[Step]| asked(steps, |a| a.direction == Direction::Sync).len();
        assert_eq!((syncs(&safe), syncs(&not)), (2_000 + 4 + 1, 4 + 1), "each file, each 500 files, the end");
    }

    #[test]
    fn a_package_syncs_its_state_with_and_without_syncs_of_files() {
        let package = Files { files: 20, package_files: 5, package_syncs: 3, commit_every: 0, ..Files::default() };
        let syncs = |sync_every| {
            let steps = steps(&Files { sync_every, scattered: true, ..package.clone() });
            asked(&steps, |a| a.direction == Direction::Sync).len()
        };
        assert_eq!((syncs(0), syncs(1)), (4 * 3 + 1, 20 + 4 * 3 + 1), "four packages, and the end");
    }

    #[test]
    fn the_log_goes_on_from_sync_to_sync_until_a_commit() {
        let files = Files { files: 3, metadata_reads: 0, commit_every: 2, metadata_bytes: 0, ..Files::default() };
        let is_log = |a: &Ask| a.content == Content::Metadata && a.direction == Direction::Write && !a.fua;
        let places: Vec<u64> = asked(&steps(&files), is_log).iter().map(|a| (a.offset - LOG) / files.node).collect();
        assert_eq!(places, [0, 1, 2, 3, 0, 1]);
    }

    /// Whatever a knob is turned to, there is a sentence, or a file and a commit can be made.
    #[test]
    fn no_knob_can_be_turned_past_what_ends() {
        for knob in KNOBS {
            for value in ["0", "1", "4K", "1000000000", "1024P", "18446744073709551615"] {
                for name in NAMES {
                    let mut files = Files::named(name).expect("it");
                    files.set(knob, value).expect("it is a number");
                    let Ok(()) = files.check() else { continue };
                    let mut script = FilesScript::new(&files, 1);
                    assert!(files.bytes_needed() > 0 && (0..3).all(|_| script.next().is_some()), "{knob}={value}");
                    assert!(script.steps.len() <= 10 * STEPS_MAX as usize, "{knob}={value}");
                    let mut last = FilesScript { done: files.files, since_commit: files.files, ..script };
                    if files.commit_every == 0 {
                        assert!(std::iter::from_fn(|| last.next()).count() > 0, "{knob}={value}");
                    }
                }
            }
        }
        let told = |knob: &str, value: &str| {
            let mut files = Files::default();
            files.set(knob, value).expect("it is a number");
            files.check().expect_err(knob)
        };
        assert_eq!(
            told("cpu_ns", "18446744073709551615"),
            "cpu_ns=18446744073709551615: at most 3600000000000 ns, an hour"
        );
        let why = told("metadata_reads", "1000000000");
        assert!(why.contains("metadata_reads would make 1000000000 requests for one file or commit"), "{why}");
        let mut files = Files { files: 1 << 30, commit_every: 0, ..Files::default() };
        assert!(files.check().expect_err("a billion nodes at once").contains("set commit_every"));
        files.commit_every = 500;
        files.check().expect("it is many files, and no more");
    }

    #[test]
    fn every_ready_made_one_stays_in_its_areas() {
        for name in NAMES {
            let files = Files::named(name).expect("it");
            files.check().expect("it makes sense");
            let border = files.metadata_area;
            for ask in asked(&steps(&files), |a| a.direction != Direction::Sync) {
                let (first, end) = (ask.offset, ask.offset + ask.len);
                let inside = match ask.content {
                    Content::Metadata => end <= border,
                    _ => first >= border && end <= border + files.data_area,
                };
                assert!(inside && ask.len > 0 && first.is_multiple_of(4096), "{name}: {ask:?}");
            }
        }
        assert_eq!(Files::named("database"), None);
    }
}
