//! Numbers on the command line; the error says what to write instead.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Longer than anybody waits: a year.
const HOURS_MAX: f64 = 24.0 * 365.0;

/// Any whole number.
pub(crate) fn whole(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| "write a whole number, without a unit".into())
}

/// So many of something.
pub(crate) fn count<T: TryFrom<NonZeroU64>>(word: &str) -> Result<T, String> {
    let found = word.parse().ok().and_then(|n: NonZeroU64| T::try_from(n).ok());
    found.ok_or_else(|| "write a whole number of 1 or more, without a unit".into())
}

/// A whole number of a range.
pub(crate) fn within(word: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let found = word.parse().ok().filter(|n| range.contains(n));
    found.ok_or_else(|| format!("write a whole number from {} to {}, without a unit", range.start(), range.end()))
}

/// A time in hours.
pub(crate) fn hours(word: &str) -> Result<Duration, String> {
    let found = word.parse().ok().filter(|hours: &f64| *hours > 0.0 && *hours <= HOURS_MAX);
    found.map(|hours| Duration::from_secs_f64(hours * 3600.0)).ok_or_else(|| "write hours, such as 8 or 0.1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_told_in_words() {
        assert_eq!((whole("0"), count("30"), within("60", 1..=3600)), (Ok(0), Ok(30u64), Ok(60)));
        assert_eq!(hours("0.1"), Ok(Duration::from_secs(360)));
        for word in ["", "0", "-1", "1.5", "30s", "300k", "99999999999999999999"] {
            assert!(count::<u64>(word).expect_err(word).contains("1 or more"), "{word}");
        }
        assert!(within("3601", 1..=3600).expect_err("too long").contains("from 1 to 3600"));
        for word in ["", "0", "-1", "nan", "inf", "1e30", "30s"] {
            assert!(hours(word).expect_err(word).contains("such as 8"), "{word}");
        }
    }
}
