//! Members that are slow, vanish or are looked at, and properties of everything.

use braid_host::backend::Fault;
use braid_host::control::api::*;
use braid_host::control::service::Service;

use super::{MIB, World, pattern, request, set};

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
    let status = world.one_status();
    assert_eq!(status.state, PoolState::Suspended);
    let actions: Vec<_> = status.problems.iter().filter_map(|p| p.action.as_deref()).collect();
    assert!(
        actions[0].ends_with("braid clear tank") && !actions.iter().any(|a| a.contains("by itself")),
        "{actions:?}"
    );
}

/// A copy that is not right: told with what to do, until somebody says that it was seen to.
#[test]
fn errors_are_told_by_the_status_until_they_are_cleared() {
    let world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    world.nbd("tank", "v");
    let mut client = world.client("tank/v");
    let data = pattern(0, 65_536);
    assert_eq!(client.write(0, 0, &data).unwrap().error, 0);
    let map = world.volume_map(MapVolume { pool: "tank".into(), volume: "v".into(), ..Default::default() }).unwrap();
    for copy in &map[0].places {
        let file = std::fs::OpenOptions::new().write(true).open(world.path(&format!("d{}.img", copy.device - 1)));
        // One block of each, so that whatever is read has one.
        let at = copy.offset_bytes + u64::from(copy.device) * 4096;
        std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), b"rotten", at).unwrap();
    }
    let errors = || world.one_status().devices.iter().map(|d| d.checksum_errors).collect::<Vec<_>>();
    let problems = || world.one_status().problems;
    for _ in 0..50 {
        assert_eq!(client.read(0, 65_536).unwrap().data, data, "the other copy is served");
    }
    super::eventually("it was written anew", || world.one_status().devices.iter().any(|d| d.repaired > 0));
    let before = errors();
    assert!(before.iter().sum::<u64>() > 0, "{before:?}");
    assert!(problems()[0].message.contains("not what its checksum says, 1 block was written anew"), "{:?}", problems());
    let clear = |device: Option<&str>| {
        let device = device.map(String::from);
        world.device_clear(ClearErrors { pool: "tank".into(), device, ..Default::default() })
    };
    assert_eq!(clear(Some("9")).unwrap_err().code, "device.not_found");
    assert_eq!(errors(), before, "nothing was cleared");
    let one = before.iter().position(|&n| n > 0).unwrap();
    assert!(clear(Some(&format!("d{one}.img"))).unwrap().changed);
    assert_eq!(errors()[one], 0);
    clear(None).unwrap();
    assert!(!clear(None).unwrap().changed, "there is nothing left");
    assert_eq!((errors(), problems()), (vec![0, 0], vec![]));
    // One that was given up for its errors is no member in use because they are forgotten.
    world.fault_handle("tank", 2).unwrap().set(Fault::Gone);
    assert_eq!(client.write(0, 0, &data).unwrap().error, 0);
    super::eventually("it is gone", || !world.one_status().devices[1].usable);
    clear(None).unwrap();
    assert_eq!(world.one_status().state, PoolState::Degraded);
}

/// Nothing else says which member it is: what is said names the way out, and that works.
#[test]
fn a_member_without_a_superblock_that_can_be_read_is_told_and_replaced_by_itself() {
    let world = World::new();
    world.tank("raid1", 2);
    world.device_offline(OfflineDevice { pool: "tank".into(), device: "2".into() }).unwrap();
    let path = world.one_status().devices[1].path.clone();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in [65_536, 524_288] {
        std::os::unix::fs::FileExt::write_all_at(&file, b"damaged", at + 100).unwrap();
    }
    for place in [None, Some(path.clone())] {
        let online = OnlineDevice { pool: "tank".into(), device: "2".into(), path: place };
        let error = world.device_online(online).unwrap_err();
        assert!(error.message.contains("superblock at "), "{error:?}");
        let hint = error.hint.unwrap();
        assert!(hint.ends_with(&format!("braid replace -f tank 2 {path}")), "{hint}");
    }
    let with = |path: &str, force| {
        let new = NewDevice { path: path.into(), ..Default::default() };
        ReplaceDevice { pool: "tank".into(), device: 2, new, dry_run: false, force }
    };
    assert_eq!(world.replace(with(&path, false)).unwrap_err().code, "device.damaged_member");
    let other = world.one_status().devices[0].path.clone();
    assert_eq!(world.replace(with(&other, true)).unwrap_err().code, "device.in_pool");
    world.replace(with(&path, true)).unwrap();
    super::eventually("the pool is whole", || world.one_status().state == PoolState::Online);
    assert_eq!(world.one_status().devices.iter().map(|d| d.id).collect::<Vec<_>>(), [1, 3]);

    // Another disk at the same place.
    world.device_offline(OfflineDevice { pool: "tank".into(), device: "3".into() }).unwrap();
    std::fs::remove_file(&path).unwrap();
    world.file("d1.img", 256 * MIB);
    world.replace(ReplaceDevice { device: 3, ..with(&path, false) }).unwrap();
    super::eventually("the pool is whole again", || world.one_status().state == PoolState::Online);
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
    assert!(
        policy.choices.contains(&"devid:2".into())
            && policy.choices.len() == braid_core::read_policy::ReadPolicy::ALL.len()
    );
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
    assert_eq!(world.get(GetProperties { target: volume(), names: vec![] }).unwrap().len(), 4);
}
