//! A suspended pool is opened again under its shares, as `zpool clear` does.

use braid_core::control::Command;
use braid_core::units::DeviceId;

use super::{Claimed, Where};
use crate::control::api::*;
use crate::daemon::events::Severity;
use crate::daemon::{Daemon, OpenPool, lock};
use crate::pump::{Resume, Resumed};

impl Daemon {
    /// In one sentence, what it means that the pool was suspended and is no more; none when it was not.
    pub(super) fn resume(&self, pool: &OpenPool) -> Result<Option<String>, ApiError> {
        let before = pool.report()?;
        if !before.suspended {
            return Ok(None);
        }
        let _opening = lock(&self.opening);
        let _change = lock(&pool.change);
        let stays = |why: String| {
            let message = format!("pool {} stays suspended: {why}", pool.name);
            ApiError::failed("pool.suspended", message).hint("see to its devices and try again")
        };
        let first = pool.ask(|pump| pump.resume(Resume::default())).map_err(|e| stays(e.message))?;
        let resumed = match first {
            Resumed::Unread(members) => self.resume_with(pool, &members).map_err(|e| stays(e.message))?,
            open => open,
        };
        let Resumed::Open { missing, forgotten, is_loss } = resumed else {
            return Err(stays("some of its devices cannot be read".into()));
        };
        self.tell_opened(&pool.name, &missing, forgotten);
        // Who was away before is known, and may have been sent away.
        for member in before.devices.iter().filter(|d| d.state.is_used() && missing.contains(&d.id)) {
            pool.await_member(member.id, true);
        }
        // The first checkpoint shows whether its records can be written now.
        pool.ask(|pump| pump.control(Command::Checkpoint)).map_err(|e| stays(e.message))?;
        let lost = match is_loss {
            true => "what clients had not flushed may be gone, and the next flush of each volume fails for that",
            false => "nothing is lost that clients were told is written",
        };
        let message = format!("pool {} is in use again: {lost}", pool.name);
        let severity = if is_loss { Severity::Warning } else { Severity::Info };
        self.events.tell(severity, Some(&pool.name), "pool.resumed", message.clone());
        self.remember(pool);
        Ok(Some(message))
    }

    /// With the disks of these members opened anew, where they are found.
    fn resume_with(&self, pool: &OpenPool, members: &[DeviceId]) -> Result<Resumed, ApiError> {
        let mut how = Resume { without_unread: true, ..Resume::default() };
        let (mut found, mut why) = (Vec::new(), Vec::new());
        for device in pool.report()?.devices.iter().filter(|d| members.contains(&d.id)) {
            match self.find_member(pool, device, Where::Anywhere) {
                Ok((Claimed { path, identity, disk, facts, .. }, _)) => {
                    let disk = disk.expect("a member that was found is open");
                    found.push((device.id, path, identity, disk.fault_handle(), facts));
                    how.disks.push((device.id, disk));
                }
                Err(error) => why.push(error.message),
            }
        }
        let resumed = pool.ask(|pump| pump.resume(how)).map_err(|e| {
            why.push(e.message);
            ApiError::failed("pool.suspended", why.join("; "))
        })?;
        for (id, path, identity, fault, facts) in found {
            pool.found(id, path, identity, fault, facts);
        }
        Ok(resumed)
    }
}
