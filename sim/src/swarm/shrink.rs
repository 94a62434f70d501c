//! A failing scenario made small: things are left out as long as it fails in the same way.
//!
//! Delta debugging (Zeller and Hildebrandt, 2002) over lives, steps and faults, then devices and settings, then smaller
//! numbers, until nothing more can go, the tries are used up, or nobody waits any longer.

use super::scenario::{Scenario, Step};
use crate::disk::BLOCK;
use crate::fault::Fault;

/// Plays at most; a small scenario takes a millisecond.
const TRIES: usize = 4000;

/// The smallest scenario found for which `fails` still holds, while `go_on` does.
pub fn shrink(scenario: &Scenario, fails: impl Fn(&Scenario) -> bool, go_on: impl Fn() -> bool) -> Scenario {
    let mut shrinker = Shrinker { best: scenario.clone(), fails, go_on, tries: 0, is_over: false };
    loop {
        let before = shrinker.best.clone();
        shrinker.lives();
        for life in 0..shrinker.best.lives.len() {
            shrinker.steps(life);
            shrinker.faults(life);
            shrinker.ending(life);
        }
        shrinker.devices();
        shrinker.settings();
        shrinker.numbers();
        if shrinker.best == before || shrinker.is_over {
            return shrinker.best;
        }
    }
}

struct Shrinker<F, G> {
    best: Scenario,
    fails: F,
    go_on: G,
    tries: usize,
    is_over: bool,
}

impl<F: Fn(&Scenario) -> bool, G: Fn() -> bool> Shrinker<F, G> {
    /// Keeps the change if it still fails; says whether.
    fn attempt(&mut self, change: impl FnOnce(&mut Scenario)) -> bool {
        self.is_over |= self.tries >= TRIES || !(self.go_on)();
        if self.is_over {
            return false;
        }
        let mut candidate = self.best.clone();
        change(&mut candidate);
        if candidate == self.best || candidate.has_misreads() && !candidate.tells_misreads() {
            return false;
        }
        self.tries += 1;
        let keeps = (self.fails)(&candidate);
        if keeps {
            self.best = candidate;
        }
        keeps
    }

    /// Whole lives, the later first: a failure needs none behind it.
    fn lives(&mut self) {
        for life in (0..self.best.lives.len()).rev() {
            if self.best.lives.len() > 1 {
                self.attempt(|s| drop(s.lives.remove(life)));
            }
        }
    }

    /// Runs of steps: halves, quarters, and so on to single ones.
    fn steps(&mut self, life: usize) {
        let mut run = self.best.lives[life].steps.len().div_ceil(2);
        while run > 0 {
            let mut end = self.best.lives[life].steps.len();
            while end > 0 {
                let start = end.saturating_sub(run);
                self.attempt(|s| drop(s.lives[life].steps.drain(start..end)));
                end = start.min(self.best.lives[life].steps.len());
            }
            run /= 2;
        }
    }

    fn faults(&mut self, life: usize) {
        for fault in (0..self.best.lives[life].faults.len()).rev() {
            self.attempt(|s| {
                s.lives[life].faults.remove(fault);
            });
        }
    }

    fn ending(&mut self, life: usize) {
        self.attempt(|s| s.lives[life].scrubs = false);
        self.attempt(|s| s.lives[life].rests = false);
        self.attempt(|s| s.lives[life].mended = false);
    }

    /// A device less; the later ones take new ids.
    fn devices(&mut self) {
        for device in (1..=self.best.devices.len() as u32).rev() {
            self.attempt(|s| remove_device(s, device));
        }
        for i in 0..self.best.devices.len() {
            self.attempt(|s| s.devices[i].kind = "sata-ssd".into());
        }
    }

    fn settings(&mut self) {
        for i in (0..self.best.set.len()).rev() {
            self.attempt(|s| drop(s.set.remove(i)));
        }
        self.attempt(|s| s.no_merge = 0);
    }

    /// Single blocks, one client at a time, short waits.
    fn numbers(&mut self) {
        for life in 0..self.best.lives.len() {
            for step in 0..self.best.lives[life].steps.len() {
                match self.best.lives[life].steps[step].clone() {
                    Step::Go(events) if events > 1 => {
                        self.attempt(|s| s.lives[life].steps[step] = Step::Go(1));
                        self.attempt(|s| s.lives[life].steps[step] = Step::Go(events / 2));
                    }
                    Step::Ask(ask) => {
                        let small =
                            |offset: u64| super::scenario::Ask { offset, len: ask.len.min(BLOCK), ..ask.clone() };
                        for offset in [0, ask.offset] {
                            if self.attempt(|s| s.lives[life].steps[step] = Step::Ask(small(offset))) {
                                break;
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn remove_device(scenario: &mut Scenario, device: u32) {
    scenario.devices.remove(device as usize - 1);
    let renumber = |id: &mut u32| *id -= u32::from(*id > device);
    for life in &mut scenario.lives {
        life.faults.retain(|fault| fault.device != device);
        life.faults.iter_mut().for_each(|fault| renumber(&mut fault.device));
        life.steps.retain_mut(|step| device_of(step).is_none_or(|id| *id != device));
        life.steps.iter_mut().filter_map(device_of).for_each(renumber);
    }
}

/// Whom a setting or a fault is of.
fn device_of(step: &mut Step) -> Option<&mut u32> {
    match step {
        Step::Set { device: Some(id), .. } | Step::Befall(Fault { device: id, .. }) => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::draw;
    use super::*;

    /// A failure that needs a write to a certain slot after a scrub began, and a fault of device 2.
    #[test]
    fn what_does_not_matter_goes() {
        let needs = |s: &Scenario| {
            s.lives.iter().any(|life| {
                let scrub = life.steps.iter().position(|s| matches!(s, Step::Scrub(_)));
                let ask = life.steps.iter().rposition(|s| matches!(s, Step::Ask(_)));
                matches!((scrub, ask), (Some(a), Some(b)) if a < b)
            }) && s.lives.iter().any(|life| life.faults.iter().any(|f| f.device as usize == s.devices.len()))
        };
        let mut shrunk = 0;
        for scenario in (0..400).map(draw::scenario).filter(needs) {
            let small = shrink(&scenario, needs, || true);
            assert!(needs(&small));
            assert!(shrink(&scenario, needs, || false) == scenario, "nobody waits");
            assert!(small.steps() == 2 && small.lives.len() <= 2 && small.devices.len() == 1, "{}", small.to_text());
            shrunk += 1;
        }
        assert!(shrunk > 5, "{shrunk}");
    }
}
