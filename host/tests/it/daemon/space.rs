//! Volumes, and where what they hold goes.

use std::fs;

use braid_host::control::api::*;
use braid_host::control::service::Service;

use super::{MIB, World, eventually, pattern, request, unshare};

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
    let place = |kind: &str| notes.iter().find(|n| n.starts_with(&format!("{kind}: the first chunk"))).unwrap().clone();
    assert!(place("data").ends_with("device 1 2") && place("metadata").ends_with("device 3 4"), "{notes:?}");
    assert!(notes.contains(&"data: first device 1 2 (tier 0), then 3 4 (tier 1)".into()), "{notes:?}");
}
