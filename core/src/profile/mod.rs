//! Profiles: how a chunk spreads its bytes over devices. Each is a row of a table, [`Facts`]; code asks the row, not the name.
//!
//! ```text
//!  raid1        raid10, 4 columns            raid0, 3 columns
//!  c0 c1        c0 c1 c2 c3                  c0 c1 c2
//!  A  A         A  A  B  B     <- strips ->  A  B  C
//!  B  B         C  C  D  D                   D  E  F
//! ```
//!
//! The rows are those of Linux `fs/btrfs/volumes.c`. Where a chunk may stand is the allocator's business
//! ([`crate::allocator`]), where a byte stands inside it is [`slice()`]'s.

mod geometry;
pub mod parity;

pub use geometry::{Slice, column_of, columns_max, content_offset, data_stripes, member_of, slice};

/// How the bytes of a chunk are spread over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// One copy on one device.
    Single,
    /// Two copies on one device.
    Dup,
    /// Strips over all devices, one copy.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
    /// Strips over pairs of devices, two copies.
    Raid10,
    /// Strips and one parity.
    Raid5,
    /// Strips and two parities.
    Raid6,
}

/// What is special about a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// As operators write it.
    pub name: &'static str,
    /// Columns that form one mirror set within a striped layout.
    pub sub_stripes: usize,
    /// Columns on each device.
    pub dev_stripes: usize,
    /// Most devices; 0 = as many as there are.
    pub devs_max: usize,
    /// Fewest devices (Linux 5.15 and later).
    pub devs_min: usize,
    /// Fewest devices before Linux 5.15, the era of the `ssd_metadata` posting.
    pub devs_min_v5_6: usize,
    /// Devices that may fail without loss.
    pub tolerated_failures: usize,
    /// The number of devices is a multiple of this.
    pub devs_increment: usize,
    /// Copies of each byte.
    pub copies: usize,
    /// Columns of parity.
    pub parity: usize,
    /// Neighbouring strips stand in different columns.
    pub striped: bool,
}

/// One row per profile, in the order of [`Profile::ALL`].
#[rustfmt::skip]
static FACTS: [Facts; 9] = [
    //         sub dev max min old fail inc copies parity
    row("single",  [1, 1, 1, 1, 1, 0, 1, 1, 0], false),
    row("dup",     [1, 2, 1, 1, 1, 0, 1, 2, 0], false),
    row("raid0",   [1, 1, 0, 1, 2, 0, 1, 1, 0], true),
    row("raid1",   [1, 1, 2, 2, 2, 1, 2, 2, 0], false),
    row("raid1c3", [1, 1, 3, 3, 3, 2, 3, 3, 0], false),
    row("raid1c4", [1, 1, 4, 4, 4, 3, 4, 4, 0], false),
    row("raid10",  [2, 1, 0, 2, 4, 1, 2, 2, 0], true),
    row("raid5",   [1, 1, 0, 2, 2, 1, 1, 1, 1], true),
    row("raid6",   [1, 1, 0, 3, 3, 2, 1, 1, 2], true),
];

const fn row(name: &'static str, n: [usize; 9], striped: bool) -> Facts {
    Facts {
        name,
        sub_stripes: n[0],
        dev_stripes: n[1],
        devs_max: n[2],
        devs_min: n[3],
        devs_min_v5_6: n[4],
        tolerated_failures: n[5],
        devs_increment: n[6],
        copies: n[7],
        parity: n[8],
        striped,
    }
}

impl Profile {
    /// All, in the order of the documentation.
    pub const ALL: [Profile; 9] = [
        Profile::Single,
        Profile::Dup,
        Profile::Raid0,
        Profile::Raid1,
        Profile::Raid1c3,
        Profile::Raid1c4,
        Profile::Raid10,
        Profile::Raid5,
        Profile::Raid6,
    ];

    /// The row of the table.
    pub fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// As operators write it; the names of btrfs.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The profile of that name.
    pub fn parse(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// What a pool of so many devices gets for data and for metadata when nobody said: two copies, of metadata always.
    pub fn usual(devices: usize) -> [Profile; 2] {
        if devices > 1 { [Profile::Raid1, Profile::Raid1] } else { [Profile::Single, Profile::Dup] }
    }

    /// Whether content of this type can live on it. Metadata cannot live on parity: what makes changes of rows safe is
    /// itself in chunks of metadata.
    pub fn carries(self, kind: crate::ChunkType) -> bool {
        self.facts().parity == 0 || kind == crate::ChunkType::Data
    }

    /// The profile of the pool's own records when metadata has this one: never striped, so that any one column
    /// is a whole copy, and never less redundant.
    pub fn system(self) -> Profile {
        match self {
            Profile::Raid0 => Profile::Single,
            Profile::Raid10 | Profile::Raid5 => Profile::Raid1,
            Profile::Raid6 => Profile::Raid1c3,
            mirrored => mirrored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    /// Rows of `ref_btrfs_raid_array.csv`, the last column left out.
    const PUBLISHED: &str = "\
single,1,1,1,1,1,0,1,1,0
dup,1,2,1,1,1,0,1,2,0
raid0,1,1,0,1,2,0,1,1,0
raid1,1,1,2,2,2,1,2,2,0
raid1c3,1,1,3,3,3,2,3,3,0
raid1c4,1,1,4,4,4,3,4,4,0
raid10,2,1,0,2,4,1,2,2,0
raid5,1,1,0,2,2,1,1,1,1
raid6,1,1,0,3,3,2,1,1,2";

    #[test]
    fn the_table_is_the_published_one() {
        let ours: Vec<String> = Profile::ALL
            .iter()
            .map(|p| {
                let f = p.facts();
                let n = [
                    f.sub_stripes,
                    f.dev_stripes,
                    f.devs_max,
                    f.devs_min,
                    f.devs_min_v5_6,
                    f.tolerated_failures,
                    f.devs_increment,
                    f.copies,
                    f.parity,
                ];
                n.iter().fold(String::from(p.name()), |line, n| std::format!("{line},{n}"))
            })
            .collect();
        assert_eq!(ours.join("\n"), PUBLISHED);
    }

    #[test]
    fn names_round_trip() {
        for profile in Profile::ALL {
            assert_eq!(Profile::parse(profile.name()), Some(profile));
        }
        for odd in ["", "RAID1", "raid2", " raid1"] {
            assert_eq!(Profile::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn system_records_are_mirrored_and_no_less_redundant() {
        let rows = "single>single dup>dup raid0>single raid1>raid1 raid1c3>raid1c3 raid1c4>raid1c4 raid10>raid1 \
                    raid5>raid1 raid6>raid1c3";
        for row in rows.split(' ') {
            let (metadata, system) = row.split_once('>').unwrap();
            let (metadata, system) = (Profile::parse(metadata).unwrap(), Profile::parse(system).unwrap());
            assert_eq!(metadata.system(), system, "{row}");
            assert!(!system.facts().striped, "{row}");
            assert!(system.facts().tolerated_failures >= metadata.facts().tolerated_failures, "{row}");
        }
    }

    #[test]
    fn all_carry_data_and_parity_no_metadata() {
        let refuse = |kind| -> Vec<Profile> { Profile::ALL.into_iter().filter(|p| !p.carries(kind)).collect() };
        assert_eq!(refuse(crate::ChunkType::Data), []);
        assert_eq!(refuse(crate::ChunkType::Metadata), [Profile::Raid5, Profile::Raid6]);
    }
}
