//! What each command does: ask the daemon, show the answer.

pub(crate) mod device;
pub(crate) mod iostat;
pub(crate) mod jobs;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod progress;
pub(crate) mod property;
pub(crate) mod scrub;
pub(crate) mod share;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod volume;
pub(crate) mod why;

use crate::client::Client;
use crate::render;
use crate::resolve::Interval;
use braid_host::control::api::{ApiError, Change};
use braid_host::control::service::Call;
use std::io::{IsTerminal, Write};

/// Exit code of a command that was carried out, or why it was not.
pub(crate) type Outcome = Result<u8, ApiError>;

/// What every command has at hand.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) json: bool,
}

impl Context {
    /// Asks, and shows the reply: as JSON, or as `show` has it.
    pub(crate) fn show<C: Call>(
        &self,
        request: C,
        show: impl FnOnce(&C::Reply) -> Result<String, ApiError>,
    ) -> Outcome {
        let reply = self.client.call(request)?;
        print(&if self.json { render::json::<C>(&reply, false) } else { show(&reply)? });
        Ok(0)
    }

    /// As [`Context::show`], again and again. JSON becomes one line each time.
    pub(crate) fn repeat<C: Call>(
        &self,
        interval: Interval,
        request: impl Fn() -> C,
        show: impl Fn(&C::Reply) -> Result<String, ApiError>,
    ) -> Outcome {
        let mut left = interval.count;
        loop {
            let reply = self.client.call(request())?;
            print(&if self.json { render::json::<C>(&reply, interval.every.is_some()) } else { show(&reply)? });
            left = left.map(|n| n - 1);
            match interval.every {
                Some(pause) if left != Some(0) => std::thread::sleep(pause),
                _ => return Ok(0),
            }
        }
    }

    /// Asks for a change, and says what it did.
    pub(crate) fn change<C: Call<Reply = Change>>(&self, request: C) -> Outcome {
        self.show(request, |change| Ok(render::change(change)))
    }
}

/// To standard output. A reader that went away ends the process (SIGPIPE); any other failure ends the output.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// `metrics`: the daemon's page as it is.
pub(crate) fn metrics(context: &Context) -> Outcome {
    print(&context.client.page("/metrics")?);
    Ok(0)
}

/// Asks before something is lost. Without a terminal nobody can answer, so the command must carry `-y`.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), ApiError> {
    if yes {
        return Ok(());
    }
    let refused = |why: &str| ApiError::refused("confirm.needed", format!("{question} {why}"));
    if !std::io::stdin().is_terminal() {
        return Err(
            refused("Nobody is here to say yes.").hint("add -y if that is what you want, or -n to see it first")
        );
    }
    eprint!("{question} Type yes to go on: ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "yes" | "y" | "YES" | "Yes") {
        return Ok(());
    }
    Err(refused("Nothing was done."))
}
