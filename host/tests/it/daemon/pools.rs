//! Pools are made, closed, found again and forgotten.

use std::fs;

use braid_host::backend::Fault;
use braid_host::control::api::*;
use braid_host::control::service::Service;

use super::{MIB, World, eventually, pattern, request};

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

    // One device is away: the pool goes on without it, and says so.
    fs::create_dir(world.path("away")).unwrap();
    fs::rename(world.path("d2.img"), world.path("away/d2.img")).unwrap();
    let found = world.import_from_here(&["tank"]).unwrap();
    assert!(found[0].note.as_ref().is_some_and(|note| note.contains("braid online tank")), "{found:?}");
    assert_eq!((found[0].imported, found[0].missing, found[0].state), (true, 1, PoolState::Degraded));
    let status = world.one_status();
    assert_eq!(status.state, PoolState::Degraded);
    assert_eq!(status.devices[2].state, "MISSING", "{:?}", status.devices[2]);
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
fn a_pool_that_closes_slowly_holds_up_no_other() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    let slow = |fault: Fault| (1..=2).for_each(|id| world.fault_handle("tank", id).unwrap().set(fault));
    // Until that is lifted.
    slow(Fault::DelayMs(600_000));
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
        assert!(action.contains("braid import tank") && action.contains("d2.img"), "{action}");
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
