//! Whether to look again for a moment before going to sleep.
//!
//! A thread that sleeps is woken through an idle processor: 25 µs on the virtual machine of `bench/README.md`, where the
//! work of a request takes 2. A client with one request in flight pays that on each turn. Looking on for as long as a
//! sleep and its wakeup cost is never worse than twice the best choice, whatever comes (the argument of every lock that
//! spins before it blocks), and it is done only where waits were short of late and for single requests: a pool that is
//! idle, or whose disks take longer, does not spin at all, and clients that send many requests are better served by a
//! sleep, in which their requests gather.
//!
//! Between two looks the processor is offered to others (`sched_yield`), since the one we wait for may want to run on it:
//! with both processors busy that is as fast as sleeping, and looking without it takes twice as long.

use std::time::Duration;

/// How long to look: about what a sleep and a wakeup cost.
const LOOK: Duration = Duration::from_micros(50);
/// A wait up to this long, sleep included, would have been worth a look.
const SHORT: Duration = Duration::from_micros(100);
/// A wait shorter than this means that a client goes on sending: sleeping gathers what it sends, and one turn for many is
/// cheaper than a look for each.
const STREAM: Duration = Duration::from_micros(4);
/// Short waits of late before a look is thought worth it, and how many are remembered.
const ENOUGH: u32 = 8;
const MOST: u32 = 16;
/// What a long wait takes away: one in four may be long.
const LONG: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Spin {
    short: u32,
    /// No client sent several requests at once in the last turn that had any.
    alone: bool,
}

impl Spin {
    /// How long to look on before a sleep of at most `sleep`; None when it is not worth it.
    pub(super) fn look(&self, sleep: Option<Duration>) -> Option<Duration> {
        (self.short >= ENOUGH).then(|| sleep.map_or(LOOK, |sleep| sleep.min(LOOK)))
    }

    /// The most requests that one client sent in the turn that ends; a turn without any says nothing about clients.
    pub(super) fn heard(&mut self, most: usize) {
        if most > 0 {
            self.alone = most == 1;
        }
    }

    /// A wait has ended, by a look or by a sleep.
    pub(super) fn waited(&mut self, how_long: Duration) {
        self.short = match how_long {
            waited if self.alone && (STREAM..=SHORT).contains(&waited) => (self.short + 1).min(MOST),
            _ => self.short.saturating_sub(LONG),
        };
    }
}

/// Lets others have the processor.
pub(super) fn step_aside() {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::sched_yield() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_of_single_requests_make_it_worth_and_anything_else_ends_it() {
        let mut spin = Spin { alone: true, ..Spin::default() };
        let waited = |spin: &mut Spin, us: u64| spin.waited(Duration::from_micros(us));
        assert_eq!(spin.look(None), None, "nothing is known yet");
        (0..ENOUGH).for_each(|_| waited(&mut spin, 60));
        assert_eq!(spin.look(None), Some(LOOK));
        assert_eq!(spin.look(Some(Duration::from_micros(3))), Some(Duration::from_micros(3)));
        for us in [1, 500] {
            (0..100).for_each(|_| waited(&mut spin, 20));
            assert_eq!(spin.look(None), Some(LOOK), "what was long ago does not matter");
            (0..3).for_each(|_| waited(&mut spin, us));
            assert_eq!(spin.look(None), None, "waits of {us} us");
        }
        spin.heard(2);
        (0..100).for_each(|_| waited(&mut spin, 20));
        assert_eq!(spin.look(None), None, "clients that send several at once");
        spin.heard(0);
        (0..100).for_each(|_| waited(&mut spin, 20));
        assert_eq!(spin.look(None), None, "a turn of disks only changes nothing");
        spin.heard(1);
        (0..100).for_each(|_| waited(&mut spin, 20));
        assert_eq!(spin.look(None), Some(LOOK));
    }
}
