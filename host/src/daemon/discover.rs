//! Finding pools from their devices alone.
//!
//! ```text
//!   paths ──look──► superblock, nothing, or a sentence ──group──► pools ──examine──► what is missing
//! ```
//!
//! Everything here opens devices for reading only and without a claim: looking must not disturb who uses them. What was
//! seen is looked at again, claimed, before a pool is opened.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use braid_core::meta::assembly::{Assembly, Step};
use braid_core::meta::superblock::{self, SLOTS, SUPERBLOCK_SIZE, SlotError, Superblock};
use braid_core::request::IoError;
use braid_core::units::{DeviceId, Uuid};

use crate::backend::{self, Disk, DiskSpec, Facts, OpenOptions};
use crate::control::size;
use crate::daemon::seen;

/// Files looked at in one folder: a folder of photographs given by mistake should not take minutes.
pub(super) const FOLDER_MAX: usize = 10_000;

/// What a device is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Identity {
    /// Its number.
    Block(u64),
    /// Its file system and inode.
    File(u64, u64),
}

impl Identity {
    /// Of what is at this path now; of a modelled disk, of what is below it.
    pub(super) fn of(path: &Path) -> Option<Identity> {
        let meta = fs::metadata(DiskSpec::of_member(path).path()?).ok()?;
        Some(match meta.file_type().is_block_device() {
            true => Identity::Block(meta.rdev()),
            false => Identity::File(meta.dev(), meta.ino()),
        })
    }
}

/// What the superblock slots of a device say.
#[derive(Debug)]
pub(super) enum Look {
    /// It is a member; the sentence says what is wrong with the other slot.
    Member(Box<Superblock>, Option<String>),
    /// There is none.
    Nothing,
    /// There was one; the sentence says what is wrong and where.
    Problem(String),
}

/// Reads both slots.
pub(super) fn look(disk: &Disk, name: &str) -> Look {
    let mut slots = [Vec::new(), Vec::new()];
    let mut problems = Vec::new();
    for (slot, at) in slots.iter_mut().zip(SLOTS) {
        if at + SUPERBLOCK_SIZE > disk.size() {
            continue;
        }
        match disk.read_blocks(at, SUPERBLOCK_SIZE as usize) {
            Ok(bytes) => *slot = bytes.to_vec(),
            Err(e) => problems.push(format!("{name}: reading the superblock at {} failed: {e}", size::long(at))),
        }
        match Superblock::decode(slot) {
            Ok(_) | Err(SlotError::Foreign) => {}
            Err(error) => problems.push(format!("{name}: superblock at {}: {error}", size::long(at))),
        }
    }
    let problem = (!problems.is_empty()).then(|| problems.join("; "));
    match superblock::newest([&slots[0], &slots[1]]) {
        Ok(found) if found.device_size > disk.size() => Look::Problem(format!(
            "{name}: member {} of pool {} had {} and has {} now; it was cut short",
            found.device,
            found.name,
            size::long(found.device_size),
            size::long(disk.size())
        )),
        Ok(found) => Look::Member(Box::new(found), problem.map(|p| format!("{p}; the other one is used"))),
        Err(error) => match problem {
            Some(problem) => Look::Problem(problem),
            None if error == SlotError::Foreign => Look::Nothing,
            None => Look::Problem(format!("{name}: {error}")),
        },
    }
}

/// Opens only to look.
pub(super) fn open_to_look(path: &Path) -> Result<(Disk, Facts), backend::OpenError> {
    let options = OpenOptions { exclusive: false, read_only: true, ..OpenOptions::default() };
    backend::open(&DiskSpec::of_member(path), options)
}

/// A member that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) superblock: Superblock,
}

/// All that was found in some places.
#[derive(Default)]
pub(super) struct Search {
    pub(super) found: Vec<Found>,
    /// One sentence each, for whoever asked.
    pub(super) problems: Vec<String>,
    /// Places that this user may not read.
    pub(super) denied: usize,
    seen: Vec<Identity>,
}

impl Search {
    /// Looks at one place; `named` when someone asked for exactly this one and wants to know whatever is wrong.
    pub(super) fn place(&mut self, path: &Path, named: bool) {
        let Some(identity) = Identity::of(path) else {
            if named {
                self.problems.push(format!("{}: no such disk or file", path.display()));
            }
            return;
        };
        // One device by two names is one device.
        if self.seen.contains(&identity) {
            return;
        }
        self.seen.push(identity);
        let disk = match open_to_look(path) {
            Ok((disk, _)) => disk,
            Err(backend::OpenError::Io(_, e)) if e.kind() == std::io::ErrorKind::PermissionDenied && !named => {
                self.denied += 1;
                return;
            }
            Err(_) if !named => return,
            Err(e) => return self.problems.push(with_source(&e)),
        };
        match look(&disk, &path.display().to_string()) {
            Look::Member(superblock, note) => {
                self.problems.extend(note);
                self.found.push(Found { path: path.into(), superblock: *superblock });
            }
            Look::Nothing if named => {
                self.problems.push(format!("{}: no braid superblock, so no member of a pool", path.display()));
            }
            Look::Nothing => {}
            Look::Problem(sentence) => self.problems.push(sentence),
        }
    }

    /// Looks at every file and device in a folder, not deeper; or at this one, as `zpool import -d` does.
    pub(super) fn folder(&mut self, path: &Path) {
        if fs::metadata(path).is_ok_and(|m| !m.is_dir()) {
            return self.place(path, true);
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(e) => return self.problems.push(format!("{}: {e}", path.display())),
        };
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|e| e.path())
            .filter(|p| {
                fs::metadata(p).is_ok_and(|m| {
                    m.file_type().is_block_device() || (m.is_file() && m.len() >= SLOTS[0] + SUPERBLOCK_SIZE)
                })
            })
            .take(FOLDER_MAX + 1)
            .collect();
        if paths.len() > FOLDER_MAX {
            paths.pop();
            self.problems.push(format!("{}: only {FOLDER_MAX} files were looked at", path.display()));
        }
        paths.sort();
        paths.iter().for_each(|p| self.place(p, false));
    }

    /// Pools, in order of name.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups: BTreeMap<Uuid, Group> = BTreeMap::new();
        for found in &self.found {
            let group = groups.entry(found.superblock.pool).or_insert_with(|| Group::new(found.superblock.pool));
            group.add(found.clone());
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by(|a, b| (&a.name, a.uuid).cmp(&(&b.name, b.uuid)));
        groups
    }
}

/// The error and what is below it.
pub(super) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) if !error.to_string().contains(&source.to_string()) => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}

/// A block device that could hold something and has a node. Another one in its place is not equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attached {
    pub(super) path: PathBuf,
    pub(super) sectors: u64,
    /// As [`Facts::diskseq`].
    pub(super) diskseq: Option<u64>,
}

/// Block devices of this machine, in order of name.
pub(super) fn attached() -> Vec<Attached> {
    let entries = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let device = |e: fs::DirEntry| {
        let sectors = number(e.path().join("size")).filter(|n| *n > 0)?;
        // The kernel writes '/' in a name as '!'.
        let path = Path::new("/dev").join(e.file_name().to_string_lossy().replace('!', "/"));
        path.exists().then(|| Attached { path, sectors, diskseq: number(e.path().join("diskseq")) })
    };
    let mut found: Vec<Attached> = entries.filter_map(device).collect();
    found.sort();
    found
}

/// Their paths.
pub(super) fn block_devices() -> Vec<PathBuf> {
    attached().into_iter().map(|device| device.path).collect()
}

/// The members of one pool that were found.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) uuid: Uuid,
    pub(super) name: String,
    pub(super) members: BTreeMap<DeviceId, Found>,
    pub(super) notes: Vec<String>,
    /// Why it must not be opened as it is.
    pub(super) obstacle: Option<String>,
    generation: u64,
}

/// What an import of a group would find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Examined {
    pub(super) missing: Vec<DeviceId>,
    /// What would be given up for good, as the assembly says it.
    pub(super) gives_up: Option<String>,
    /// Members without the timing that they had.
    pub(super) unpaced: Vec<String>,
}

impl Group {
    fn new(uuid: Uuid) -> Group {
        let (name, members, notes, obstacle) = (String::new(), BTreeMap::new(), Vec::new(), None);
        Group { uuid, name, members, notes, obstacle, generation: 0 }
    }

    fn add(&mut self, found: Found) {
        if found.superblock.generation > self.generation {
            self.generation = found.superblock.generation;
            self.name.clone_from(&found.superblock.name);
        }
        let id = found.superblock.device;
        let Some(other) = self.members.get_mut(&id) else {
            self.members.insert(id, found);
            return;
        };
        // Not one device by two names (those were told apart before): a copy, or two paths to one disk.
        let (mine, theirs) = (found.superblock.generation, other.superblock.generation);
        let (keep, leave) = if mine > theirs { (&found, &*other) } else { (&*other, &found) };
        let (keep_path, leave_path) = (keep.path.display(), leave.path.display());
        if mine == theirs {
            self.obstacle = Some(format!(
                "device {id} is there twice, at {keep_path} and at {leave_path}, and nothing tells the copy from the \
                 original: take one away, or name the devices to use"
            ));
        } else {
            self.notes.push(format!("device {id}: {leave_path} is an older copy of {keep_path} and is left alone"));
        }
        if mine > theirs {
            *other = found;
        }
    }

    /// Reads the pool back as an import would, changing nothing, to see what is to be said of it.
    pub(super) fn examine(&self, boot: Uuid) -> Result<Examined, String> {
        let disks: BTreeMap<DeviceId, Disk> = self
            .members
            .iter()
            .map(|(id, found)| open_to_look(&found.path).map(|(disk, _)| (*id, disk)).map_err(|e| with_source(&e)))
            .collect::<Result<_, _>>()?;
        let mut assembly = Assembly::new(self.superblocks(), boot)?;
        loop {
            match assembly.step() {
                Step::Ready(opened) => {
                    let unpaced = opened.pool().devices().filter_map(|d| self.unpaced(d.id, &d.path)).collect();
                    return Ok(Examined { missing: opened.missing, gives_up: opened.gives_up, unpaced });
                }
                Step::Failed(why) => return Err(why),
                Step::Read(reads) => {
                    for read in reads {
                        let bytes = match disks.get(&read.device) {
                            Some(disk) => disk.read_blocks(read.offset, read.len as usize).map_err(|_| IoError::Media),
                            None => Err(IoError::Gone),
                        };
                        assembly.supply(read, bytes.map(|b| b.to_vec()));
                    }
                }
            }
        }
    }

    /// A member that came to the pool with the timing of a model, and was found as a plain disk.
    fn unpaced(&self, id: DeviceId, seen: &str) -> Option<String> {
        let (came_as, _) = seen::parts(seen);
        let found = &self.members.get(&id)?.path;
        let has_model = |path: &Path| matches!(DiskSpec::of_member(path), DiskSpec::Model(..));
        let lost = has_model(Path::new(came_as)) && !has_model(found);
        lost.then(|| format!("device {id} came as {came_as} and is plain now: name it like that to have its timing"))
    }

    pub(super) fn superblocks(&self) -> Vec<Superblock> {
        self.members.values().map(|f| f.superblock.clone()).collect()
    }
}

/// The class of a device that nobody gave one.
pub(super) fn class_of(spec: &DiskSpec, facts: &Facts) -> &'static str {
    if let Some(class) = facts.class {
        return class;
    }
    let nvme = |path: &Path| {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        fs::metadata(&real).is_ok_and(|m| m.file_type().is_block_device())
            && real.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nvme"))
    };
    match spec {
        DiskSpec::Ram(_) | DiskSpec::Null(_) => "ssd",
        DiskSpec::Path(path) if nvme(path) => "nvme",
        DiskSpec::Path(_) | DiskSpec::Model(..) if facts.rotational => "hdd",
        DiskSpec::Path(_) | DiskSpec::Model(..) => "ssd",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use braid_core::Profile;
    use braid_core::allocator::Hint;
    use braid_core::device::DeviceClass;
    use braid_core::meta::format::{self, NewDevice, NewPool};
    use std::os::unix::fs::FileExt;

    pub(crate) const SIZE: u64 = 64 << 20;

    /// A pool on files `0.img`, `1.img`, …, as its creation writes it.
    pub(crate) fn pool(dir: &Path, name: &str, seed: u8, count: u8) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = (0..count).map(|i| dir.join(format!("{name}{i}.img"))).collect();
        let device = |(i, path): (usize, &PathBuf)| NewDevice {
            uuid: Uuid([seed + i as u8 + 1; 16]),
            path: path.display().to_string(),
            size: SIZE,
            class: DeviceClass::of_rotational(false),
            rotational: false,
            tiers: None,
            hint: Hint::default(),
        };
        let mirrored = if count > 1 { Profile::Raid1 } else { Profile::Single };
        let new = NewPool {
            name: name.into(),
            uuid: Uuid([seed; 16]),
            data: mirrored,
            metadata: mirrored,
            devices: paths.iter().enumerate().map(device).collect(),
            properties: Vec::new(),
        };
        let plan = format::plan(&new).unwrap();
        for path in &paths {
            fs::File::create(path).unwrap().set_len(SIZE).unwrap();
        }
        for place in plan.pages.iter().chain(&plan.superblocks) {
            let file = fs::OpenOptions::new().write(true).open(&paths[place.device]).unwrap();
            file.write_all_at(&place.bytes, place.offset).unwrap();
        }
        paths
    }

    fn search(paths: &[PathBuf]) -> Search {
        let mut search = Search::default();
        paths.iter().for_each(|p| search.place(p, true));
        search
    }

    fn spoil(path: &Path, at: u64) {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"spoiled", at).unwrap();
    }

    #[test]
    fn pools_are_found_from_their_devices_alone() {
        let dir = tempfile::tempdir().unwrap();
        let tank = pool(dir.path(), "tank", 10, 3);
        pool(dir.path(), "attic", 50, 1);
        fs::write(dir.path().join("note.txt"), "not a disk").unwrap();
        fs::File::create(dir.path().join("blank.img")).unwrap().set_len(SIZE).unwrap();
        let mut search = Search::default();
        search.folder(dir.path());
        let groups = search.groups();
        let told: Vec<(&str, usize)> = groups.iter().map(|g| (g.name.as_str(), g.members.len())).collect();
        assert_eq!((told, search.problems), (vec![("attic", 1), ("tank", 3)], vec![]));
        assert_eq!(groups[1].members[&DeviceId(2)].path, tank[1]);
        assert_eq!(groups[1].examine(Uuid::default()), Ok(Examined::default()));
    }

    #[test]
    fn what_is_missing_is_known_and_may_be_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let tank = pool(dir.path(), "tank", 10, 3);
        let with_all_but = |gone: usize| {
            let left: Vec<PathBuf> =
                tank.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, p)| p.clone()).collect();
            search(&left).groups()[0].examine(Uuid::default())
        };
        for gone in 0..3 {
            let missing = vec![DeviceId(gone as u32 + 1)];
            assert_eq!(with_all_but(gone), Ok(Examined { missing, ..Examined::default() }));
        }
        // System chunks of raid1 stand on two of three devices: without both, nothing can be read.
        let alone: Vec<_> =
            tank.iter().map(|p| search(std::slice::from_ref(p)).groups()[0].examine(Uuid::default())).collect();
        assert!(alone.iter().any(Result::is_err), "{alone:?}");
        for why in alone.iter().filter_map(|r| r.as_ref().err()) {
            assert!(why.contains("\"tank\" cannot be opened"), "{why}");
        }
    }

    #[test]
    fn damaged_and_foreign_superblocks_are_named_with_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool(dir.path(), "tank", 10, 1);
        let name = paths[0].display().to_string();
        let written = SLOTS.into_iter().find(|at| {
            let mut magic = [0; 8];
            fs::File::open(&paths[0]).unwrap().read_exact_at(&mut magic, *at).unwrap();
            magic == superblock::MAGIC
        });
        let at = written.unwrap();
        let place = size::long(at);

        spoil(&paths[0], at + 100);
        let problem = search(&paths).problems.concat();
        assert!(problem.starts_with(&format!("{name}: superblock at {place}: superblock checksum is")), "{problem}");

        spoil(&paths[0], at);
        assert_eq!(search(&paths).problems, [format!("{name}: no braid superblock, so no member of a pool")]);

        let paths = pool(dir.path(), "tank", 10, 1);
        fs::OpenOptions::new().write(true).open(&paths[0]).unwrap().set_len(SIZE / 2).unwrap();
        let problem = search(&paths).problems.concat();
        assert!(problem.contains("member 1 of pool tank had 64MiB and has 32MiB now"), "{problem}");

        let paths = pool(dir.path(), "tank", 10, 1);
        let other = SLOTS.into_iter().find(|s| *s != at).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&paths[0]).unwrap();
        file.write_all_at(&superblock::MAGIC, other).unwrap();
        let search = search(&paths);
        assert_eq!(search.found.len(), 1, "one good slot is enough");
        assert!(search.problems[0].ends_with("the other one is used"), "{:?}", search.problems);
    }

    #[test]
    fn one_device_by_two_names_is_one_and_a_copy_is_an_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let paths = pool(dir.path(), "tank", 10, 1);
        let link = dir.path().join("link.img");
        std::os::unix::fs::symlink(&paths[0], &link).unwrap();
        let found = search(&[paths[0].clone(), link]);
        assert_eq!((found.found.len(), found.problems.len()), (1, 0));
        let copy = dir.path().join("copy.img");
        fs::copy(&paths[0], &copy).unwrap();
        let groups = search(&[paths[0].clone(), copy]).groups();
        assert!(groups[0].obstacle.as_ref().unwrap().contains("device 1 is there twice"), "{groups:?}");
    }
}
