//! The numbers of a kind of model: a struct for who computes with them, a table for who reads and writes them.
//!
//! Everything is an integer with its unit at the end of its name. The range is what the arithmetic stands, and rather more
//! than what is sold.

/// One number of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Its name in a file; the unit comes last.
    pub key: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Least value.
    pub min: u64,
    /// Greatest value.
    pub max: u64,
}

/// A second in ns: no single step of a device takes longer.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Declares the numbers of a kind, each with its range.
macro_rules! numbers {
    ($(#[doc = $head:literal])+ $name:ident { $($(#[doc = $text:literal])+ $key:ident: $range:expr,)+ }) => {
        $(#[doc = $head])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $text])+ pub $key: u64,)+
        }

        impl $name {
            /// In the order of a file.
            pub const NUMBERS: &[$crate::device::numbers::Number] = &[
                $($crate::device::numbers::Number {
                    key: stringify!($key),
                    about: concat!($($text),+).trim_ascii(),
                    min: *$range.start(),
                    max: *$range.end(),
                },)+
            ];

            /// By name.
            pub fn number(&mut self, key: &str) -> Option<&mut u64> {
                match key {
                    $(stringify!($key) => Some(&mut self.$key),)+
                    _ => None,
                }
            }
        }
    };
}
pub(super) use numbers;
