//! What a power cut leaves of the open writes: a number says it.
//!
//! ```text
//!   0 .. 2^k       bit i: the i-th of the k last open writes arrived, whole; those before them arrived
//!   beyond         drawn from the number: each member keeps all, none, some, or parts of what it has
//! ```
//!
//! With disks out of reach one more bit says whether they are back when the pool is opened. Members that are lost together with
//! the power are bits of another number.

use super::moment::{Moment, Step};
use crate::rng::Rng;

/// Open writes of which every subset is tried.
const WHOLE_MAX: usize = 6;

/// How many states have a number that says them write by write.
pub(crate) fn whole(moment: &Moment<'_>) -> u64 {
    1 << (moment.open.len().min(WHOLE_MAX) + usize::from(!moment.gone.is_empty()))
}

/// Whether the cut one step before had this state already.
pub(crate) fn is_old(moment: &Moment<'_>, step: Step, choice: u64) -> bool {
    let last = moment.open.len().min(WHOLE_MAX).saturating_sub(1);
    step == Step::More && choice < whole(moment) && choice >> last & 1 == 0
}

/// Makes the state of this number; the disks that are there when the pool is opened, which those that are lost are not.
pub(crate) fn leave(moment: &mut Moment<'_>, choice: u64, lost: u64) -> Vec<bool> {
    let bits = moment.open.len().min(WHOLE_MAX);
    let is_back = if choice < whole(moment) {
        let older = moment.open.len() - bits;
        for i in 0..moment.open.len() {
            if i < older || choice >> (i - older) & 1 == 1 {
                moment.arrive(i, None);
            }
        }
        choice >> bits & 1 == 1
    } else {
        draw(moment, choice)
    };
    let mut present: Vec<bool> = (0..moment.disks.len()).map(|disk| lost >> disk & 1 == 0).collect();
    moment.gone.iter().for_each(|&disk| present[disk] = is_back);
    present
}

/// One loss of so many disks at most, drawn from the number of a state; each number of disks is as likely as another.
pub(crate) fn loss(moment: &Moment<'_>, choice: u64, spared: usize) -> u64 {
    let mut rng = Rng::new(choice ^ (moment.at as u64) << 32 ^ 0x1057);
    let count = rng.below(spared as u64 + 1) as u32;
    let all = losses(moment, spared).into_iter().filter(|lost| lost.count_ones() == count);
    *rng.pick(&all.collect::<Vec<_>>())
}

/// Every loss of so many disks at most, of none first; those that are out of reach already are none of them.
pub(crate) fn losses(moment: &Moment<'_>, spared: usize) -> Vec<u64> {
    let gone = moment.gone.iter().fold(0, |gone, disk| gone | 1 << disk);
    let is_spared = |lost: &u64| lost & gone == 0 && lost.count_ones() as usize <= spared;
    (0..1 << moment.disks.len()).filter(is_spared).collect()
}

/// What one member does.
#[derive(Clone, Copy)]
enum Mood {
    Nothing,
    Everything,
    SomeWrites,
    Sectors,
    Blocks,
    Fronts,
}

fn draw(moment: &mut Moment<'_>, choice: u64) -> bool {
    let mut rng = Rng::new(choice ^ (moment.at as u64) << 40);
    const MOODS: [Mood; 6] =
        [Mood::Nothing, Mood::Everything, Mood::SomeWrites, Mood::Sectors, Mood::Blocks, Mood::Fronts];
    let moods: Vec<Mood> = moment.disks.iter().map(|_| *rng.pick(&MOODS)).collect();
    for i in 0..moment.open.len() {
        let disk = moment.open[i].disk;
        match moods[disk] {
            Mood::Nothing => {}
            Mood::Everything => moment.arrive(i, None),
            Mood::SomeWrites if rng.percent(50) => moment.arrive(i, None),
            Mood::SomeWrites => {}
            // Half of the writes whole or not at all, so that others are seen torn beside them.
            _ if rng.percent(25) => moment.arrive(i, None),
            _ if rng.percent(25) => {}
            Mood::Sectors => {
                let mut bits = 0;
                moment.arrive(
                    i,
                    Some(&mut |sector| {
                        if sector % 64 == 0 {
                            bits = rng.next_u64();
                        }
                        bits >> (sector % 64) & 1 == 1
                    }),
                );
            }
            Mood::Blocks => {
                let bits = rng.next_u64();
                moment.arrive(i, Some(&mut |sector| bits >> (sector / 8 % 64) & 1 == 1));
            }
            Mood::Fronts => {
                let sectors = moment.open[i].blocks.len() as u64 * 8;
                let front = rng.below(sectors + 1) as usize;
                moment.arrive(i, Some(&mut |sector| sector < front));
            }
        }
    }
    rng.percent(50)
}
