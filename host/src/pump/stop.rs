//! The end of a pump: everything is answered, a checkpoint is written.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant as Clock};

use braid_core::control::Command;
use braid_core::request::Input;

use super::Pump;

/// How long requests in flight are waited for: as a device in its own error recovery takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a turn of a pump that is stopping may wait.
pub(super) const STOP_TURN: Duration = Duration::from_millis(50);

impl Pump {
    /// Everything answered, then a checkpoint, then the end. True when there is nothing left to do.
    pub(super) fn stop_step(&mut self) -> bool {
        let since = self.stopping.expect("only while stopping");
        let patient = since.elapsed() < PATIENCE;
        if (self.engine.in_flight() > 0 || self.present > 0) && patient {
            return false;
        }
        let (tell, told) = channel();
        let now = self.now();
        self.commands.insert(0, tell);
        self.engine.handle(now, Input::Control { tag: 0, command: Command::Close });
        self.comes_to_rest(since + 2 * PATIENCE);
        if !matches!(told.try_recv(), Ok(Ok(_))) {
            tracing::warn!("the last checkpoint was not written; the pool will be read back from its log");
        }
        true
    }

    /// Lets everything in flight end; clients are not heard meanwhile. False when that takes longer.
    pub(super) fn comes_to_rest(&mut self, until: Clock) -> bool {
        let mut events = Vec::new();
        self.drain();
        while !self.engine.is_quiet() && Clock::now() < until {
            self.reactor.wait(&mut events, Some(STOP_TURN));
            events.drain(..).for_each(|event| self.event(event));
            self.drain();
        }
        self.engine.is_quiet()
    }
}
