//! The end of a pump: everything is answered, a checkpoint is written.

use std::sync::mpsc::channel;
use std::time::Duration;

use braid_core::control::Command;
use braid_core::request::Input;

use super::Pump;
use crate::reactor;

/// How long a stop waits for requests in flight.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// How long a turn of a pump that is stopping may wait.
pub(super) const STOP_TURN: Duration = Duration::from_millis(50);

impl Pump {
    /// Everything answered, then a checkpoint, then the end. True when there is nothing left to do.
    pub(super) fn stop_step(&mut self) -> bool {
        let since = self.stopping.expect("only while stopping");
        let patient = since.elapsed() < STOP_PATIENCE;
        if (self.engine.in_flight() > 0 || self.present > 0) && patient {
            return false;
        }
        let (tell, told) = channel();
        let now = self.now();
        self.commands.insert(0, tell);
        self.engine.handle(now, Input::Control { tag: 0, command: Command::Close });
        let mut events = Vec::new();
        self.drain();
        while since.elapsed() < 2 * STOP_PATIENCE && !self.engine.is_quiet() {
            events.clear();
            self.reactor.wait(&mut events, Some(STOP_TURN));
            for event in events.drain(..) {
                if let reactor::Event::Disk { token, result } = event {
                    self.disk_event(token, result);
                }
            }
            self.drain();
        }
        if !matches!(told.try_recv(), Ok(Ok(_))) {
            tracing::warn!("the last checkpoint was not written; the pool will be read back from its log");
        }
        true
    }
}
