//! The daemon from the side of its API: pools over files, shared, broken, closed and found again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_host::backend::Fault;
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

#[test]
fn what_was_written_is_there_after_the_daemon_was_gone() {
    let mut world = World::new();
    let change = world.tank("raid1", 2);
    assert_eq!((change.what.as_str(), change.changed), ("pool tank of 2 devices", true));
    world.volume("tank", "vm0", 64 * MIB);
    let info = world.nbd("tank", "vm0");
    let socket = world.path("run/nbd.sock");
    assert_eq!(info.uri, format!("nbd+unix:///tank/vm0?socket={}", socket.display()));
    assert!(world.nbd("tank", "vm0").existing, "asking again changes nothing");
    let data = pattern(5 * MIB, 300_000);
    let mut client = world.client("tank/vm0");
    assert_eq!(client.size, 64 * MIB);
    assert_eq!(client.write(0, 5 * MIB, &data).unwrap().error, 0);
    assert_eq!(client.read(5 * MIB, 300_000).unwrap().data, data);
    eventually("the client is counted", || world.list_shares_of("tank")[0].clients == Some(1));
    client.disconnect().unwrap();

    world.start();
    assert!(!socket.exists(), "the socket went with the daemon");
    assert_eq!(world.list(ListPools::default()).unwrap(), []);
    assert_eq!(world.import_remembered(), ["tank"]);
    let volumes = world.volume_list(ListVolumes::default()).unwrap();
    assert_eq!((volumes[0].name.as_str(), volumes[0].size_bytes), ("vm0", 64 * MIB));
    assert_eq!(volumes[0].shares, [info.uri], "what was shared is shared again");
    let mut client = world.client("tank/vm0");
    assert_eq!(client.read(5 * MIB, 300_000).unwrap().data, data);
    assert!(world.codes().contains(&"pool.opened".to_string()));
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

#[test]
fn an_exported_pool_is_found_again_from_its_devices_alone() {
    let world = World::new();
    world.tank("raid1", 3);
    world.volume("tank", "vm0", 64 * MIB);
    world.export(ExportPool { pool: "tank".into(), ..Default::default() }).unwrap();
    assert_eq!(world.list(ListPools::default()).unwrap(), []);
    assert_eq!(world.import_remembered(), Vec::<String>::new(), "an exported pool is not opened by itself");

    let found = world.import_from_here(&[]).unwrap();
    assert_eq!((found.len(), found[0].imported, found[0].missing, found[0].devices.len()), (1, false, 0, 3));
    assert_eq!(world.list(ListPools::default()).unwrap(), [], "looking opens nothing");

    let error = world.import_from_here(&["tnak"]).unwrap_err();
    assert_eq!((error.code.as_str(), error.kind), ("pool.not_found", ErrorKind::NotFound));

    // One device is away: the pool goes on without it when somebody wants that, and says so.
    fs::create_dir(world.path("away")).unwrap();
    fs::rename(world.path("d2.img"), world.path("away/d2.img")).unwrap();
    let error = world.import_from_here(&["tank"]).unwrap_err();
    assert!(error.message.contains("lacks device 3") && error.message.contains("-f"), "{}", error.message);
    assert_eq!((error.kind, error.code.as_str()), (ErrorKind::Refused, "import.degraded"));
    let here = vec![world.dir.path().display().to_string()];
    let forced = ImportPools { names: vec!["tank".into()], directories: here, force: true, ..ImportPools::default() };
    let found = world.import(forced).unwrap();
    assert_eq!((found[0].imported, found[0].missing, found[0].state), (true, 1, PoolState::Degraded));
    let status = world.one_status();
    assert_eq!(status.state, PoolState::Degraded);
    // The first write to a chunk that it has a part in, which may be the opening's own, leaves it behind.
    assert!(matches!(status.devices[2].state.as_str(), "MISSING" | "FAILED"), "{:?}", status.devices[2]);
    assert!(status.problems[0].message.starts_with("device 3 "), "{:?}", status.problems);
    assert!(world.codes().contains(&"device.missing".to_string()));
    let again = world.import_from_here(&["tank"]).unwrap();
    assert_eq!(again[0].note.as_deref(), Some("it is open already"));
}

#[test]
fn a_pool_is_opened_under_another_name_when_its_own_is_taken() {
    let world = World::new();
    world.tank("single", 1);
    let uuid = world.one_status().uuid;
    world.export(ExportPool { pool: "tank".into(), ..Default::default() }).unwrap();
    let other = world.file("other.img", 256 * MIB);
    world.create(request("tank", "single", &[other])).unwrap();
    let clash = world.import_from_here(&["tank"]).unwrap_err();
    assert_eq!(clash.code, "pool.exists", "{clash:?}");
    assert!(clash.hint.unwrap().contains("--as"));
    let request = |name: &str| ImportPools {
        names: vec![uuid.clone()],
        rename: Some(name.into()),
        directories: vec![world.dir.path().display().to_string()],
        ..Default::default()
    };
    assert!(world.import(request("mirror")).is_err());
    assert_eq!(world.import(request("attic")).unwrap()[0].name, "attic");
    let names: Vec<String> = world.list(ListPools::default()).unwrap().into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["attic", "tank"]);
    world.export(ExportPool { pool: "attic".into(), ..Default::default() }).unwrap();
    let found = world.import_from_here(&[]).unwrap();
    assert_eq!(found[0].name, "attic", "the new name is on the devices");
}

#[test]
fn what_can_be_written_is_one_number_wherever_it_is_said() {
    let world = World::new();
    let paths: Vec<String> = (1..=4).map(|i| world.file(&format!("d{i}.img"), (256 + 128 * i) * MIB)).collect();
    for (data, count) in [("single", 1), ("raid1", 2), ("raid1", 3), ("raid10", 4), ("raid0", 4)] {
        let request = request("tank", data, &paths[..count]);
        let promised = world.create(CreatePool { dry_run: true, ..request.clone() }).unwrap().after.unwrap();
        let made = world.create(request).unwrap().after.unwrap();
        assert_eq!(promised, made);
        world.volume("tank", "v", 64 * MIB);
        world.nbd("tank", "v");
        for written in [0, 32 * MIB] {
            if written > 0 {
                let mut client = world.client("tank/v");
                (0..32).for_each(|i| assert_eq!(client.write(0, i * MIB, &pattern(0, 1 << 20)).unwrap().error, 0));
                client.disconnect().unwrap();
            }
            let list = world.list(ListPools::default()).unwrap().remove(0).writable_bytes;
            let usage = world.usage(Usage::default()).unwrap().remove(0);
            let status = world.one_status();
            assert_eq!((usage.writable_data_bytes, status.writable_data_bytes), (list, list), "{data} of {count}");
            assert_eq!(usage.writable_metadata_bytes, status.writable_metadata_bytes);
            assert_eq!(made.writable_data_bytes - written, list, "{data} of {count}: created, then wrote {written}");
            if written == 0 {
                assert_eq!(made.writable_metadata_bytes, usage.writable_metadata_bytes, "{data} of {count}");
            }
        }
        world.destroy(DestroyPool { pool: "tank".into(), force: true, dry_run: false }).unwrap();
    }
}

#[test]
fn a_dry_run_shows_everything_and_makes_nothing() {
    let world = World::new();
    let files = NewFiles { count: 2, size_bytes: 256 * MIB, directory: world.path("new/files").display().to_string() };
    let mut create = request("tank", "raid1", &[world.file("a.img", 256 * MIB)]);
    create.files = Some(files);
    create.dry_run = true;
    let change = world.create(create.clone()).unwrap();
    let after = change.after.unwrap();
    assert!(change.dry_run && after.writable_data_bytes > 100 * MIB, "{after:?}");
    assert_eq!((after.raw_bytes, after.data_failures), (768 * MIB, 1));
    for kind in ["data", "metadata", "system"] {
        assert!(change.notes.iter().any(|n| n.starts_with(&format!("{kind}: the first chunk"))), "{:?}", change.notes);
    }
    assert!(!world.path("new").exists());
    assert_eq!(world.list(ListPools::default()).unwrap(), []);
    create.dry_run = false;
    let done = world.create(create).unwrap();
    assert_eq!(done.what, "pool tank of 3 devices");
    assert!(world.path("new/files/disk1.img").exists());
}

#[test]
fn bad_devices_are_refused_and_nothing_is_half_made() {
    let world = World::new();
    let (a, b) = (world.file("a.img", 256 * MIB), world.file("b.img", 256 * MIB));
    let link = world.path("link.img").display().to_string();
    std::os::unix::fs::symlink(&a, &link).unwrap();
    let (zero, odd, small) = (world.file("zero", 0), world.file("odd", 4097), world.file("small", MIB));
    let ext = world.file("ext.img", 256 * MIB);
    {
        use std::os::unix::fs::FileExt;
        fs::OpenOptions::new().write(true).open(&ext).unwrap().write_all_at(&[0x53, 0xef], 1080).unwrap();
    }
    let missing = world.path("missing").display().to_string();
    let folder = world.dir.path().display().to_string();
    let files = NewFiles { count: 1, size_bytes: 256 * MIB, directory: world.path("made").display().to_string() };
    for (device, code, kind) in [
        (&link, "device.twice", ErrorKind::Usage),
        (&zero, "device.bad_size", ErrorKind::Usage),
        (&odd, "device.bad_size", ErrorKind::Usage),
        (&small, "value.invalid", ErrorKind::Usage),
        (&missing, "device.not_found", ErrorKind::NotFound),
        (&folder, "device.not_a_disk", ErrorKind::Usage),
        (&ext, "device.not_blank", ErrorKind::Refused),
    ] {
        let mut create = request("tank", "raid1", &[a.clone(), device.clone()]);
        create.files = Some(files.clone());
        let error = world.create(create).expect_err(code);
        assert_eq!((error.code.as_str(), error.kind), (code, kind), "{error:?}");
        assert!(error.message.contains(device.as_str()), "{error:?}");
        assert!(!world.path("made").exists(), "{code}");
    }
    let mut create = request("tank", "raid1", &[ext, b.clone()]);
    create.force = true;
    world.create(create).unwrap();

    let error = world.create(request("other", "single", std::slice::from_ref(&b))).unwrap_err();
    assert_eq!((error.code.as_str(), error.kind), ("device.in_pool", ErrorKind::Refused));
    assert!(error.message.contains("device 2 of pool tank, which is open"), "{error:?}");
    let mut create = request("other", "single", std::slice::from_ref(&b));
    create.force = true;
    assert_eq!(world.create(create.clone()).unwrap_err().code, "device.in_pool", "never while it is open");
    let error = world.create(request("tank", "single", std::slice::from_ref(&a))).unwrap_err();
    assert_eq!(error.code, "pool.exists");

    world.export(ExportPool { pool: "tank".into(), ..Default::default() }).unwrap();
    create.force = false;
    assert_eq!(world.create(create.clone()).unwrap_err().code, "device.in_pool", "nor without being asked twice");
    create.force = true;
    world.create(create).unwrap();

    let mut devid = request("third", "single", &[a]);
    devid.properties.insert("read_policy".into(), "devid:2".into());
    assert_eq!(world.create(devid).unwrap_err().code, "read_policy.no_device");
}

#[test]
fn destroyed_pools_are_not_found_again() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "vm0", 64 * MIB);
    world.nbd("tank", "vm0");
    for request in [false, true].map(|dry_run| DestroyPool { pool: "tank".into(), dry_run, ..Default::default() }) {
        let error = world.destroy(request).unwrap_err();
        assert_eq!((error.code.as_str(), error.kind), ("pool.shared", ErrorKind::Refused));
    }
    assert_eq!(world.export(ExportPool { pool: "tank".into(), ..Default::default() }).unwrap_err().code, "pool.shared");
    world.destroy(DestroyPool { pool: "tank".into(), force: true, ..Default::default() }).unwrap();
    assert!(!world.path("run/nbd.sock").exists());
    assert!(world.import_from_here(&["tank"]).is_err());
    world
        .create(request(
            "tank",
            "raid1",
            &[world.path("d0.img"), world.path("d1.img")].map(|p| p.display().to_string()),
        ))
        .expect("its devices are blank again");
}

#[test]
fn volumes_grow_under_their_clients_and_keep_their_names_while_shared() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "vm0", 64 * MIB);
    let twice = CreateVolume { pool: "tank".into(), volume: "vm0".into(), size_bytes: MIB, ..Default::default() };
    assert_eq!(world.volume_create(twice).unwrap_err().code, "volume.exists");
    let huge = CreateVolume { pool: "tank".into(), volume: "x".into(), size_bytes: 1 << 62, ..Default::default() };
    assert_eq!(world.volume_create(huge).unwrap_err().code, "volume.too_large");
    let thin = world.volume("tank", "thin", 1 << 40);
    assert!(thin.notes[0].contains("cannot be filled"), "{:?}", thin.notes);

    world.nbd("tank", "vm0");
    let rename = RenameVolume { pool: "tank".into(), volume: "vm0".into(), to: "vm1".into(), dry_run: false };
    let error = world.volume_rename(rename.clone()).unwrap_err();
    assert_eq!((error.code.as_str(), error.kind), ("volume.shared", ErrorKind::Refused));
    let destroy = DestroyVolume { pool: "tank".into(), volume: "vm0".into(), ..Default::default() };
    assert_eq!(world.volume_destroy(destroy).unwrap_err().code, "volume.shared");

    let client = world.client("tank/vm0");
    let grow = |size_bytes: i64, relative: bool| ResizeVolume {
        pool: "tank".into(),
        volume: "vm0".into(),
        size_bytes,
        relative,
        ..Default::default()
    };
    assert_eq!(world.volume_resize(grow(-(MIB as i64), true)).unwrap_err().kind, ErrorKind::Refused);
    let change = world.volume_resize(grow(64 * MIB as i64, true)).unwrap();
    assert!(change.changed && change.what.contains("from 64MiB to 128MiB"), "{change:?}");
    assert!(!world.volume_resize(grow(128 * MIB as i64, false)).unwrap().changed);
    let mut new = world.client("tank/vm0");
    assert_eq!(new.size, 128 * MIB);
    assert_eq!(new.write(0, 100 * MIB, &pattern(0, 8192)).unwrap().error, 0);

    eventually("both are counted", || world.list_shares_of("tank")[0].clients == Some(2));
    let error = world.unshare(unshare("tank/vm0", false)).unwrap_err();
    assert_eq!((error.code.as_str(), error.kind), ("share.in_use", ErrorKind::Refused));
    world.unshare(unshare("tank/vm0", true)).unwrap();
    eventually("they are hung up on", || new.read(0, 4096).is_err());
    drop(client);
    assert_eq!(world.unshare(unshare("tank/vm0", false)).unwrap_err().kind, ErrorKind::NotFound);
    world.volume_rename(rename).unwrap();

    let map = MapVolume { pool: "tank".into(), volume: "vm1".into(), ..Default::default() };
    let map = world.volume_map(map).unwrap();
    let kinds: Vec<(&str, u64, u64)> = map.iter().map(|e| (e.kind.as_str(), e.offset_bytes, e.length_bytes)).collect();
    assert_eq!(
        kinds,
        [("hole", 0, 100 * MIB), ("data", 100 * MIB, 8192), ("hole", 100 * MIB + 8192, 28 * MIB - 8192),]
    );
    assert_eq!((map[1].profile.as_deref(), map[1].strip_bytes, map[1].places.len()), (Some("raid1"), None, 2));
    for place in &map[1].places {
        use std::os::unix::fs::FileExt;
        let file = fs::File::open(world.path(&format!("d{}.img", place.device - 1))).unwrap();
        let mut found = vec![0; 8192];
        file.read_exact_at(&mut found, place.offset_bytes).unwrap();
        assert!(found == pattern(0, 8192), "something else is at {place:?}");
    }
}

#[test]
fn two_pools_are_served_over_one_socket_and_each_keeps_its_own() {
    let world = World::new();
    world.tank("raid1", 2);
    world.create(request("attic", "single", &["ram:128M".into()])).unwrap();
    for pool in ["tank", "attic"] {
        world.volume(pool, "v", 32 * MIB);
        world.nbd(pool, "v");
    }
    let mut clients = [world.client("tank/v"), world.client("attic/v")];
    for (i, client) in clients.iter_mut().enumerate() {
        let data = vec![i as u8 + 1; 65_536];
        assert_eq!(client.write(0, 0, &data).unwrap().error, 0);
    }
    for (i, client) in clients.iter_mut().enumerate() {
        assert!(client.read(0, 65_536).unwrap().data.iter().all(|b| *b == i as u8 + 1));
    }
    let [tank, attic] = clients;
    drop(attic);
    eventually("gone", || world.list_shares_of("attic")[0].clients == Some(0));
    world.export(ExportPool { pool: "attic".into(), force: true, ..Default::default() }).unwrap();
    let mut tank = tank;
    assert_eq!(tank.read(0, 4096).unwrap().error, 0, "the other pool goes on");
    let none = Client::connect(&world.path("run/nbd.sock"), "attic/v", Wish::default());
    assert!(none.is_err());
    let snapshot = world.iostat(IoStat::default()).unwrap();
    assert_eq!(snapshot.pools.len(), 1);
    assert!(snapshot.pools[0].client.reads >= 2 && snapshot.monotonic_ns > snapshot.pools[0].opened_monotonic_ns);
    assert_eq!(world.usage(Usage::default()).unwrap()[0].raw_bytes, 512 * MIB);
}

#[test]
fn slow_commands_are_counted_by_device() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    world.nbd("tank", "v");
    let mut client = world.client("tank/v");
    let slow = || -> Vec<u64> { world.one_status().devices.iter().map(|d| d.slow_ios).collect() };
    assert_eq!(client.write(0, 0, &pattern(0, 4096)).unwrap().error, 0);
    let before = slow();
    // Slow even for a disk that rotates.
    world.fault_handle("tank", 2).unwrap().set(Fault::DelayMs(1200));
    assert_eq!(client.write(0, 0, &pattern(0, 4096)).unwrap().error, 0);
    assert!(slow()[1] > before[1], "{before:?} {:?}", slow());
    world.fault_handle("tank", 2).unwrap().set(Fault::None);
}

#[test]
fn a_pool_that_closes_slowly_holds_up_no_other() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    let slow = |fault: Fault| (1..=2).for_each(|id| world.fault_handle("tank", id).unwrap().set(fault));
    // The checkpoint takes several of these in a row.
    slow(Fault::DelayMs(3000));
    std::thread::scope(|scope| {
        let export = scope.spawn(|| world.export(ExportPool { pool: "tank".into(), ..Default::default() }));
        eventually("the export is under way", || world.pool_is_changing("tank"));
        let device = world.file("other.img", 256 * MIB);
        world.create(request("other", "single", &[device])).unwrap();
        world.export(ExportPool { pool: "other".into(), ..Default::default() }).unwrap();
        world.import_from_here(&["other"]).unwrap();
        world.destroy(DestroyPool { pool: "other".into(), ..Default::default() }).unwrap();
        assert!(!export.is_finished(), "a pool's own devices are what it waits for");
        // Nobody gets its devices before it has let go of them.
        assert_eq!(world.import_from_here(&[]).unwrap(), [], "it is not to be had yet");
        slow(Fault::None);
        export.join().unwrap().unwrap();
    });
    assert_eq!(world.import_from_here(&["tank"]).unwrap()[0].name, "tank");
}

#[test]
fn a_device_that_vanishes_is_survived_by_raid1_and_named() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    world.nbd("tank", "v");
    let mut client = world.client("tank/v");
    let data = pattern(0, 1 << 20);
    assert_eq!(client.write(0, 0, &data).unwrap().error, 0);
    world.fault_handle("tank", 2).unwrap().set(Fault::Gone);
    let data2 = pattern(3, 1 << 20);
    assert_eq!(client.write(0, MIB, &data2).unwrap().error, 0);
    assert_eq!(client.call(3, 0, 0, 0).unwrap().error, 0, "flush");
    for _ in 0..4 {
        assert_eq!(client.read(0, 1 << 20).unwrap().data, data);
        assert_eq!(client.read(MIB, 1 << 20).unwrap().data, data2);
    }
    let status = world.one_status();
    assert_eq!((status.state, status.devices[1].usable), (PoolState::Degraded, false), "{status:?}");
    assert!(status.degraded_chunks > 0 && status.survivable_failures == 0);
    assert!(world.codes().contains(&"device.failed".to_string()), "{:?}", world.codes());
}

#[test]
fn a_device_that_vanishes_below_single_is_an_error_and_not_an_end() {
    let world = World::new();
    world.tank("single", 1);
    world.volume("tank", "v", 32 * MIB);
    world.nbd("tank", "v");
    let mut client = world.client("tank/v");
    assert_eq!(client.write(0, 0, &pattern(0, 65_536)).unwrap().error, 0);
    world.fault_handle("tank", 1).unwrap().set(Fault::Gone);
    let answer = client.read(0, 65_536).unwrap();
    assert_eq!(answer.error, 5, "EIO");
    assert_eq!(world.one_status().state, PoolState::Unavailable);
}

#[test]
fn properties_of_pools_devices_and_volumes() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    let pool = || Target::Pool { pool: "tank".into() };
    let device = |device| Target::Device { pool: "tank".into(), device };
    let volume = || Target::Volume { pool: "tank".into(), volume: "v".into() };
    let get = |target: Target, name: &str| {
        let names = vec![name.to_string()];
        world.get(GetProperties { target, names }).unwrap().remove(0)
    };
    assert_eq!(get(pool(), "read_policy").source, Source::Default);
    assert!(world.set(set(pool(), &[("read_policy", "devid:2"), ("strict", "on")])).unwrap().changed);
    assert!(!world.set(set(pool(), &[("read_policy", "devid:2")])).unwrap().changed, "it holds already");
    let policy = get(pool(), "read_policy");
    assert_eq!((policy.value.as_str(), policy.source), ("devid:2", Source::Pool));
    assert!(policy.choices.contains(&"devid:2".into()) && policy.choices.len() == 10);
    assert_eq!(get(pool(), "mode").value, "tiers");
    let adjusted = world.set(set(pool(), &[("read_policy", "round-robin:5000")])).unwrap();
    assert!(adjusted.notes[0].contains("rounded up to 8192"), "{:?}", adjusted.notes);
    for (target, values, code) in [
        (pool(), vec![("read_policy", "devid:9")], "device.not_found"),
        (pool(), vec![("colour", "red")], "property.unknown"),
        (pool(), vec![("uuid", "x")], "property.read_only"),
        (pool(), vec![("commit_interval", "1s"), ("read_policy", "fast")], "read_policy.unknown"),
        (device(1), vec![("class", "nvme"), ("tier.data", "256")], "tier.out_of_range"),
        (device(7), vec![("class", "nvme")], "device.not_found"),
        (volume(), vec![("class", "fast")], "volume_class.unknown"),
    ] {
        assert_eq!(world.set(set(target, &values)).unwrap_err().code, code);
    }
    assert_eq!(get(pool(), "commit_interval").value, "5s", "all or none");
    world.set(set(device(1), &[("class", "nvme"), ("tier.metadata", "7"), ("read_preferred", "yes")])).unwrap();
    let listed = world.device_list(ListDevices { pool: Some("tank".into()) }).unwrap();
    assert_eq!((listed[0].class.as_str(), listed[0].tiers["metadata"], listed[0].read_preferred), ("nvme", 7, true));
    assert_eq!(get(device(1), "class").value, "nvme");
    world.set(set(device(1), &[("allocation_hint", "data-only")])).unwrap();
    assert_eq!(get(device(1), "allocation_hint").value, "DATA_ONLY");
    world.set(set(volume(), &[("class", "metadata")])).unwrap();
    assert_eq!(world.volume_list(ListVolumes::default()).unwrap()[0].class, "metadata");
    assert_eq!(world.get(GetProperties { target: volume(), names: vec![] }).unwrap().len(), 3);
}

#[test]
fn classes_in_a_profile_decide_where_chunks_go() {
    let world = World::new();
    let paths: Vec<String> = (0..4).map(|i| world.file(&format!("c{i}.img"), 256 * MIB)).collect();
    let mut create = request("tank", "raid1", &paths);
    for (device, class) in create.devices.iter_mut().zip(["slow", "slow", "quick", "quick"]) {
        device.class = Some(class.into());
    }
    let spec = |class: &str| Some(ProfileSpec { profile: "raid1".into(), classes: vec![class.into()] });
    (create.data, create.metadata) = (spec("slow"), spec("quick"));
    let mut wrong = create.clone();
    wrong.data = spec("hdd");
    assert_eq!(world.create(wrong).unwrap_err().code, "class.no_device");
    let notes = world.create(create).unwrap().notes;
    let place = |kind: &str| notes.iter().find(|n| n.starts_with(kind)).unwrap().clone();
    assert!(place("data:").ends_with("device 1 2") && place("metadata:").ends_with("device 3 4"), "{notes:?}");
}

#[test]
fn scanning_says_what_a_device_is_and_takes_nothing() {
    let world = World::new();
    world.tank("raid1", 2);
    let (blank, member) = (world.file("blank.img", 256 * MIB), world.path("d1.img").display().to_string());
    let missing = world.path("missing").display().to_string();
    let scanned = world.device_scan(ScanDevices { paths: vec![blank.clone(), member, missing] }).unwrap();
    let told: Vec<(bool, Option<&str>)> = scanned.iter().map(|s| (s.usable, s.pool.as_deref())).collect();
    assert_eq!(told, [(true, None), (false, Some("tank")), (false, None)]);
    assert_eq!(scanned[1].content.as_deref(), Some("member 2 of pool tank, which is open"));
    world.create(request("other", "single", &[blank])).unwrap();
}

#[test]
fn tcp_is_local_and_a_port_of_ones_own() {
    let world = World::new();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    let tcp = |address: &str, tls| CreateShare {
        listen: Listen::Tcp(address.into()),
        tls,
        tls_directory: Some(world.path("tls").display().to_string()),
        ..share("tank", "v", ShareKind::Nbd)
    };
    let error = world.share(tcp("0.0.0.0:0", Tls::Off)).unwrap_err();
    assert_eq!((error.code.as_str(), error.kind), ("share.not_local", ErrorKind::Refused));
    assert_eq!(world.share(tcp("127.0.0.1:0", Tls::Require)).unwrap_err().code, "tls.no_certificates");
    assert_eq!(world.shares(ListShares::default()).unwrap(), []);
    let info = world.share(tcp("127.0.0.1:0", Tls::Off)).unwrap();
    assert!(world.share(tcp("127.0.0.1:0", Tls::Off)).unwrap().existing);
    let address = info.uri.strip_prefix("nbd://").unwrap().strip_suffix("/tank/v").unwrap();
    let mut client = Client::connect_tcp(address.parse().unwrap(), "tank/v", Wish::default()).unwrap();
    assert_eq!(client.write(0, 0, &pattern(0, 4096)).unwrap().error, 0);
    assert!(!world.path("run/nbd.sock").exists(), "shared over TCP only");
    world.unshare(unshare(&info.uri, true)).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "the port is free again");
}

#[test]
fn unsharing_one_listener_leaves_the_clients_of_the_other() {
    let world = World::new();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    let unix = world.nbd("tank", "v");
    let listen = Listen::Tcp("127.0.0.1:0".into());
    let tcp = world.share(CreateShare { listen, ..share("tank", "v", ShareKind::Nbd) }).unwrap();
    let address = tcp.uri.strip_prefix("nbd://").unwrap().strip_suffix("/tank/v").unwrap();
    let mut near = world.client("tank/v");
    let mut far = Client::connect_tcp(address.parse().unwrap(), "tank/v", Wish::default()).unwrap();
    let clients = || -> Vec<Option<u32>> { world.list_shares_of("tank").iter().map(|s| s.clients).collect() };
    eventually("each listener counts its own", || clients() == [Some(1), Some(1)]);
    assert_eq!(far.write(0, 0, &pattern(0, 4096)).unwrap().error, 0);

    let busy = world.unshare(unshare(&tcp.uri, false)).unwrap_err();
    assert_eq!(busy.message, format!("{} has 1 clients", tcp.uri));
    world.unshare(unshare(&tcp.uri, true)).unwrap();
    far.read(0, 4096).expect_err("this one was hung up on");
    assert_eq!(near.read(0, 4096).unwrap().data, pattern(0, 4096));
    near.disconnect().unwrap();
    eventually("the client has gone", || clients() == [Some(0)]);
    world.unshare(unshare(&unix.uri, false)).unwrap();
}

#[test]
fn shares_come_back_with_their_pool_at_the_same_place() {
    let mut world = World::new();
    world.tank("raid1", 2);
    for volume in ["a", "b"] {
        world.volume("tank", volume, 32 * MIB);
    }
    let tcp = |volume: &str| CreateShare {
        listen: Listen::Tcp("127.0.0.1:0".into()),
        read_only: true,
        ..share("tank", volume, ShareKind::Nbd)
    };
    let kept = [world.nbd("tank", "a"), world.share(tcp("a")).unwrap()].map(|info| {
        assert!(info.remembered);
        info.uri
    });
    let passing = CreateShare { temporary: true, ..share("tank", "b", ShareKind::Nbd) };
    assert!(!world.share(passing.clone()).unwrap().remembered);
    let gone = world.share(tcp("b")).unwrap();
    world.unshare(unshare(&gone.uri, false)).unwrap();

    let uris = |world: &World| -> Vec<String> { world.list_shares_of("tank").into_iter().map(|s| s.uri).collect() };
    for _ in 0..2 {
        world.start();
        world.import_remembered();
        assert_eq!(uris(&world), kept, "neither the temporary one nor the one that was unshared");
        assert!(world.list_shares_of("tank")[1].read_only && world.list_shares_of("tank")[0].remembered);
        assert_eq!(world.client("tank/a").size, 32 * MIB);
    }
    // A temporary share that is asked for again without that word stays.
    world.share(passing).unwrap();
    let stays = world.nbd("tank", "b");
    assert!(stays.existing && stays.remembered);
    world.start();
    world.import_remembered();
    assert_eq!(uris(&world).len(), 3);

    // Exporting a pool ends what was shared of it.
    world.export(ExportPool { pool: "tank".into(), force: true, dry_run: false }).unwrap();
    world.import_from_here(&["tank"]).unwrap();
    assert_eq!(uris(&world), Vec::<String>::new());
}

#[test]
fn a_share_that_cannot_come_back_is_said_and_stops_nothing() {
    let mut world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    let listen = Listen::Tcp("127.0.0.1:0".into());
    let tcp = world.share(CreateShare { listen, ..share("tank", "v", ShareKind::Nbd) }).unwrap().uri;
    world.nbd("tank", "v");
    let address = tcp.strip_prefix("nbd://").unwrap().strip_suffix("/tank/v").unwrap().to_string();
    world.daemon = None;
    let other = std::net::TcpListener::bind(&address).unwrap();
    world.start();
    assert_eq!(world.import_remembered(), ["tank"]);
    assert_eq!(world.list_shares_of("tank").len(), 1, "the other one is there");
    assert!(world.codes().contains(&"share.not_restored".to_string()), "{:?}", world.codes());
    let problem = world.one_status().problems.remove(0);
    assert_eq!(problem.code, "share.not_restored");
    assert!(
        problem.message.starts_with(&format!("tank/v is not shared as {tcp} any more: listening on")),
        "{problem:?}"
    );

    // It is tried again by the next daemon.
    world.daemon = None;
    drop(other);
    world.start();
    world.import_remembered();
    assert_eq!((world.list_shares_of("tank").len(), world.one_status().problems.len()), (2, 0));

    // Or given up.
    world.daemon = None;
    let _other = std::net::TcpListener::bind(&address).unwrap();
    world.start();
    world.import_remembered();
    assert_eq!(world.one_status().problems.len(), 1);
    let dry = RemoveShare { dry_run: true, ..unshare(&tcp, false) };
    assert_eq!(world.unshare(dry).unwrap().what, format!("{tcp} given up"));
    assert_eq!(world.one_status().problems.len(), 1);
    world.unshare(unshare(&tcp, false)).unwrap();
    assert_eq!(world.one_status().problems, []);
    world.start();
    world.import_remembered();
    assert_eq!((world.list_shares_of("tank").len(), world.one_status().problems.len()), (1, 0));
    world.destroy_volume_by_force("tank", "v");
    world.volume("tank", "v", 32 * MIB);
    world.start();
    world.import_remembered();
    assert_eq!(world.list_shares_of("tank"), [], "another volume of the same name is another volume");
}

#[test]
fn a_read_only_share_takes_no_writes() {
    let world = World::new();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    world.share(CreateShare { read_only: true, ..share("tank", "v", ShareKind::Nbd) }).unwrap();
    assert_eq!(world.share(share("tank", "v", ShareKind::Nbd)).unwrap_err().code, "share.other_mode");
    let mut client = world.client("tank/v");
    assert_eq!(client.write(0, 0, &pattern(0, 4096)).unwrap().error, 1, "EPERM");
}

#[test]
fn sockets_of_a_service_manager_are_used_and_stay() {
    let world = World::new();
    let path = world.path("activated.sock");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    world.serve_activated_nbd(socket.into()).unwrap();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    for _ in 0..2 {
        assert!(world.nbd("tank", "v").uri.ends_with("activated.sock"));
        drop(Client::connect(&path, "tank/v", Wish::default()).unwrap());
        world.unshare(unshare("tank/v", true)).unwrap();
    }
    let file: std::os::fd::OwnedFd = fs::File::open("/dev/null").unwrap().into();
    assert!(world.serve_activated_nbd(file).is_err());
}

#[cfg(feature = "fuse")]
mod files {
    use super::*;
    use crate::tools::{Need, have, sh};
    use std::os::unix::fs::FileExt;

    fn fuse_here(name: &str) -> bool {
        have(name, &[Need::Node("/dev/fuse"), Need::Root])
    }

    #[test]
    fn a_fuse_share_is_a_file_of_the_volumes_size() {
        if !fuse_here("a_fuse_share_is_a_file_of_the_volumes_size") {
            return;
        }
        let world = World::new();
        world.tank("raid1", 2);
        world.volume("tank", "v", 32 * MIB);
        let info = world.share(share("tank", "v", ShareKind::Fuse)).unwrap();
        assert!(world.share(share("tank", "v", ShareKind::Fuse)).unwrap().existing);
        let path = Path::new(&info.uri);
        assert_eq!(path, world.path("run/fuse/tank/v/v").canonicalize().unwrap());
        assert_eq!(path.metadata().unwrap().len(), 32 * MIB);
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let data = pattern(0, 1 << 20);
        file.write_all_at(&data, 12_345).unwrap();
        file.sync_all().unwrap();
        world.nbd("tank", "v");
        assert_eq!(world.client("tank/v").read(12_345, 1 << 20).unwrap().data, data, "one volume, two shares");
        let grow = ResizeVolume { pool: "tank".into(), volume: "v".into(), size_bytes: 64 << 20, ..Default::default() };
        assert_eq!(world.volume_resize(grow).unwrap().notes, Vec::<String>::new());
        assert_eq!(path.metadata().unwrap().len(), 64 * MIB);
        let busy = world.unshare(unshare(&info.uri, false)).unwrap_err();
        assert_eq!((busy.code.as_str(), busy.kind), ("share.in_use", ErrorKind::Refused));
        drop(file);
        world.unshare(unshare(&info.uri, false)).unwrap();
        assert!(!world.path("run/fuse/tank").exists());
        assert_eq!(world.shares(ListShares::default()).unwrap().len(), 1);
    }

    #[test]
    fn the_pid_policy_takes_the_reading_process_for_the_client_of_a_fuse_share() {
        if !fuse_here("the_pid_policy_takes_the_reading_process_for_the_client_of_a_fuse_share") {
            return;
        }
        let world = World::new();
        world.tank("raid1", 2);
        world.volume("tank", "v", 32 * MIB);
        world.set(set(Target::Pool { pool: "tank".into() }, &[("read_policy", "pid")])).unwrap();
        let path = world.share(share("tank", "v", ShareKind::Fuse)).unwrap().uri;
        fs::write(&path, pattern(0, 1 << 20)).unwrap();
        let chosen = || -> Vec<u64> {
            world.iostat(IoStat::default()).unwrap().pools[0].devices.iter().map(|d| d.chosen).collect()
        };
        // Which mirror an even and an odd process read.
        let mut mirrors = [None, None];
        for _ in 0..64 {
            let before = chosen();
            let mut dd = std::process::Command::new("dd");
            dd.arg(format!("if={path}")).args(["of=/dev/null", "bs=64k", "count=16", "iflag=direct", "status=none"]);
            let mut child = dd.spawn().unwrap();
            let pid = child.id() as usize;
            assert!(child.wait().unwrap().success());
            let read: Vec<usize> = (0..2).filter(|i| chosen()[*i] > before[*i]).collect();
            assert_eq!(read.len(), 1, "process {pid} read more than one mirror: {before:?}, {:?}", chosen());
            assert_eq!(*mirrors[pid % 2].get_or_insert(read[0]), read[0], "process {pid}");
            if mirrors.iter().all(Option::is_some) {
                assert_ne!(mirrors[0], mirrors[1]);
                return;
            }
        }
        panic!("64 processes were all even or all odd");
    }

    #[test]
    fn a_loop_share_is_a_block_device() {
        let needs = [Need::Node("/dev/fuse"), Need::Node("/dev/loop-control"), Need::Root, Need::Tool("mkfs.ext4")];
        if !have("a_loop_share_is_a_block_device", &needs) {
            return;
        }
        let world = World::new();
        world.tank("raid1", 2);
        world.volume("tank", "v", 64 * MIB);
        let info = world.share(share("tank", "v", ShareKind::Loop)).unwrap();
        let (device, mount) = (&info.uri, world.path("mnt").display().to_string());
        assert!(device.starts_with("/dev/loop") && info.notes[0].contains("undo: braid unshare tank/v"), "{info:?}");
        sh(&format!("mkfs.ext4 -q {device}; mkdir {mount}; mount {device} {mount}; echo kept > {mount}/file; sync"));
        let busy = world.unshare(unshare("tank/v", false)).unwrap_err();
        assert_eq!(busy.kind, ErrorKind::Refused, "{busy:?}");
        assert_eq!(
            sh(&format!("cat {mount}/file; umount {mount}; e2fsck -fn {device} >/dev/null 2>&1; echo clean")),
            "kept\nclean\n"
        );
        let grow = ResizeVolume { pool: "tank".into(), volume: "v".into(), size_bytes: 96 << 20, ..Default::default() };
        assert_eq!(world.volume_resize(grow).unwrap().notes, Vec::<String>::new());
        assert_eq!(sh(&format!("blockdev --getsize64 {device}")).trim(), (96 * MIB).to_string());
        world.unshare(unshare("tank/v", false)).unwrap();
        assert_eq!(world.shares(ListShares::default()).unwrap(), []);
    }
}

#[test]
fn a_pool_that_cannot_be_opened_is_shown_with_the_way_out_and_its_absent_member_stays_known() {
    let mut world = World::new();
    world.tank("raid1", 3);
    world.daemon = None;
    fs::create_dir(world.path("away")).unwrap();
    fs::rename(world.path("d2.img"), world.path("away/d2.img")).unwrap();
    world.start();
    assert_eq!(world.import_remembered(), Vec::<String>::new());
    let listed = world.list(ListPools::default()).unwrap().remove(0);
    assert_eq!((listed.name.as_str(), listed.state, listed.devices), ("tank", PoolState::Unavailable, 3));
    assert!(listed.not_open.unwrap().contains("lacks device 3"));
    let one = Status { pool: Some("tank".into()) };
    for request in [Status::default(), one] {
        let status = world.status(request).unwrap().remove(0);
        assert_eq!((status.state, status.problems[0].code.as_str()), (PoolState::Unavailable, "pool.not_opened"));
        let action = status.problems[0].action.clone().unwrap();
        assert!(action.contains("braid import -f tank") && action.contains("d2.img"), "{action}");
    }
    let usage = world.usage(Usage { pool: Some("tank".into()) }).unwrap_err();
    assert_eq!(usage.code, "pool.not_found");

    let forced = ImportPools { names: vec!["tank".into()], force: true, ..ImportPools::default() };
    assert!(world.import(forced).unwrap()[0].imported);
    assert_eq!(world.list(ListPools::default()).unwrap().len(), 1, "not shown twice");
    assert_eq!(world.one_status().state, PoolState::Degraded);
    let known = fs::read_to_string(world.path("state/pools.json")).unwrap();
    assert!(["d0.img", "d1.img", "d2.img"].iter().all(|d| known.contains(d)), "{known}");

    // Or it is given up.
    world.daemon = None;
    for gone in ["d0.img", "d1.img"] {
        fs::rename(world.path(gone), world.path("away").join(gone)).unwrap();
    }
    world.start();
    assert_eq!(world.import_remembered(), Vec::<String>::new());
    world.export(ExportPool { pool: "tank".into(), ..Default::default() }).unwrap();
    assert_eq!(world.list(ListPools::default()).unwrap(), []);
    assert!(!fs::read_to_string(world.path("state/pools.json")).unwrap().contains("tank"));
}
