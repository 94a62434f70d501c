//! Which copy of a block is right, as far as that can be known.

use super::COPIES_MAX;

/// For each copy that was read, the first copy that holds the same bytes.
pub(in crate::engine) type Groups = [Option<u8>; COPIES_MAX];

/// What is known of a block besides the bytes of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Known {
    /// Nothing: copies are told apart by their number only.
    Nothing,
    /// A write may have been under way when the pool stopped, so a copy that agrees with nothing is no error.
    Dirty,
    /// The same of a strip of a row. What stands for other copies is made of the same strips, so that it is alike means nothing.
    DirtyStrip,
}

/// The judgement on a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Winner {
    /// What this copy holds is the content.
    Copy(usize),
    /// No copy could be read, or copies differ and nothing says which is right.
    #[default]
    Nobody,
    /// No copy is what was written.
    Lost,
}

/// Chooses. `right` has a bit for each copy that was read and is what the block's checksum says; None without a checksum. `agreed` stands
/// for what two parities make of the block, each by itself, if that is the same: see [`parities`](super::parities).
///
/// | known | checksum | copies that were read | winner |
/// |---|---|---|---|
/// | any | some match | any | the first that matches |
/// | nothing | none matches | any | nobody, and the block is lost |
/// | any | none | all alike | the first of them |
/// | dirty | none, or none matches | differ, more than half alike | the first of those |
/// | dirty strip | none, or none matches | two parities agree | what they make |
/// | both | none, or none matches | differ otherwise | the one with the lowest number |
/// | nothing | none | differ, more than half alike | the first of those |
/// | nothing | none | differ otherwise | nobody |
///
/// A mend that a crash interrupts ends as it began: whatever wins is on more copies then, and nothing else is.
pub(in crate::engine) fn winner(groups: &Groups, known: Known, right: Option<u8>, agreed: Option<usize>) -> Winner {
    let first = groups.iter().position(Option::is_some);
    match (first, known, right) {
        (_, _, Some(right)) if right != 0 => Winner::Copy(right.trailing_zeros() as usize),
        (_, Known::Nothing, Some(_)) => Winner::Lost,
        (None, _, _) => Winner::Nobody,
        (Some(first), Known::Dirty, _) => Winner::Copy(majority(groups).map_or(first, usize::from)),
        (Some(first), Known::DirtyStrip, _) => Winner::Copy(agreed.unwrap_or(first)),
        (Some(_), Known::Nothing, None) => majority(groups).map_or(Winner::Nobody, |group| Winner::Copy(group.into())),
    }
}

/// The group that more than half of the copies that were read are in.
pub(in crate::engine) fn majority(groups: &Groups) -> Option<u8> {
    let all = groups.iter().flatten().count();
    groups.iter().flatten().copied().find(|group| groups.iter().flatten().filter(|g| *g == group).count() * 2 > all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> Groups {
        let mut groups = [None; COPIES_MAX];
        for (group, c) in groups.iter_mut().zip(text.chars()) {
            *group = c.to_digit(10).map(|n| n as u8);
        }
        groups
    }

    #[test]
    fn winners_by_what_the_copies_say() {
        // Copies as groups, - for one that could not be read | nothing is known | dirty.
        for (text, clean, dirty) in [
            ("----", None, None),
            ("0---", Some(0), Some(0)),
            ("-1--", Some(1), Some(1)),
            ("00--", Some(0), Some(0)),
            ("01--", None, Some(0)),
            ("000-", Some(0), Some(0)),
            ("010-", Some(0), Some(0)),
            ("011-", Some(1), Some(1)),
            ("012-", None, Some(0)),
            ("-12-", None, Some(1)),
            ("-11-", Some(1), Some(1)),
            ("0011", None, Some(0)),
            ("0111", Some(1), Some(1)),
            ("0110", None, Some(0)),
            ("-122", Some(2), Some(2)),
        ] {
            let found = [Known::Nothing, Known::Dirty].map(|known| match winner(&groups(text), known, None, None) {
                Winner::Copy(copy) => Some(copy),
                Winner::Nobody => None,
                Winner::Lost => panic!("{text}: nothing says that it is lost"),
            });
            assert_eq!(found, [clean, dirty], "{text}");
        }
    }

    #[test]
    fn winners_by_what_checksums_say() {
        use Winner::{Copy, Lost, Nobody};
        // Copies | bits of those that match | nothing is known | dirty.
        for (text, right, clean, dirty) in [
            ("00--", 0b11, Copy(0), Copy(0)),
            ("01--", 0b10, Copy(1), Copy(1)),
            ("-1--", 0b10, Copy(1), Copy(1)),
            // Two that are wrong in the same way don't outvote the one that is right.
            ("001-", 0b100, Copy(2), Copy(2)),
            ("00--", 0, Lost, Copy(0)),
            ("01--", 0, Lost, Copy(0)),
            ("-1--", 0, Lost, Copy(1)),
            ("----", 0, Lost, Nobody),
        ] {
            let found = [Known::Nothing, Known::Dirty].map(|known| winner(&groups(text), known, Some(right), None));
            assert_eq!(found, [clean, dirty], "{text} {right:b}");
        }
    }

    #[test]
    fn winners_by_what_two_parities_make() {
        use Winner::{Copy, Lost, Nobody};
        // The strip, what the others make, P and Q alone | bits of those that match | nothing is known | dirty.
        for (text, right, clean, dirty) in [
            ("0122", None, Nobody, Copy(2)),
            ("0111", None, Copy(1), Copy(2)),
            ("0122", Some(0), Lost, Copy(2)),
            ("0122", Some(0b1), Copy(0), Copy(0)),
            ("0122", Some(0b1100), Copy(2), Copy(2)),
        ] {
            let found = [Known::Nothing, Known::DirtyStrip].map(|known| winner(&groups(text), known, right, Some(2)));
            assert_eq!(found, [clean, dirty], "{text} {right:?}");
        }
        // One of them is not there: what all others make is made by the other one as well.
        assert_eq!(winner(&groups("011-"), Known::DirtyStrip, None, None), Copy(0));
    }
}
