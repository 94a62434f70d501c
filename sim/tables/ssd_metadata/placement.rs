//! Where chunks go under `ssd_metadata`: the statements of the cover letters.
//!
//! Source: linux-btrfs, "btrfs: add ssd_metadata mode", cover letters of v1 (1 April 2020), v2 and v3 (5 April 2020):
//! with three SSDs (a, b, c) and two disks (e, f), which devices hold data and metadata.
//!
//! Scenario: the engine's allocator in the mode of each posting that makes a statement, on an empty pool of that kind, or
//! with e and f full. One statement is not what the rule does that the posting was about: v1 says that raid5 data takes all
//! five devices because raid5 "needs three". It needs two. v1's code gives the stated devices for another reason, its
//! comparison asks for one device too many; once that was mended the two disks take the data, and v2 tells of raid6
//! instead. Beside each stands braid's own mode.

use braid_core::Profile;
use braid_core::allocator::{Era, Hint, Hole, Kind, Member, Mode, Rules, Tiers, faithful_plan, plan};
use braid_core::units::{DeviceId, GIB, MIB};

use crate::table::{Lab, Sheet, Table};

/// See the file.
pub(in crate::tables) const TABLE: Table = Table {
    name: "ssd-metadata-placement",
    title: "where ssd_metadata puts chunks on three SSDs and two disks",
    source: "linux-btrfs, April 2020: btrfs: add ssd_metadata mode, cover letters of v1, v2 and v3",
    seed: 1,
    run,
};

/// What a cover letter says.
struct Statement {
    /// Allocation modes of the postings that say so.
    postings: &'static [Mode],
    kind: Kind,
    profile: Profile,
    /// Devices, in order of name.
    devices: &'static str,
    disks_full: bool,
}

const BOTH: &[Mode] = &[Mode::SsdMetadataV1, Mode::SsdMetadata];
const V1: &[Mode] = &[Mode::SsdMetadataV1];
const V2: &[Mode] = &[Mode::SsdMetadata];
/// "two of a+b+c": the source leaves open which, the engine takes equals in order of id.
const TWO_SSDS: &str = "a+b";

#[rustfmt::skip]
const STATEMENTS: [Statement; 7] = [
    Statement { postings: BOTH, kind: Kind::Data,     profile: Profile::Raid1, devices: "e+f",       disks_full: false },
    Statement { postings: BOTH, kind: Kind::Metadata, profile: Profile::Raid1, devices: TWO_SSDS,    disks_full: false },
    Statement { postings: BOTH, kind: Kind::Data,     profile: Profile::Raid1, devices: TWO_SSDS,    disks_full: true },
    Statement { postings: V2,   kind: Kind::Data,     profile: Profile::Raid6, devices: "a+b+c+e+f", disks_full: false },
    Statement { postings: V2,   kind: Kind::Metadata, profile: Profile::Raid6, devices: "a+b+c",     disks_full: false },
    Statement { postings: V1,   kind: Kind::Data,     profile: Profile::Raid5, devices: "a+b+c+e+f", disks_full: false },
    Statement { postings: V1,   kind: Kind::Metadata, profile: Profile::Raid5, devices: "a+b+c",     disks_full: false },
];

/// The statement of v1 that does not hold once its comparison is mended, and what holds then.
const MENDED: (usize, &str) = (5, "e+f");

fn run(_: &Lab, _: u64) -> Sheet {
    let mut sheet = Sheet::default();
    for Statement { postings, kind, profile, devices, disks_full } in &STATEMENTS {
        let what = format!("{kind:?} {}{}", profile.name(), if *disks_full { ", e and f full" } else { "" });
        for &mode in *postings {
            let chosen = chosen(mode, *profile, *kind, *disks_full);
            decided(&mut sheet, format!("{}: {what} on {devices}, as stated", mode.name()), devices, chosen);
        }
    }
    let (number, devices) = MENDED;
    let Statement { kind, profile, disks_full, .. } = &STATEMENTS[number];
    let mended = chosen(Mode::SsdMetadata, *profile, *kind, *disks_full);
    let what =
        format!("{}: the same {kind:?} {} on {devices}, not as v1 stated", Mode::SsdMetadata.name(), profile.name());
    decided(&mut sheet, what, devices, mended);
    for statement in &STATEMENTS {
        own(&mut sheet, statement);
    }
    sheet.note(
        "v1 states that raid5 data takes all five devices because raid5 needs three; it needs two. v1 does take all five, \
         since it compares with one device too many; v2 and v3 take e and f.",
    );
    sheet.note("\"Two of a+b+c\": the source leaves open which two; the engine takes the first of equals.");
    sheet
}

/// braid's own mode keeps every promise that the mended rule keeps.
fn own(sheet: &mut Sheet, statement: &Statement) {
    let Statement { kind, profile, disks_full, .. } = statement;
    let (own, mended) = (Mode::default(), Mode::SsdMetadata);
    let [ours, theirs] = [own, mended].map(|mode| chosen(mode, *profile, *kind, *disks_full));
    let full = if *disks_full { ", e and f full" } else { "" };
    let what = format!("{}: {kind:?} {}{full} where {} puts it", own.name(), profile.name(), mended.name());
    decided(sheet, what, &theirs, ours);
}

/// A claim about devices. There is no virtual time here: what is decided is the trace.
fn decided(sheet: &mut Sheet, what: String, expected: &str, chosen: String) {
    chosen.bytes().for_each(|byte| sheet.traced(byte.into()));
    sheet.claim(what, chosen == expected, chosen);
}

/// Devices of the next chunk, in order of name.
fn chosen(mode: Mode, profile: Profile, kind: Kind, disks_full: bool) -> String {
    let devices = [("a", 20, false), ("b", 20, false), ("c", 20, false), ("e", 230, true), ("f", 230, true)];
    let holes = devices.map(|(_, gib, rotational)| match rotational && disks_full {
        true => Vec::new(),
        false => vec![Hole { offset: MIB, len: gib * GIB - MIB }],
    });
    let member = |(i, (_, gib, rotational)): (usize, (&str, u64, bool))| Member {
        id: DeviceId(i as u32 + 1),
        size: gib * GIB,
        rotational,
        tiers: Tiers { data: u8::from(!rotational), metadata: u8::from(rotational) },
        hint: Hint::default(),
        allocated: if holes[i].is_empty() { gib * GIB } else { 0 },
        holes: &holes[i],
    };
    let members: Vec<Member> = devices.into_iter().enumerate().map(member).collect();
    let rules = Rules { mode, era: Era::V5_6, ..Rules::default() };
    let place = if mode == Mode::default() { plan } else { faithful_plan };
    match place(&rules, profile, kind, &members) {
        Ok(plan) => {
            let mut names: Vec<&str> = plan.columns.iter().map(|(id, _)| devices[id.0 as usize - 1].0).collect();
            names.sort_unstable();
            names.dedup();
            names.join("+")
        }
        Err(error) => error.to_string(),
    }
}
