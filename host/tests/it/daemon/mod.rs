//! The daemon from the side of its API: pools over files, shared, broken, closed and found again.

mod devices;
#[cfg(feature = "fuse")]
mod files;
mod pools;
mod shares;
mod space;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use braid_host::control::api::*;
use braid_host::control::service::Service;
use braid_host::daemon::{Daemon, DaemonConfig, MEMORY_DEFAULT};
use braid_host::nbd::client::{Client, Wish};
use braid_host::reactor::Choice;

const MIB: u64 = 1 << 20;

/// A daemon in a folder of its own; dropping it is an orderly end.
struct World {
    dir: tempfile::TempDir,
    daemon: Option<Daemon>,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let mut world = World { dir, daemon: None };
        world.start();
        world
    }
    fn start(&mut self) {
        self.daemon = None;
        self.daemon = Some(Daemon::new(DaemonConfig {
            flight_dir: None,
            runtime_dir: self.path("run"),
            state_dir: self.path("state"),
            reactor: Choice::Auto,
            memory: MEMORY_DEFAULT,
            direct: true,
        }));
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.display().to_string()
    }
    /// `tank` of so many files, each of 256 MiB.
    fn tank(&self, profile: &str, files: usize) -> Change {
        let paths: Vec<String> = (0..files).map(|i| self.file(&format!("d{i}.img"), 256 * MIB)).collect();
        self.create(request("tank", profile, &paths)).unwrap()
    }
    fn volume(&self, pool: &str, volume: &str, bytes: u64) -> Change {
        let request =
            CreateVolume { pool: pool.into(), volume: volume.into(), size_bytes: bytes, ..Default::default() };
        self.volume_create(request).unwrap()
    }
    fn nbd(&self, pool: &str, volume: &str) -> ShareInfo {
        self.share(share(pool, volume, ShareKind::Nbd)).unwrap()
    }
    fn client(&self, export: &str) -> Client<std::os::unix::net::UnixStream> {
        Client::connect(&self.path("run/nbd.sock"), export, Wish::default()).unwrap()
    }
    fn one_status(&self) -> PoolStatus {
        self.status(Status::default()).unwrap().remove(0)
    }
    fn import_from_here(&self, names: &[&str]) -> Result<Vec<FoundPool>, ApiError> {
        let directories = vec![self.dir.path().display().to_string()];
        let names = names.iter().map(|n| n.to_string()).collect();
        self.import(ImportPools { names, directories, ..Default::default() })
    }
    fn codes(&self) -> Vec<String> {
        self.events(ListEvents::default()).unwrap().into_iter().map(|e| e.code).collect()
    }
}

impl World {
    fn destroy_volume_by_force(&self, pool: &str, volume: &str) {
        let request = DestroyVolume { pool: pool.into(), volume: volume.into(), force: true, dry_run: false };
        self.volume_destroy(request).unwrap();
    }
    fn list_shares_of(&self, pool: &str) -> Vec<ShareInfo> {
        self.shares(ListShares { pool: Some(pool.into()) }).unwrap()
    }
}

impl std::ops::Deref for World {
    type Target = Daemon;
    fn deref(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }
}

fn profile(word: &str) -> Option<ProfileSpec> {
    Some(ProfileSpec { profile: word.into(), classes: vec![] })
}

fn request(name: &str, data: &str, paths: &[String]) -> CreatePool {
    let devices = paths.iter().map(|p| NewDevice { path: p.clone(), ..Default::default() }).collect();
    let metadata = profile(if paths.len() > 1 { "raid1" } else { "dup" });
    CreatePool { name: name.into(), devices, data: profile(data), metadata, ..Default::default() }
}

fn share(pool: &str, volume: &str, kind: ShareKind) -> CreateShare {
    CreateShare { pool: pool.into(), volume: volume.into(), kind, ..Default::default() }
}

fn set(target: Target, values: &[(&str, &str)]) -> SetProperties {
    let values = values.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    SetProperties { target, values, dry_run: false, force: false }
}

fn unshare(target: &str, force: bool) -> RemoveShare {
    RemoveShare { target: target.into(), force, ..Default::default() }
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Content that tells where it belongs.
fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((offset + i) / 7 % 251) as u8).collect()
}
