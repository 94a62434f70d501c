use super::*;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// Multiplication the slow way.
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        sum ^= if b & 1 == 1 { a } else { 0 };
        a = gf::times_2(a);
        b >>= 1;
    }
    sum
}

fn power(n: usize) -> u8 {
    (0..n).fold(1, |power, _| times(power, 2))
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn lanes(&mut self) -> Lanes {
        // Runs, as clients make them, and now and then anything.
        match self.next() % 4 {
            0 => 0,
            1 => Lanes::MAX,
            2 => self.next() as Lanes,
            _ => Lanes::MAX << (self.next() % 16) & Lanes::MAX >> (self.next() % 16),
        }
    }
}

/// A row with real bytes, one a lane.
struct Bytes {
    parity: usize,
    counted: Vec<Lanes>,
    good: Vec<Lanes>,
    old: Vec<[u8; 16]>,
}

impl Bytes {
    fn row(&self) -> Row<'_> {
        Row { data: self.counted.len(), parity: self.parity, counted: &self.counted, good: &self.good }
    }

    /// What parity member `which` is of these data members.
    fn parity_of(data: &[[u8; 16]], counted: &[Lanes], which: usize, lane: usize) -> u8 {
        let counts = |m: &usize| counted[*m] >> lane & 1 == 1;
        let factor = |m| if which == 0 { 1 } else { power(m) };
        (0..data.len()).filter(counts).fold(0, |sum, m| sum ^ times(data[m][lane], factor(m)))
    }

    fn new(dice: &mut Dice, parity: usize, counted: Vec<Lanes>, good: Vec<Lanes>) -> Bytes {
        let mut old: Vec<[u8; 16]> = counted.iter().map(|_| [0; 16].map(|_| dice.next() as u8)).collect();
        for which in 0..parity {
            let made = core::array::from_fn(|lane| Bytes::parity_of(&old[..counted.len()], &counted, which, lane));
            old.push(made);
        }
        Bytes { parity, counted, good, old }
    }

    /// What a plan makes, by member and lane. Checks that it reads only what it may and makes nothing twice.
    #[track_caller]
    fn carry_out(&self, plan: &Plan, new: &[[u8; 16]], written: &[Lanes]) -> BTreeMap<(usize, usize), u8> {
        let data = self.counted.len();
        let mut read = vec![0; data + self.parity];
        for &(member, lanes) in &plan.reads {
            assert_ne!(lanes, 0);
            assert_eq!(read[member], 0, "member {member} is read twice");
            assert_eq!(lanes & !self.good[member], 0, "member {member} can't be read there");
            assert!(member >= data || lanes & !self.counted[member] == 0, "member {member} doesn't count there");
            read[member] = lanes;
        }
        assert!(plan.reads.is_sorted());
        let mut made = BTreeMap::new();
        for make in &plan.makes {
            assert!(make.lanes != 0 && make.to != [None; 2]);
            for lane in (0..16).filter(|lane| make.lanes >> lane & 1 == 1) {
                for (target, to) in make.to.iter().enumerate() {
                    let sum = make.addends.iter().fold(0, |sum, addend| {
                        assert_ne!(addend.times, [0; 2]);
                        let byte = match addend.from {
                            Source::Old(m) if read[m] >> lane & 1 == 1 => self.old[m][lane],
                            Source::New(m) if written[m] >> lane & 1 == 1 => new[m][lane],
                            from => panic!("{from:?} of lane {lane} is not there"),
                        };
                        sum ^ times(byte, addend.times[target])
                    });
                    match to {
                        Some(to) => assert_eq!(made.insert((*to, lane), sum), None, "made twice"),
                        None => assert_eq!(sum, 0, "what is not asked for has no factors"),
                    }
                }
            }
        }
        made
    }

    /// A change is planned, carried out and compared; answers the blocks that were read.
    #[track_caller]
    fn check_change(&self, dice: &mut Dice, written: &[Lanes], wanted: [bool; 2]) -> Result<u32, Lost> {
        let data = self.counted.len();
        let plan = plan_change(&self.row(), written, wanted)?;
        let new: Vec<[u8; 16]> = written.iter().map(|_| [0; 16].map(|_| dice.next() as u8)).collect();
        let made = self.carry_out(&plan, &new, written);
        let mut after = self.old[..data].to_vec();
        let mut counted = self.counted.clone();
        for m in 0..data {
            for lane in (0..16).filter(|lane| written[m] >> lane & 1 == 1) {
                after[m][lane] = new[m][lane];
            }
            counted[m] |= written[m];
        }
        let touched = written.iter().fold(0, |all, lanes| all | lanes);
        let mut expected = BTreeMap::new();
        for which in (0..self.parity).filter(|&which| wanted[which]) {
            for lane in (0..16).filter(|lane| touched >> lane & 1 == 1) {
                expected.insert((data + which, lane), Bytes::parity_of(&after, &counted, which, lane));
            }
        }
        assert_eq!(made, expected);
        Ok(blocks(&plan))
    }

    #[track_caller]
    fn check_read(&self, wanted: &[Lanes]) -> Result<u32, Lost> {
        let plan = plan_read(&self.row(), wanted)?;
        let made = self.carry_out(&plan, &[], &[]);
        let mut expected = BTreeMap::new();
        for (member, lanes) in wanted.iter().enumerate() {
            for lane in (0..16).filter(|lane| lanes >> lane & 1 == 1) {
                let counts = self.counted.get(member).is_none_or(|counted| counted >> lane & 1 == 1);
                expected.insert((member, lane), if counts { self.old[member][lane] } else { 0 });
            }
        }
        for &(member, lanes) in &plan.reads {
            assert_eq!(lanes & wanted[member], 0, "what is wanted is not read");
        }
        assert_eq!(made, expected);
        Ok(blocks(&plan))
    }
}

fn blocks(plan: &Plan) -> u32 {
    plan.reads.iter().map(|(_, lanes)| lanes.count_ones()).sum()
}

/// Fewest members of a lane whose sums can give all that is wanted: every set is tried, smallest first.
fn fewest(readable: &[Vec<u8>], wanted: &[Vec<u8>]) -> Option<u32> {
    let mut sets: Vec<u32> = (0..1 << readable.len()).collect();
    sets.sort_by_key(|set| set.count_ones());
    let spans = |set: &u32| {
        let mut rows: Vec<Vec<u8>> =
            (0..readable.len()).filter(|i| set >> i & 1 == 1).map(|i| readable[i].clone()).collect();
        reduce(&mut rows);
        wanted.iter().all(|wanted| {
            let mut left = wanted.clone();
            for row in &rows {
                let at = row.iter().position(|&x| x != 0).unwrap();
                let factor = left[at];
                left.iter_mut().zip(row).for_each(|(l, &r)| *l ^= times(r, factor));
            }
            left.iter().all(|&x| x == 0)
        })
    };
    sets.into_iter().find(spans).map(u32::count_ones)
}

/// Gauss and Jordan: rows begin with a 1 that stands alone in its column; rows of zeros go.
fn reduce(rows: &mut Vec<Vec<u8>>) {
    let mut done = 0;
    for at in 0..rows.first().map_or(0, Vec::len) {
        let Some(pivot) = (done..rows.len()).find(|&i| rows[i][at] != 0) else { continue };
        rows.swap(done, pivot);
        let scale = (1..=255).find(|&x| times(x, rows[done][at]) == 1).unwrap();
        let row: Vec<u8> = rows[done].iter().map(|&x| times(x, scale)).collect();
        for (_, other) in rows.iter_mut().enumerate().filter(|(i, _)| *i != done) {
            let factor = other[at];
            other.iter_mut().zip(&row).for_each(|(o, &r)| *o ^= times(r, factor));
        }
        rows[done] = row;
        done += 1;
    }
    rows.truncate(done);
}

/// A lane as vectors over its data members: what can be read, by member.
fn readable(data: usize, parity: usize, counted: u64, good: u64) -> Vec<Vec<u8>> {
    let counts = |m: usize| counted >> m & 1 == 1;
    let unit = |of: usize| (0..data).map(|m| u8::from(m == of)).collect();
    let sum = |which: usize| (0..data).map(|m| if counts(m) { [1, power(m)][which] } else { 0 }).collect();
    let alone = (0..data).filter(|&m| counts(m) && good >> m & 1 == 1).map(unit);
    alone.chain((0..parity).filter(|which| good >> (data + which) & 1 == 1).map(sum)).collect()
}

fn as_lanes(set: u64, members: usize) -> Vec<Lanes> {
    // One lane that is not the first.
    (0..members).map(|m| ((set >> m & 1) as Lanes) << 5).collect()
}

/// All rows of 3 to 6 devices, one lane, with up to two members lost.
fn every_lane(mut check: impl FnMut(usize, usize, u64, u64)) {
    for (parity, devices) in [(1, 3), (1, 4), (1, 5), (1, 6), (2, 3), (2, 4), (2, 5), (2, 6)] {
        let data = devices - parity;
        for lost in (0..1u64 << devices).filter(|lost| lost.count_ones() <= 2) {
            for counted in 0..1 << data {
                check(data, parity, counted, !lost & ((1 << devices) - 1));
            }
        }
    }
}

#[test]
fn a_change_of_any_lane_is_right_and_reads_fewest() {
    let dice = &mut Dice(7);
    let (mut plans, mut lost) = (0, 0);
    every_lane(|data, parity, counted, good| {
        let bytes = Bytes::new(dice, parity, as_lanes(counted, data), as_lanes(good, data + parity));
        let vectors = readable(data, parity, counted, good);
        for written in 1u64..1 << data {
            for wanted in [[true, false], [false, true], [true, true]].iter().take(2 * parity - 1) {
                let others = counted & !written;
                let sum = |which: usize| {
                    let factor = move |m| if others >> m & 1 == 1 { [1, power(m)][which] } else { 0 };
                    (0..data).map(factor).collect::<Vec<u8>>()
                };
                let aims: Vec<_> = (0..2).filter(|&which| wanted[which]).map(sum).collect();
                let ours = bytes.check_change(dice, &as_lanes(written, data), *wanted);
                let expected = fewest(&vectors, &aims).ok_or(Lost { lanes: 1 << 5 });
                assert_eq!(ours, expected, "{data}+{parity} {counted:b} {good:b} {written:b} {wanted:?}");
                (plans, lost) = (plans + 1, lost + i32::from(ours.is_err()));
            }
        }
    });
    assert!(plans > 40_000 && lost > 1000 && lost < plans / 4, "{plans} plans, {lost} lost");
}

#[test]
fn a_read_of_any_lane_is_right_and_reads_fewest() {
    let dice = &mut Dice(8);
    let (mut plans, mut lost) = (0, 0);
    every_lane(|data, parity, counted, good| {
        let bytes = Bytes::new(dice, parity, as_lanes(counted, data), as_lanes(good, data + parity));
        for wanted in 1u64..1 << (data + parity) {
            let aim = |member: usize| -> Vec<u8> {
                let counts = |m: usize| counted >> m & 1 == 1;
                let factor = |m: usize| match member.checked_sub(data) {
                    None => u8::from(m == member && counts(m)),
                    Some(which) => {
                        if counts(m) {
                            [1, power(m)][which]
                        } else {
                            0
                        }
                    }
                };
                (0..data).map(factor).collect()
            };
            let aims: Vec<_> = (0..data + parity).filter(|m| wanted >> m & 1 == 1).map(aim).collect();
            let ours = bytes.check_read(&as_lanes(wanted, data + parity));
            let expected = fewest(&readable(data, parity, counted, good & !wanted), &aims);
            assert_eq!(ours.ok(), expected, "{data}+{parity} {counted:b} {good:b} {wanted:b}");
            (plans, lost) = (plans + 1, lost + i32::from(ours.is_err()));
        }
    });
    assert!(plans > 50_000 && lost > 1000, "{plans} plans, {lost} lost");
}

/// Blocks that a planner reads which knows two ways only and takes one for a whole lane.
fn naive(row: &Row<'_>, written: &[Lanes], wanted: [bool; 2]) -> Option<u32> {
    let mut sum = 0;
    for lane in (0..16).filter(|lane| written.iter().any(|w| w >> lane & 1 == 1)) {
        let bit = |list: &[Lanes], m: usize| list[m] >> lane & 1 == 1;
        let cost = |members: Vec<usize>| members.iter().all(|&m| bit(row.good, m)).then_some(members.len() as u32);
        let counted = (0..row.data).filter(|&m| bit(row.counted, m));
        let (over, others): (Vec<_>, Vec<_>) = counted.partition(|&m| bit(written, m));
        let parity = (0..row.parity).filter(|&which| wanted[which]).map(|which| row.data + which);
        let ways = [cost(others), cost(over.into_iter().chain(parity).collect())];
        sum += ways.into_iter().flatten().min()?;
    }
    Some(sum)
}

#[test]
fn rows_with_many_lanes_and_members() {
    let dice = &mut Dice(9);
    let (mut lost, mut naive_fails) = (0, 0);
    for _ in 0..20_000 {
        let parity = 1 + dice.next() as usize % 2;
        let data = 1 + dice.next() as usize % 12;
        let counted: Vec<Lanes> = (0..data).map(|_| dice.lanes()).collect();
        let mut good = vec![Lanes::MAX; data + parity];
        for _ in 0..dice.next() % 3 {
            good[dice.next() as usize % (data + parity)] &= dice.lanes();
        }
        let written: Vec<Lanes> = (0..data).map(|_| dice.lanes() * (dice.next() % 2) as Lanes).collect();
        let bytes = Bytes::new(dice, parity, counted, good);
        for wanted in [[true, false], [false, true], [true, true]].into_iter().take(2 * parity - 1) {
            let ours = bytes.check_change(dice, &written, wanted);
            match (ours, naive(&bytes.row(), &written, wanted)) {
                (Ok(ours), Some(naive)) => assert!(ours <= naive, "{ours} blocks instead of {naive}"),
                (Ok(_), None) => naive_fails += 1,
                (Err(_), naive) => {
                    assert_eq!(naive, None);
                    lost += 1;
                }
            }
            if let Err(Lost { lanes }) = ours {
                let rest: Vec<Lanes> = written.iter().map(|written| written & !lanes).collect();
                bytes.check_change(dice, &rest, wanted).expect("without what is lost the rest can be planned");
            }
        }
        let wanted: Vec<Lanes> = bytes.good.iter().map(|good| !good).collect();
        if let Err(Lost { lanes }) = bytes.check_read(&wanted) {
            let rest: Vec<Lanes> = wanted.iter().map(|wanted| wanted & !lanes).collect();
            bytes.check_read(&rest).expect("without what is lost the rest can be planned");
        }
    }
    assert!(lost > 100 && naive_fails > 100, "{lost} lost, {naive_fails} by neither way");
}

#[test]
fn equal_ways_use_the_devices_that_are_needed_anyway() {
    // Lane 0 has to read member 2. Lane 1 could read 1 to reconstruct, or 0 and P to modify; lane 2 is as good by
    // either of two: what else counts is member 1, what is written over is none.
    let good = [Lanes::MAX; 5];
    let row = Row { data: 4, parity: 1, counted: &[0b110, 0b100, 0b011, 0], good: &good };
    let plan = plan_change(&row, &[0b111, 0, 0, 0], [true, false]).unwrap();
    assert_eq!(plan.reads, [(1, 0b100), (2, 0b011)]);
    // Two members are written over and two are not, but for P they cost the same: reconstruct.
    let row = Row { data: 3, parity: 1, counted: &[1; 3], good: &[1; 4] };
    assert_eq!(plan_change(&row, &[1, 0, 0], [true, false]).unwrap().reads, [(1, 1), (2, 1)]);
    // Unless another lane needs these devices: there member 2 can't be read, so 0 and P are.
    let row = Row { data: 3, parity: 1, counted: &[3; 3], good: &[3, 3, 1, 3] };
    assert_eq!(plan_change(&row, &[3, 0, 0], [true, false]).unwrap().reads, [(0, 3), (3, 3)]);
}

#[test]
fn whole_stripes_and_fresh_rows_read_nothing_and_are_made_in_one_pass() {
    let good = [Lanes::MAX; 10];
    for counted in [[Lanes::MAX; 8], [0; 8]] {
        let row = Row { data: 8, parity: 2, counted: &counted, good: &good };
        let plan = plan_change(&row, &[Lanes::MAX; 8], [true, true]).unwrap();
        let addends: Vec<_> = (0..8).map(|m| Addend { from: Source::New(m), times: [1, 1 << m] }).take(8).collect();
        assert_eq!(
            plan,
            Plan { reads: vec![], makes: vec![Make { to: [Some(8), Some(9)], lanes: Lanes::MAX, addends }] }
        );
    }
    let row = Row { data: 8, parity: 2, counted: &[0; 8], good: &[0; 10] };
    let plan = plan_change(&row, &[0, 0b1100, 0, 0, 0, 0, 0, 0], [true, true]).unwrap();
    let addends = vec![Addend { from: Source::New(1), times: [1, 2] }];
    assert_eq!(plan, Plan { reads: vec![], makes: vec![Make { to: [Some(8), Some(9)], lanes: 0b1100, addends }] });
    // Two lost members in the same lanes are made together.
    let row = Row { data: 8, parity: 2, counted: &[Lanes::MAX; 8], good: &good };
    let plan = plan_read(&row, &[0, 7, 0, 7]).unwrap();
    assert_eq!((plan.makes.len(), plan.makes[0].to, plan.reads.len()), (1, [Some(1), Some(3)], 8));
}

/// What Linux md would read: `handle_stripe_dirtying` decides for each 4 KiB of a stripe, from what is not written in
/// whole and from what is written plus parity; reconstruction when they are equal. Everything counts there.
fn md(data: usize, parity: usize, written: &[Lanes]) -> u32 {
    let per_lane = |lane: usize| {
        let over = written.iter().filter(|w| *w >> lane & 1 == 1).count();
        if over == 0 { 0 } else { (over + parity).min(data - over) }
    };
    (0..16).map(|lane| per_lane(lane) as u32).sum()
}

#[test]
fn counts_beside_those_of_md() {
    // Aligned client writes, in blocks of 4 KiB: what is written with its parity; what md reads; what braid reads when
    // everything counts, and when nothing but every other strip of 64 KiB does.
    let mut table = String::new();
    for (data, parity) in [(4, 1), (8, 2)] {
        for kib in [4, 16, 64, 128, 256, 512, 1024] {
            let rows: Vec<Vec<Lanes>> = (0..(kib / 64usize).div_ceil(data).max(1))
                .map(|row| {
                    let lanes = |m: usize| match (kib / 4).saturating_sub((row * data + m) * 16) {
                        0 => 0,
                        blocks => Lanes::MAX >> (16 - blocks.min(16)),
                    };
                    (0..data).map(lanes).collect()
                })
                .collect();
            let good = vec![Lanes::MAX; data + parity];
            let half: Vec<Lanes> = (0..data).map(|m| if m % 2 == 1 { Lanes::MAX } else { 0 }).collect();
            let ours = |counted: &[Lanes]| -> u32 {
                let row = Row { data, parity, counted, good: &good };
                rows.iter().map(|w| blocks(&plan_change(&row, w, [true, parity == 2]).unwrap())).sum()
            };
            let parity_blocks: u32 =
                rows.iter().map(|row| row.iter().fold(0, |all, l| all | l).count_ones() * parity as u32).sum();
            let md: u32 = rows.iter().map(|w| md(data, parity, w)).sum();
            let full = ours(&vec![Lanes::MAX; data]);
            assert_eq!(full, md, "md has no fewer and no more when everything counts");
            let written = kib as u32 / 4 + parity_blocks;
            table +=
                &format!("{data}+{parity} {kib:4} KiB: writes {written:3}, reads {md:3} {full:3} {:3}\n", ours(&half));
        }
    }
    let expected = "\
4+1    4 KiB: writes   2, reads   2   2   1
4+1   16 KiB: writes   8, reads   8   8   4
4+1   64 KiB: writes  32, reads  32  32  16
4+1  128 KiB: writes  48, reads  32  32  16
4+1  256 KiB: writes  80, reads   0   0   0
4+1  512 KiB: writes 160, reads   0   0   0
4+1 1024 KiB: writes 320, reads   0   0   0
8+2    4 KiB: writes   3, reads   3   3   2
8+2   16 KiB: writes  12, reads  12  12   8
8+2   64 KiB: writes  48, reads  48  48  32
8+2  128 KiB: writes  64, reads  64  64  48
8+2  256 KiB: writes  96, reads  64  64  32
8+2  512 KiB: writes 160, reads   0   0   0
8+2 1024 KiB: writes 320, reads   0   0   0
";
    assert_eq!(table, expected);
}

#[test]
fn odd_input_is_answered() {
    let long = [Lanes::MAX; 80];
    for data in [0, 1, 2, 61, 62, 63, 64, 65, usize::MAX] {
        for parity in [0, 1, 2, 3, usize::MAX] {
            for counted in [&long[..0], &long[..1], &long] {
                for good in [&long[..0], &long[..1], &long] {
                    let row = Row { data, parity, counted, good };
                    for asked in [&long[..0], &long[..1], &long] {
                        for wanted in [[false, false], [true, false], [false, true], [true, true]] {
                            let _ = plan_change(&row, asked, wanted);
                        }
                        let _ = plan_read(&row, asked);
                    }
                }
            }
        }
    }
}
