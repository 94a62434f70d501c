//! What a power cut leaves of the open writes: a number says it.
//!
//! ```text
//!   0 .. 2^k       bit i: the i-th of the k last open writes arrived, whole; those before them arrived
//!   beyond         drawn from the number: each member keeps all, none, some, or parts of what it has
//! ```
//!
//! With disks out of reach one more bit says whether they are back when the pool is opened. Which members are lost together with
//! the power is drawn from the number.

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

/// Makes the state of this number; the disks that are there when the pool is opened. Of those that were there up to the cut, as
/// many as are spared may be lost with it.
pub(crate) fn leave(moment: &mut Moment<'_>, choice: u64, spared: usize) -> Vec<bool> {
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
    let mut present = vec![true; moment.disks.len()];
    moment.gone.iter().for_each(|&disk| present[disk] = is_back);
    if moment.gone.is_empty() {
        lose(&mut present, spared, &mut Rng::new(choice ^ (moment.at as u64) << 32 ^ 0x1057));
    }
    present
}

/// Each number of losses up to that is as likely as another.
fn lose(present: &mut [bool], spared: usize, rng: &mut Rng) {
    for _ in 0..rng.below(spared as u64 + 1) {
        let here: Vec<usize> = (0..present.len()).filter(|&disk| present[disk]).collect();
        present[*rng.pick(&here)] = false;
    }
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
