//! What outlives the process: which pools were open, where their devices were, and what of them was shared.
//!
//! About a pool it is a list of places to look first, never the truth: what a device says of itself decides, and without
//! this file `import` finds the same pools, only later. About shares it is all there is; they belong to this machine and
//! not to the pool.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use braid_core::units::Uuid;
use serde::{Deserialize, Serialize};

use super::lock;
use crate::control::api::{Listen, ShareKind, Tls};

/// One pool that was open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) uuid: String,
    pub(super) name: String,
    /// Paths of members, in id order.
    pub(super) devices: Vec<PathBuf>,
    /// How its disks were connected.
    #[serde(default)]
    pub(super) attached: Attached,
    /// In the order in which they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) shares: Vec<RememberedShare>,
}

/// How disks were connected to the machine: one that was connected anew since, in the same boot, may have lost what its cache held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attached {
    /// The boot that this is about; the numbers begin anew with each.
    pub(super) boot: String,
    /// [Numbers](crate::backend::Facts::diskseq) of members, by uuid; files have none.
    pub(super) disks: BTreeMap<String, u64>,
}

impl Attached {
    /// Another number than the one that is remembered of this boot.
    pub(super) fn is_another(&self, boot: Uuid, device: Uuid, diskseq: Option<u64>) -> bool {
        let before = self.disks.get(&device.to_string()).filter(|_| self.boot == boot.to_string());
        before.zip(diskseq).is_some_and(|(before, now)| *before != now)
    }
}

/// One way in which a volume was shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RememberedShare {
    /// Id of the volume within the pool: names change.
    pub(super) volume: u32,
    pub(super) kind: ShareKind,
    /// Where it really listened: a path or an address with its port, never "any".
    pub(super) listen: Listen,
    pub(super) tls: Tls,
    pub(super) tls_directory: Option<String>,
    pub(super) read_only: bool,
    /// What clients knew it by.
    pub(super) uri: String,
}

impl RememberedShare {
    /// There is one share of a volume of each kind, and of NBD one on each listener.
    pub(super) fn same_as(&self, other: &RememberedShare) -> bool {
        (self.volume, self.kind, &self.listen) == (other.volume, other.kind, &other.listen)
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    pools: Vec<Remembered>,
}

const VERSION: u32 = 1;

/// `pools.json` in the folder for what outlives the process.
pub(super) struct Cache {
    folder: PathBuf,
    /// Held from reading the list until it is written again.
    unwritten: Mutex<Option<Unwritten>>,
}

/// The list as it is to be, where it could not be written.
struct Unwritten {
    pools: Vec<Remembered>,
    why: String,
}

impl Cache {
    pub(super) fn new(folder: &Path) -> Cache {
        Cache { folder: folder.into(), unwritten: Mutex::default() }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("pools.json")
    }

    /// What is remembered. No file is no pools; a file that cannot be understood is an error that names it.
    pub(super) fn load(&self) -> io::Result<Vec<Remembered>> {
        self.current(&lock(&self.unwritten))
    }

    fn current(&self, unwritten: &Option<Unwritten>) -> io::Result<Vec<Remembered>> {
        unwritten.as_ref().map_or_else(|| self.read(), |list| Ok(list.pools.clone()))
    }

    /// Tries again to write what could not be written; why it cannot be, if so.
    pub(super) fn retry(&self) -> Option<String> {
        let mut unwritten = lock(&self.unwritten);
        let pools = unwritten.as_ref()?.pools.clone();
        // Why is kept with it.
        let _ = self.write(&mut unwritten, pools);
        unwritten.as_ref().map(|list| list.why.clone())
    }

    fn read(&self) -> io::Result<Vec<Remembered>> {
        let path = self.file();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(io::Error::new(e.kind(), format!("reading {}: {e}", path.display()))),
        };
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
        let document: Document = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        if document.version != VERSION {
            return Err(wrong(format!("version {} of the list of pools is not understood", document.version)));
        }
        Ok(document.pools)
    }

    /// What is remembered of one pool; nothing when the list cannot be read.
    pub(super) fn pool(&self, uuid: &str) -> Option<Remembered> {
        self.load().unwrap_or_default().into_iter().find(|p| p.uuid == uuid)
    }

    /// Writes the whole list: to a new file, to the disk, then over the old one.
    fn save(&self, pools: &[Remembered]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.file();
        let fresh = path.with_extension("json.new");
        let document = Document { version: VERSION, pools: pools.to_vec() };
        let text = serde_json::to_vec_pretty(&document).map_err(io::Error::other)?;
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        out.write_all(&text)?;
        out.sync_all()?;
        fs::rename(&fresh, &path)?;
        fs::File::open(&self.folder)?.sync_all()
    }

    /// Writes the list, or keeps it until that is possible.
    fn write(&self, unwritten: &mut Option<Unwritten>, pools: Vec<Remembered>) -> io::Result<()> {
        let result =
            self.save(&pools).map_err(|e| io::Error::new(e.kind(), format!("writing {}: {e}", self.file().display())));
        *unwritten = result.as_ref().err().map(|e| Unwritten { pools, why: e.to_string() });
        result
    }

    /// Renames the list to a name that nothing has; the caller holds `unwritten`.
    fn put_aside(&self) -> io::Result<PathBuf> {
        let name = |n: u32| if n == 0 { "pools.json.damaged".into() } else { format!("pools.json.damaged.{n}") };
        let free = (0..).map(|n| self.folder.join(name(n))).find(|p| p.symlink_metadata().is_err());
        let aside = free.expect("not all of four thousand million names are taken");
        fs::rename(self.file(), &aside)
            .map_err(|e| io::Error::new(e.kind(), format!("putting {} aside: {e}", self.file().display())))?;
        Ok(aside)
    }

    /// Changes the entry of one pool; without an entry it is forgotten. What cannot be written is kept, see [`Cache::retry`]. A list that
    /// cannot be understood is put aside, for someone to look at, and begun anew. One that cannot be read just now (EMFILE, EIO) may be as
    /// good as ever: it stays, and nothing is changed.
    pub(super) fn update(
        &self,
        uuid: &str,
        change: impl FnOnce(Option<Remembered>) -> Option<Remembered>,
    ) -> io::Result<()> {
        let mut unwritten = lock(&self.unwritten);
        let mut pools = match self.current(&unwritten) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                let aside = self.put_aside()?;
                tracing::warn!("{e}; the list is begun anew, and the old one is {}", aside.display());
                Vec::new()
            }
            result => result?,
        };
        let before = pools.clone();
        let present = pools.iter().position(|p| p.uuid == uuid).map(|at| pools.remove(at));
        pools.extend(change(present));
        pools.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
        if pools == before && unwritten.is_none() {
            return Ok(());
        }
        self.write(&mut unwritten, pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn pool(uuid: &str, name: &str) -> Remembered {
        let devices = vec!["/dev/sdb".into(), "/srv/a b.img".into()];
        Remembered { uuid: uuid.into(), name: name.into(), devices, attached: Attached::default(), shares: Vec::new() }
    }

    #[test]
    fn a_disk_that_was_connected_anew_in_this_boot_is_noticed() {
        let (boot, other, disk) = (Uuid([1; 16]), Uuid([2; 16]), Uuid([3; 16]));
        let attached = Attached { boot: boot.to_string(), disks: [(disk.to_string(), 7)].into() };
        for (boot, disk, diskseq, is_another) in [
            (boot, disk, Some(7), false),
            (boot, disk, Some(8), true),
            (boot, disk, None, false),
            (other, disk, Some(8), false),
            (boot, other, Some(8), false),
        ] {
            assert_eq!(attached.is_another(boot, disk, diskseq), is_another, "{boot} {disk} {diskseq:?}");
        }
    }

    #[test]
    fn pools_are_remembered_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(&dir.path().join("new/state"));
        assert_eq!(cache.load().unwrap(), []);
        cache.update("2", |_| Some(pool("2", "tank"))).unwrap();
        cache.update("1", |_| Some(pool("1", "attic"))).unwrap();
        cache.update("2", |_| Some(pool("2", "tank"))).unwrap();
        assert_eq!(cache.load().unwrap(), [pool("1", "attic"), pool("2", "tank")]);
        assert_eq!(cache.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!cache.folder.join("pools.json.new").exists());
        cache.update("2", |_| None).unwrap();
        assert_eq!(cache.load().unwrap(), [pool("1", "attic")]);
        cache.update("3", |none| none).unwrap();
        assert_eq!(cache.load().unwrap(), [pool("1", "attic")], "nothing is made of nothing");
    }

    #[test]
    fn shares_stay_with_their_pool() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        let share = |listen: Listen| RememberedShare {
            volume: 7,
            kind: ShareKind::Nbd,
            listen,
            tls: Tls::Require,
            tls_directory: Some("/etc/braid/tls".into()),
            read_only: true,
            uri: "nbds://…".into(),
        };
        let (tcp, unix) = (share(Listen::Tcp("127.0.0.1:1".into())), share(Listen::UnixPath("/run/s".into())));
        assert!(!tcp.same_as(&unix));
        let shared = Remembered { shares: vec![tcp, unix], ..pool("1", "tank") };
        cache.update("1", |_| Some(shared.clone())).unwrap();
        assert_eq!(cache.pool("1"), Some(shared));
        // A list from before shares were remembered.
        let old = r#"{"version":1,"pools":[{"uuid":"1","name":"tank","devices":["/dev/sdb","/srv/a b.img"]}]}"#;
        fs::write(cache.file(), old).unwrap();
        assert_eq!(cache.load().unwrap(), [pool("1", "tank")]);
    }

    #[test]
    fn what_cannot_be_written_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        // A folder in the way of the new list.
        let in_the_way = dir.path().join("pools.json.new");
        fs::create_dir(&in_the_way).unwrap();
        let why = cache.update("1", |_| Some(pool("1", "tank"))).unwrap_err().to_string();
        assert!(why.starts_with("writing ") && why.contains("pools.json"), "{why}");
        assert_eq!(cache.retry(), Some(why));
        cache.update("2", |_| Some(pool("2", "attic"))).unwrap_err();
        assert_eq!(cache.load().unwrap(), [pool("2", "attic"), pool("1", "tank")]);
        fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(cache.retry(), None);
        assert_eq!(Cache::new(dir.path()).load().unwrap(), [pool("2", "attic"), pool("1", "tank")]);
    }

    #[test]
    fn a_damaged_list_is_named_put_aside_and_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        for text in ["{", "[]", r#"{"version":9,"pools":[]}"#] {
            fs::write(cache.file(), text).unwrap();
            assert!(cache.load().unwrap_err().to_string().contains("pools.json"), "{text}");
        }
        cache.update("1", |_| Some(pool("1", "tank"))).unwrap();
        assert_eq!(cache.load().unwrap().len(), 1);
        let aside = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(aside("pools.json.damaged").contains("9"));
        fs::write(cache.file(), "{").unwrap();
        cache.update("1", |_| Some(pool("1", "tank"))).unwrap();
        assert!(aside("pools.json.damaged").contains("9"), "the second does not replace the first");
        assert_eq!(aside("pools.json.damaged.1"), "{");
    }

    #[test]
    fn a_list_that_cannot_be_read_now_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        // Reading a folder fails (EISDIR), and not for what is in it.
        fs::create_dir(cache.file()).unwrap();
        assert!(cache.update("1", |_| Some(pool("1", "tank"))).unwrap_err().to_string().contains("pools.json"));
        assert!(cache.file().is_dir());
        assert!(!dir.path().join("pools.json.damaged").exists());
    }
}
