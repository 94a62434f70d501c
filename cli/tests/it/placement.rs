//! Where content goes and how an operator sees it: volume classes, the map of a volume.

use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use std::fs::File;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn write(real: &Real, volume: &str, offset: u64, data: &[u8]) {
    real.ok(&format!("share tank/{volume} nbd"));
    let mut client =
        Client::connect(&real.path("run/nbd.sock"), &format!("tank/{volume}"), Wish::default()).expect("connect");
    assert_eq!(client.write(0, offset, data).expect("an answer").error, 0);
    client.disconnect().expect("disconnect");
}

/// Devices 1 and 2 are of class hdd, 3 and 4 of class ssd.
fn two_classes(real: &Real) {
    let disks: Vec<String> = (1..=4).map(|i| real.disk(&format!("d{i}.img"), GIB)).collect();
    let class = |word: &str, of: &[String]| format!("--class {word}={}", of.join(","));
    let (hdd, ssd) = (class("hdd", &disks[..2]), class("ssd", &disks[2..]));
    real.ok(&format!("create tank -d raid1 -m raid1 {} {hdd} {ssd}", disks.join(" ")));
}

#[test]
fn the_class_of_a_volume_decides_where_its_content_goes() {
    let real = Real::start();
    two_classes(&real);
    for class in ["auto", "data", "metadata"] {
        real.ok(&format!("volume create tank/{class} 64M --class {class}"));
        write(&real, class, 0, &[7; MIB as usize]);
    }
    real.refuses("volume create tank/x 64M --class fast", 2, &["no volume class 'fast'", "auto metadata data"]);
    assert_eq!(
        real.ok("volume list -Hp -o volume,class,data,metadata"),
        "auto\tauto\t1048576\t0\ndata\tdata\t1048576\t0\nmetadata\tmetadata\t0\t1048576"
    );
    let devices = |volume: &str| -> Vec<i64> {
        let map = real.json(&format!("volume map tank/{volume}"));
        let mut devices: Vec<i64> =
            map[0]["places"].as_array().expect("places").iter().filter_map(|p| p["device"].as_i64()).collect();
        devices.sort_unstable();
        devices
    };
    assert_eq!((devices("auto"), devices("data"), devices("metadata")), (vec![1, 2], vec![1, 2], vec![3, 4]));
    // What is there stays; what is first written from now on goes by the new class.
    real.ok("volume set tank/data class=metadata");
    write(&real, "data", 0, &[8; MIB as usize]);
    write(&real, "data", 32 * MIB, &[8; MIB as usize]);
    assert_eq!(
        real.ok("volume list -Hp -o volume,class,data,metadata").lines().nth(1),
        Some("data\tmetadata\t1048576\t1048576")
    );
    assert_eq!(real.json("get class tank/data")[0]["value"], "metadata");
}

/// The map is believed: every piece is read from the member's file where the map says it is.
#[test]
fn the_map_says_where_on_which_device() {
    for (profile, disks, strip) in
        [("single", 1, None), ("raid1", 2, None), ("raid0", 3, Some(65_536)), ("raid10", 4, Some(65_536))]
    {
        let real = Real::start();
        real.tank(profile, &[GIB; 4][..disks], 64 * MIB);
        let stamp = |offset: u64| -> Vec<u8> { (0..512).flat_map(|i| (offset + 8 * i).to_le_bytes()).collect() };
        let first = 16 * MIB + 12_288;
        let data: Vec<u8> = (0..64).flat_map(|i| stamp(first + i * 4096)).collect();
        write(&real, "v", first, &data);
        let map = real.json("volume map tank/v");
        let map = map.as_array().expect("a list");
        let ends: Vec<(u64, u64)> = map
            .iter()
            .map(|e| (e["offset_bytes"].as_u64().expect("offset"), e["length_bytes"].as_u64().expect("length")))
            .collect();
        assert!(ends.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0), "no gap and no overlap: {ends:?}");
        assert_eq!(ends.last().map(|l| l.0 + l.1), Some(64 * MIB));
        let mapped: Vec<_> = map.iter().filter(|e| e["kind"] == "data").collect();
        assert_eq!(mapped.iter().filter_map(|e| e["length_bytes"].as_u64()).sum::<u64>(), 64 * 4096);
        for extent in mapped {
            assert_eq!((extent["profile"].as_str(), extent["strip_bytes"].as_u64()), (Some(profile), strip));
            let offset = extent["offset_bytes"].as_u64().expect("offset");
            let places = extent["places"].as_array().expect("places");
            assert!(places.len() >= if profile == "single" { 1 } else { 2 }, "{extent}");
            // A striped run goes on at the next set of devices at each end of a strip.
            let copies = if matches!(profile, "raid1" | "raid10") { 2 } else { 1 };
            for (i, place) in places.iter().enumerate() {
                let within = offset % 65_536;
                let skip = match (strip, i / copies) {
                    (None, _) | (_, 0) => 0,
                    (Some(strip), set) => strip * set as u64 - within,
                };
                let (device, at) =
                    (place["device"].as_u64().expect("id"), place["offset_bytes"].as_u64().expect("offset"));
                let mut found = vec![0; 4096];
                let file = File::open(real.path(&format!("d{}.img", device - 1))).expect("open");
                file.read_exact_at(&mut found, at).expect("read");
                assert!(found == stamp(offset + skip), "{profile}: place {i} of {extent}");
            }
        }
        let table = real.ok("volume map tank/v");
        for word in ["OFFSET", "PLACES", "hole", "data", profile, "1@"] {
            assert!(table.contains(word), "'{word}': {table}");
        }
    }
}
