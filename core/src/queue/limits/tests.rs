use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

#[test]
fn row_3_9_the_ramp_of_asynchronous_writes() {
    let settings = QueueSettings::new(Generation::V2_0_1, true);
    let limit = 100 * MIB;
    let at = |percent: u64, sync_waits| {
        settings.async_write_max(Some(Dirty { bytes: limit * percent / 100, limit, sync_waits }))
    };
    let rows = [(0, 2), (29, 2), (30, 2), (33, 2), (34, 3), (45, 6), (59, 9), (60, 10), (61, 10)];
    for (percent, max) in rows {
        assert_eq!(at(percent, false), max, "3.9 {percent} %");
    }
    assert_eq!(at(0, true), 10, "3.9 a sync task waits");
    assert_eq!(settings.async_write_max(None), 10, "pool unknown");
    assert_eq!(settings.async_write_max(Some(Dirty { bytes: 0, limit: 0, sync_waits: false })), 10, "no limit known");
    let most = Dirty { bytes: u64::MAX / 2, limit: u64::MAX, sync_waits: false };
    assert_eq!(settings.async_write_max(Some(most)), 7, "nothing overflows");
}

#[test]
fn the_defaults_are_the_published_table() {
    //  class | before | pull request | 2.0.1
    let rows = [
        (Class::SyncRead, (10, 10), (10, 10), (10, 10)),
        (Class::SyncWrite, (10, 10), (10, 10), (10, 10)),
        (Class::AsyncRead, (1, 3), (1, 3), (1, 3)),
        (Class::AsyncWrite, (2, 10), (2, 10), (2, 10)),
        (Class::Scrub, (1, 2), (1, 3), (1, 3)),
        (Class::Removal, (1, 2), (1, 2), (1, 2)),
        (Class::Initializing, (1, 1), (1, 1), (1, 1)),
        (Class::Trim, (1, 2), (1, 2), (1, 2)),
        (Class::Rebuild, (1, 3), (1, 3), (1, 3)),
    ];
    for rotating in [false, true] {
        let of = |generation, class| {
            let limits = QueueSettings::new(generation, rotating).class(class);
            (limits.min, limits.max)
        };
        for (class, before, pr, newest) in rows {
            assert_eq!(of(Generation::Before, class), before, "{class:?}");
            assert_eq!(of(Generation::Pr11166, class), pr, "{class:?}");
            assert_eq!(of(Generation::V2_0_1, class), newest, "{class:?}");
        }
    }
    let newest = |rotating| QueueSettings::new(Generation::V2_0_1, rotating);
    assert_eq!((newest(true).aggregation_limit(), newest(false).aggregation_limit()), (MIB, 128 * KIB));
    let one = newest(true);
    assert_eq!((one.max_active(), one.nia_delay(), one.nia_credit()), (1000, 5, 5));
    assert_eq!((one.read_gap_limit(), one.write_gap_limit()), (32 * KIB, 4 * KIB));
}

#[test]
fn every_name_is_known_unique_and_takes_what_it_shows() {
    let mut names: Vec<&str> = NAMES.to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), NAMES.len());
    for class in Class::ALL {
        let owned = NAMES.iter().filter(|n| n.strip_suffix("_active").is_some_and(|n| n.starts_with(class.name())));
        assert_eq!(owned.count(), 2, "{class:?} has a minimum and a maximum");
    }
    for generation in Generation::ALL {
        assert_eq!(Generation::parse(generation.name()), Some(generation));
        for rotating in [false, true] {
            let settings = QueueSettings::new(generation, rotating);
            assert_eq!(settings.list().count(), NAMES.len());
            for (name, value, is_default) in settings.list() {
                let mut again = settings.clone();
                assert_eq!(again.set(name, &value), Ok(()), "{name}");
                assert!(again == settings && is_default, "{name}");
            }
        }
    }
    assert_eq!(Generation::parse("zfs"), None);
}

#[test]
fn under_braid_a_batch_becomes_one_command_up_to_the_largest_request() {
    for rotating in [false, true] {
        let mut settings = QueueSettings::new(Generation::Braid, rotating);
        assert_eq!((settings.aggregation_limit(), settings.max_segments()), (32 * MIB, 512));
        let name = if rotating { "aggregation_limit" } else { "aggregation_limit_non_rotating" };
        assert_eq!(settings.set(name, "4194304"), Ok(()));
        assert_eq!(settings.aggregation_limit(), 4 * MIB);
        let error = settings.set(name, "33554433").expect_err("above");
        assert!(error.contains("is 0 to 33554432 bytes"), "{error}");
    }
}

#[test]
fn gaps_are_bridged_by_the_class_of_the_device() {
    // class | rotating | braid's default
    let rows = [
        ("net", false, 16 * KIB),
        ("net", true, 16 * KIB),
        ("hdd", false, 8 * KIB),
        ("nvme", true, 0),
        ("ssd", false, 0),
        ("archive", true, 8 * KIB),
        ("archive", false, 0),
    ];
    for (class, rotating, expected) in rows {
        let mut settings = QueueSettings::of_class(Generation::Braid, rotating, class);
        assert_eq!(settings.read_gap_limit(), expected, "{class} {rotating}");
        assert_eq!(QueueSettings::of_class(Generation::Pr11166, rotating, class).read_gap_limit(), 32 * KIB);
        assert_eq!((settings.set("read_gap_limit", "1M"), settings.read_gap_limit()), (Ok(()), MIB));
        assert_eq!((settings.set("read_gap_limit", ""), settings.read_gap_limit()), (Ok(()), expected), "as it was");
        assert!(settings.list().all(|(_, _, is_default)| is_default), "{class} {rotating}");
    }
}

#[test]
fn each_mistake_has_its_sentence() {
    // name | value | part of the sentence
    let rows = [
        ("scrub_min_active", "4", "scrub_min_active 4 is above scrub_max_active 3; raise that first"),
        ("sync_read_max_active", "9", "sync_read_max_active 9 is below sync_read_min_active 10; lower that first"),
        ("scrub_max_active", "0", "scrub_max_active is 1 to 65536, not \"0\""),
        ("max_active", "0", "max_active is 1 to 65536"),
        ("max_active", "-1", "max_active is 1 to 65536"),
        ("max_active", "+1", "max_active is 1 to 65536"),
        ("nia_credit", "many", "nia_credit is 0 to 1000000"),
        ("nia_delay", "99999999999999999999", "nia_delay is 0 to 1000000"),
        ("aggregation_limit", "16777217", "aggregation_limit is 0 to 16777216 bytes"),
        ("async_write_active_max_dirty_percent", "101", "is 0 to 100%"),
        ("async_write_active_max_dirty_percent", "30", "leave no room for the ramp"),
        ("async_write_active_min_dirty_percent", "60", "leave no room for the ramp"),
        ("lba_order", "elevator", "offset or slot"),
        ("background_floor", "5", "a time up to 1 h"),
        ("background_floor", "3601s", "a time up to 1 h"),
        ("background_floor", "s", "a time up to 1 h"),
        ("background_floor", "18446744073709551615s", "a time up to 1 h"),
        ("trimming_max_active", "1", "no queue setting is called"),
        ("_max_active", "1", "no queue setting is called"),
        ("generation", "", "no queue setting is called"),
    ];
    for (name, value, sentence) in rows {
        let mut settings = QueueSettings::new(Generation::V2_0_1, true);
        let error = settings.set(name, value).expect_err(name);
        assert!(error.contains(sentence), "{name}={value}: {error}");
        assert_eq!(settings, QueueSettings::new(Generation::V2_0_1, true), "nothing changed");
    }
}

#[test]
fn what_is_set_is_shown_and_the_empty_word_resets() {
    // name | value | shown
    let rows = [
        ("scrub_min_active", "0", "0"),
        ("scrub_max_active", "8", "8"),
        ("background_floor", "1500us", "1500us"),
        ("background_floor", "2000ms", "2s"),
        ("background_floor", "0", "off"),
        ("lba_order", "offset", "offset"),
        ("aggregation_limit", "0", "0"),
    ];
    let fresh = QueueSettings::new(Generation::Braid, true);
    for (name, value, shown) in rows {
        let mut settings = fresh.clone();
        settings.set(name, value).expect(name);
        assert_eq!(settings.get(name).as_deref(), Some(shown));
        let changed: Vec<_> = settings.list().filter(|row| !row.2).map(|row| row.0).collect();
        assert_eq!(changed, [name], "only that one is set");
        settings.set(name, " ").expect(name);
        assert_eq!(settings, fresh);
    }
}

proptest! {
    /// Whatever is set in whatever order, minimums stay at or below maximums and maximums above zero.
    #[test]
    fn settings_stay_consistent(changes in prop::collection::vec((0..NAMES.len(), 0u32..200), 0..40)) {
        let mut settings = QueueSettings::new(Generation::Braid, false);
        for (name, value) in changes {
            let _ = settings.set(NAMES[name], &alloc::string::ToString::to_string(&value));
            for class in Class::ALL {
                let limits = settings.class(class);
                prop_assert!(limits.min <= limits.max && limits.max >= 1);
            }
            prop_assert!(settings.max_active() >= 1 && settings.aggregation_limit() <= AGGREGATE_MAX_BRAID);
        }
    }
}
