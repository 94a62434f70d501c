//! Pools are closed, and their devices forget them.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use braid_core::control::Command;
use braid_core::meta::superblock::{self, SLOTS, SUPERBLOCK_SIZE};
use braid_core::units::Uuid;

use super::{devices_word, kept_on};
use crate::control::api::*;
use crate::daemon::events::Severity;
use crate::daemon::{Daemon, OpenPool, lock};

impl Daemon {
    pub(in crate::daemon) fn export_pool(&self, request: &ExportPool) -> Result<Change, ApiError> {
        let what = format!("pool {} closed", request.pool);
        let pool = match self.pools.get(&request.pool) {
            Ok(pool) => pool,
            Err(e) => return self.give_up_unopened(request).unwrap_or(Err(e)),
        };
        let _change = lock(&pool.change);
        self.is_open(&pool)?;
        if request.dry_run {
            self.may_close(&pool, request.force)?;
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        self.close_pool(&pool, request.force)?;
        self.pools.remove(&pool.name);
        self.events.tell(Severity::Info, Some(&pool.name), "pool.exported", format!("pool {} was closed", pool.name));
        Ok(Change::done(what))
    }

    pub(in crate::daemon) fn destroy_pool(&self, request: &DestroyPool) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        self.is_open(&pool)?;
        let report = pool.report()?;
        let what = format!(
            "pool {} of {} and {} volumes forgotten",
            pool.name,
            devices_word(report.devices.len()),
            report.volumes.len()
        );
        if request.dry_run {
            self.may_close(&pool, request.force)?;
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        self.close_pool(&pool, request.force)?;
        let (about, mut notes) = (pool.about(), Vec::new());
        for device in &report.devices {
            match about.members.get(&device.id) {
                None => notes.push(format!(
                    "device {} (last seen at {}) was not there and still says it is a member",
                    device.id, device.path
                )),
                Some(member) => {
                    if let Some(path) = kept_on(&member.path)
                        && let Err(e) = wipe(&path, pool.uuid)
                    {
                        notes.push(format!("{} still says it is a member: {e}", member.path));
                    }
                }
            }
        }
        // Only now: until its devices have forgotten it, nobody is to find it on them.
        self.pools.remove(&pool.name);
        self.events.tell(Severity::Warning, Some(&pool.name), "pool.destroyed", what.clone());
        Ok(Change { notes, ..Change::done(what) })
    }

    fn may_close(&self, pool: &OpenPool, force: bool) -> Result<(), ApiError> {
        let shared = self.shares.of_pool(pool.uuid);
        if shared.is_empty() || force {
            return Ok(());
        }
        let mut volumes: Vec<String> = shared.iter().map(|s| format!("{}/{}", s.pool, s.volume)).collect();
        volumes.dedup();
        let message = format!("pool {} has volumes that are shared: {}", pool.name, volumes.join(" "));
        Err(ApiError::refused("pool.shared", message).hint("unshare them first, or add -f to do so now"))
    }

    /// Whoever waited for a pool's `change` may find that it was closed meanwhile.
    fn is_open(&self, pool: &OpenPool) -> Result<(), ApiError> {
        pool.ask(|_| Ok(()))
    }

    /// Unshares if that is allowed, writes a checkpoint, ends the pump, gives the devices back and forgets the pool. The
    /// caller holds its `change`, and not `opening`: all this waits for the pool's devices, and other pools must not.
    /// The pool stays on the list, so that nobody opens its devices meanwhile; the caller takes it off.
    fn close_pool(&self, pool: &OpenPool, force: bool) -> Result<(), ApiError> {
        self.may_close(pool, force)?;
        self.unshare_all(pool, force)?;
        if let Err(e) = pool.ask(|pump| pump.control(Command::Checkpoint)) {
            // The log has everything that was promised; the next import reads it.
            tracing::warn!(pool = pool.name, "checkpoint before closing failed: {e}");
        }
        self.update_cache(&pool.uuid.to_string(), |_| None);
        pool.close();
        Ok(())
    }
}

/// Makes a device forget that it is a member of this pool. One that is not is left alone.
pub(super) fn wipe(path: &Path, pool: Uuid) -> std::io::Result<()> {
    let block = fs::metadata(path)?.file_type().is_block_device();
    let flags = libc::O_CLOEXEC | if block { libc::O_EXCL } else { 0 };
    let file = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if !block {
        crate::backend::lock(&file)?;
    }
    let mut slots = [vec![0; SUPERBLOCK_SIZE as usize], vec![0; SUPERBLOCK_SIZE as usize]];
    for (slot, at) in slots.iter_mut().zip(SLOTS) {
        file.read_exact_at(slot, at)?;
    }
    match superblock::newest([&slots[0], &slots[1]]) {
        Ok(found) if found.pool == pool => {}
        _ => return Ok(()),
    }
    let zeros = vec![0; SUPERBLOCK_SIZE as usize];
    for at in SLOTS {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()
}
