//! Start, pause, resume, cancel; reports.

use alloc::collections::BTreeMap;
use alloc::format;

use super::Engine;
use super::rows::bytes_of_rows;
use crate::control::{ControlError, Done, ErrorKind};
use crate::engine::control::{Due, Outcome};
use crate::report::ScrubReport;
use crate::scrub::{Scrub, State};

impl Engine {
    pub(in crate::engine) fn start_scrub(&mut self) -> Outcome {
        match self.pool.scrub.state {
            State::Running => {
                let text = format!(
                    "pool {:?} is being scrubbed already; see: braid scrub status {}",
                    self.pool.name, self.pool.name
                );
                return Err(ControlError::new(ErrorKind::Busy, text));
            }
            State::Paused => {
                let (_, due) = self.resume_scrub()?;
                return Ok((Done::Adjusted("the paused scrub goes on".into()), due));
            }
            State::None | State::Finished | State::Canceled => {}
        }
        let chunks = self.pool.chunks();
        let total = chunks.map(|c| {
            let used = match c.kind {
                crate::ChunkType::System => self.pages_in(c.id) * crate::units::UNIT,
                _ => c.used(),
            };
            if c.rows() > 0 { bytes_of_rows(c) } else { used * c.profile.facts().copies as u64 }
        });
        self.pool.scrub = Scrub {
            total: total.sum(),
            state: State::Running,
            started: self.unix_now(),
            end: self.pool.next_chunk,
            places: BTreeMap::new(),
            ..Scrub::default()
        };
        self.scrub.told = 0;
        self.rewind_slots();
        self.run_scrub();
        // It reads everything once more: what members that are behind wait for may be had by now.
        self.ask_for_sources();
        Ok((Done::Changed, Due::Stable(self.save_scrub())))
    }

    fn run_scrub(&mut self) {
        // What an ended scrub has under way is none of this one's: it ends first.
        self.scrub.ended |= self.scrub.pieces.len() > 0 && self.pool.scrub.places.is_empty();
        self.scrub.meter.begin();
    }

    pub(in crate::engine) fn pause_scrub(&mut self) -> Outcome {
        match self.pool.scrub.state {
            State::Paused => return Ok((Done::Unchanged, Due::Now)),
            State::Running => {}
            _ => return Err(self.no_scrub()),
        }
        self.pool.scrub.state = State::Paused;
        self.pool.scrub.ended = self.unix_now();
        let lsn = self.save_scrub();
        self.scrub.meter.rest();
        Ok((Done::Changed, Due::Stable(lsn)))
    }

    pub(in crate::engine) fn resume_scrub(&mut self) -> Outcome {
        match self.pool.scrub.state {
            State::Running => return Ok((Done::Unchanged, Due::Now)),
            State::Paused => {}
            _ => return Err(self.no_scrub()),
        }
        self.pool.scrub.state = State::Running;
        self.pool.scrub.ended = 0;
        self.scrub.meter.begin();
        Ok((Done::Changed, Due::Stable(self.save_scrub())))
    }

    pub(in crate::engine) fn cancel_scrub(&mut self) -> Outcome {
        if !matches!(self.pool.scrub.state, State::Running | State::Paused) {
            return Err(self.no_scrub());
        }
        let ended = self.unix_now();
        let scrub = &mut self.pool.scrub;
        (scrub.state, scrub.ended) = (State::Canceled, ended);
        scrub.places.clear();
        let lsn = self.save_scrub();
        self.scrub.meter.rest();
        self.scrub.ended = true;
        self.rewind_slots();
        Ok((Done::Changed, Due::Stable(lsn)))
    }

    /// The pool closes: nothing more is begun, and the place is written down.
    pub(in crate::engine) fn close_scrub(&mut self) {
        self.scrub.closing = true;
        if self.pool.scrub.state == State::Running {
            self.save_scrub();
        }
    }

    fn no_scrub(&self) -> ControlError {
        let text = format!(
            "pool {:?} has no scrub under way; begin one with: braid scrub start {}",
            self.pool.name, self.pool.name
        );
        ControlError::new(ErrorKind::NotFound, text)
    }

    pub(in crate::engine) fn scrub_report(&self) -> ScrubReport {
        let mut scrub = self.pool.scrub.clone();
        let mut rate = 0;
        if scrub.state == State::Running {
            scrub.ran_ms = scrub.ran_ms.saturating_add(self.scrub.meter.ran_ms(self.now));
            rate = self.scrub.meter.rate(self.now, scrub.done);
        }
        scrub.total = scrub.total.max(scrub.done);
        ScrubReport { scrub, rate }
    }
}
