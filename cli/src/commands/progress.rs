//! How far long work is: a line, a bar, and waiting for its end.

use braid_host::control::api::ApiError;
use braid_host::control::size;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a wait looks, on a terminal and elsewhere it says something every [`LINE`].
const LOOK: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(10);
/// Signs of the bar.
const BAR: u64 = 30;

/// How far it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) rate: Option<u64>,
    pub(crate) eta_ns: Option<u64>,
    /// What else there is to say.
    pub(crate) note: String,
}

impl Progress {
    /// Tenths of a percent.
    fn per_mille(&self) -> u64 {
        let done = u128::from(self.done.min(self.total)) * 1000;
        done.checked_div(u128::from(self.total)).map_or(0, |n| n as u64)
    }

    /// `35.3 %`.
    pub(crate) fn percent(&self) -> String {
        let n = self.per_mille();
        format!("{}.{} %", n / 10, n % 10)
    }

    /// `35.3 % of 3.4GiB, 512MiB/s, 4 min left`.
    pub(crate) fn line(&self) -> String {
        let mut text = format!("{} of {}", self.percent(), size::long(self.total));
        if let Some(rate) = self.rate {
            let _ = write!(text, ", {}/s", size::long(rate));
        }
        if let Some(ns) = self.eta_ns {
            let _ = write!(text, ", {} left", duration(ns));
        }
        if !self.note.is_empty() {
            let _ = write!(text, ", {}", self.note);
        }
        text
    }

    /// `[=====     ] 50.0 % of 2GiB`.
    pub(crate) fn bar(&self) -> String {
        let full = (self.per_mille() * BAR / 1000) as usize;
        format!("[{}{}] {}", "=".repeat(full), " ".repeat(BAR as usize - full), self.line())
    }
}

/// `850 ms`, `12 s`, `4 min`, `3 h 10 min`, `5 d`.
pub(crate) fn duration(ns: u64) -> String {
    match ns / 1_000_000_000 {
        0 => format!("{} ms", ns / 1_000_000),
        s @ 1..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d", s / 86_400),
    }
}

/// Looks until it does not run any more, and shows how far it is; `progress` is none once it rests.
pub(crate) fn until_it_rests<T>(
    mut look: impl FnMut() -> Result<T, ApiError>,
    progress: impl Fn(&T) -> Option<Progress>,
) -> Result<T, ApiError> {
    let on_terminal = std::io::stderr().is_terminal();
    let mut told: Option<Instant> = None;
    let mut pause = Duration::from_millis(20);
    let last = loop {
        let now = look()?;
        let Some(progress) = progress(&now) else { break now };
        if on_terminal {
            // The line is written over, and what a longer one left behind is cleared.
            eprint!("\r{}\x1b[K", progress.bar());
            let _ = std::io::stderr().flush();
        } else if told.is_none_or(|at| at.elapsed() >= LINE) {
            if told.is_some() {
                eprintln!("{}", progress.line());
            }
            told = Some(Instant::now());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    };
    if on_terminal {
        eprint!("\r\x1b[K");
    }
    Ok(last)
}
