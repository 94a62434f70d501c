//! The published budget: a counter of what the driver has, and a limit.

/// At most so many commands in the driver; the rest stays in the queue and can be joined.
///
/// Source: the rbd patch that adds the map option `busy_threshold` (posted to ceph-devel, not merged), restated in the
/// specification, section 5.7. Repeated with its oddity: at threshold 0 nothing is counted on the way out and
/// everything on the way back, so that the counter runs negative. Nothing looks at it then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyThreshold {
    threshold: u32,
    counter: i64,
}

/// The option is a number of commands, or 0 for never busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegativeThreshold;

impl BusyThreshold {
    /// The option as it is given.
    pub fn new(option: i32) -> Result<BusyThreshold, NegativeThreshold> {
        let threshold = u32::try_from(option).map_err(|_| NegativeThreshold)?;
        Ok(BusyThreshold { threshold, counter: 0 })
    }

    /// Asks for one more; a grant is taken until [`put`](Self::put) or [`put_completed`](Self::put_completed).
    #[must_use]
    pub fn get(&mut self) -> bool {
        if !self.would_grant() {
            return false;
        }
        if self.threshold != 0 {
            self.counter += 1;
        }
        true
    }

    /// What [`get`](Self::get) would say.
    #[must_use]
    pub fn would_grant(&self) -> bool {
        self.threshold == 0 || self.counter < i64::from(self.threshold)
    }

    /// A grant was not used.
    pub fn put(&mut self) {
        if self.threshold != 0 {
            self.counter -= 1;
        }
    }

    /// A command came back, or failed before it was sent.
    pub fn put_completed(&mut self) {
        self.counter -= 1;
    }

    /// Takes over from another limit while `in_flight` commands are in the driver.
    pub fn set_counter(&mut self, in_flight: u32) {
        self.counter = in_flight.into();
    }

    /// The option.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Grants in use; meaningless at threshold 0.
    #[must_use]
    pub fn counter(&self) -> i64 {
        self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_5_7_third_get_is_refused_until_a_put() {
        let mut budget = BusyThreshold::new(2).unwrap();
        assert_eq!([budget.get(), budget.get(), budget.get()], [true, true, false]);
        budget.put();
        assert!(budget.get());
        assert_eq!(budget.counter(), 2);
    }

    #[test]
    fn vector_5_8_zero_grants_all_and_negative_is_rejected() {
        let mut budget = BusyThreshold::new(0).unwrap();
        assert!((0..1000).all(|_| budget.get()));
        assert_eq!(budget.counter(), 0, "nothing is counted on the way out");
        (0..1000).for_each(|_| budget.put_completed());
        assert_eq!(budget.counter(), -1000, "and everything on the way back");
        assert!(budget.get(), "which nobody looks at");
        assert_eq!(BusyThreshold::new(-1), Err(NegativeThreshold));
    }
}
