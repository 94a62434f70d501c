//! How much background work the interactive one pays for.
//!
//! Many disks prefer a sequential stream to random reads, even when one I/O of the stream is all they have. So a stream
//! has to stop, not only to slow down, while somebody waits and is not served. One number does both halves of that:
//!
//! | while | it counts |
//! |---|---|
//! | nobody waits | background completions since somebody did: at `nia_delay` the classes may have their maximum |
//! | somebody waits | background commands that may still start before the next interactive completion |
//!
//! | event | interactive active | credit |
//! |---|---|---|
//! | interactive starts | + 1 | becomes 1 if it is the first |
//! | background starts, somebody waits | | - 1 |
//! | interactive completes | - 1 | becomes 0 if it was the last, else `nia_credit` |
//! | background completes, nobody waits | | + 1, never capped |
//!
//! Nothing else moves it. It is kept whatever the generation, so that rules can change while the pool runs; before the
//! pull request nobody looks at it.

/// The number, and how many wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    interactive: u32,
    credit: u64,
}

impl Credit {
    /// Interactive commands active.
    pub(super) fn interactive(self) -> u32 {
        self.interactive
    }

    pub(super) fn value(self) -> u64 {
        self.credit
    }

    pub(super) fn started(&mut self, interactive: bool, commands: u32) {
        if interactive {
            if self.interactive == 0 {
                self.credit = 1;
            }
            self.interactive += commands;
        } else if self.interactive > 0 {
            // Zero already when the floor, or rules without credit, let it go.
            self.credit = self.credit.saturating_sub(u64::from(commands));
        }
    }

    pub(super) fn completed(&mut self, interactive: bool, nia_credit: u32) {
        if interactive {
            self.interactive -= 1;
            self.credit = if self.interactive == 0 { 0 } else { u64::from(nia_credit) };
        } else if self.interactive == 0 {
            self.credit = self.credit.saturating_add(1);
        }
    }
}
