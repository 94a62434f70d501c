//! Shares that outlive the daemon: written down when they are made, put up again when a daemon opens the pool.
//!
//! One that cannot be put up again is an event and a line in `status`, and stays written down: the next daemon tries
//! again, `braid share` does so now, `braid unshare` gives it up.

use std::path::Path;

use braid_core::units::{Uuid, VolumeId};

use super::{Body, Entry, Place, Shares, Wanted};
use crate::control::api::*;
use crate::daemon::cache::{Remembered, RememberedShare};
use crate::daemon::events::Severity;
use crate::daemon::{Daemon, OpenPool, lock};

/// A share that is written down and not there.
pub(super) struct Unrestored {
    pool: Uuid,
    /// `tank/vm0`.
    volume: String,
    share: RememberedShare,
    why: ApiError,
}

impl Entry {
    /// What to write down of it.
    pub(super) fn as_remembered(&self) -> RememberedShare {
        let (listen, tls_directory) = match &*lock(&self.body) {
            Body::Nbd(Place::Unix(path)) => (Listen::UnixPath(path.display().to_string()), self.tls_directory.clone()),
            Body::Nbd(Place::Tcp(address)) => (Listen::Tcp(address.to_string()), self.tls_directory.clone()),
            #[cfg(feature = "fuse")]
            Body::File { .. } => (Listen::default(), None),
        };
        RememberedShare {
            volume: self.volume.0,
            kind: self.info.kind,
            listen,
            tls: self.info.tls,
            tls_directory,
            read_only: self.info.read_only,
            uri: self.info.uri.clone(),
        }
    }
}

impl Shares {
    /// What `status` says of the shares of a pool.
    pub(in crate::daemon) fn problems(&self, pool: &str) -> Vec<Problem> {
        let all = lock(&self.0);
        let of = all.unrestored.iter().filter(|u| u.pool.to_string() == pool);
        let problem = |u: &Unrestored| {
            let next = u.why.hint.as_deref().unwrap_or("share it again");
            Problem {
                code: "share.not_restored".into(),
                message: format!("{} is not shared as {} any more: {}", u.volume, u.share.uri, u.why.message),
                action: Some(format!("{next}; or give it up: braid unshare {}", u.share.uri)),
            }
        };
        of.map(problem).collect()
    }

    /// These are there again, or not wanted any more.
    pub(super) fn restored(&self, pool: Uuid, which: impl Fn(&RememberedShare) -> bool) {
        lock(&self.0).unrestored.retain(|u| u.pool != pool || !which(&u.share));
    }

    fn is_remembered(&self, id: u32) {
        if let Some(entry) = lock(&self.0).by_id.get_mut(&id) {
            entry.info.remembered = true;
        }
    }
}

impl Daemon {
    /// Writes a share down; false when it will not come back, and the error is why it could not be written.
    pub(super) fn remember_share(&self, pool: &OpenPool, id: u32) -> Result<bool, String> {
        let Some(entry) = self.shares.select(|e| e.info.id == id).pop() else { return Ok(false) };
        let share = entry.as_remembered();
        let mut known = false;
        let written = self.cache.update(&pool.uuid.to_string(), |pool| {
            let mut pool = pool?;
            known = true;
            match pool.shares.iter_mut().find(|s| s.same_as(&share)) {
                Some(old) => *old = share.clone(),
                None => pool.shares.push(share.clone()),
            }
            Some(pool)
        });
        self.shares.restored(pool.uuid, |s| s.same_as(&share));
        // A pool in memory goes with the process, and so does what is shared of it.
        if known {
            self.shares.is_remembered(id);
        }
        match written {
            Ok(()) => {}
            Err(e) => {
                let message = format!("{e}; {} will not be shared again by the next daemon", entry.info.uri);
                self.events.tell(Severity::Warning, Some(&pool.name), "cache.failed", message);
                return Err(e.to_string());
            }
        }
        Ok(known)
    }

    /// They do not come back.
    pub(super) fn forget_shares(&self, pool: Uuid, which: impl Fn(&RememberedShare) -> bool) {
        self.shares.restored(pool, &which);
        let forget = |pool: Option<Remembered>| {
            pool.map(|mut pool| {
                pool.shares.retain(|s| !which(s));
                pool
            })
        };
        if let Err(e) = self.cache.update(&pool.to_string(), forget) {
            let message = format!("{e}; what was unshared now may be shared again by the next daemon");
            self.events.tell(Severity::Warning, None, "cache.failed", message);
        }
    }

    /// `unshare` of what could not be shared again; none when nothing such is meant.
    pub(super) fn forget_unrestored(&self, request: &RemoveShare) -> Option<Change> {
        let meant = |u: &Unrestored| {
            (u.volume == request.target || u.share.uri == request.target)
                && request.kind.is_none_or(|k| k == u.share.kind)
        };
        let found: Vec<(Uuid, RememberedShare)> =
            lock(&self.shares.0).unrestored.iter().filter(|u| meant(u)).map(|u| (u.pool, u.share.clone())).collect();
        if found.is_empty() {
            return None;
        }
        let uris: Vec<&str> = found.iter().map(|(_, s)| s.uri.as_str()).collect();
        let what = format!("{} given up", uris.join(" "));
        if request.dry_run {
            return Some(Change { dry_run: true, ..Change::done(what) });
        }
        for (pool, share) in &found {
            self.forget_shares(*pool, |s| s.same_as(share));
        }
        Some(Change::done(what))
    }

    /// Shares what was shared when the pool was open last.
    pub(in crate::daemon) fn restore_shares(&self, pool: &OpenPool) {
        let _change = lock(&pool.change);
        let shares = self.cache.pool(&pool.uuid.to_string()).map_or_else(Vec::new, |p| p.shares);
        for share in shares {
            self.restore_share(pool, share);
        }
    }

    fn restore_share(&self, pool: &OpenPool, share: RememberedShare) {
        let volume = VolumeId(share.volume);
        let found = pool.report().map(|r| r.volumes.into_iter().find(|v| v.id == volume));
        let name = match &found {
            Ok(Some(v)) => format!("{}/{}", pool.name, v.name),
            _ => format!("volume {} of {}", share.volume, pool.name),
        };
        let result = match found {
            Ok(Some(v)) => {
                let request = CreateShare {
                    pool: pool.name.clone(),
                    volume: v.name,
                    kind: share.kind,
                    listen: share.listen.clone(),
                    tls: share.tls,
                    tls_directory: share.tls_directory.clone(),
                    read_only: share.read_only,
                    temporary: false,
                };
                let node = Some(Path::new(&share.uri));
                self.put_up(&Wanted { pool, volume, size: v.size, request: &request, node })
            }
            Ok(None) => {
                // Destroyed by a daemon that did not live to say so here.
                let message = format!("{} was {name}, which is not there any more", share.uri);
                self.events.tell(Severity::Warning, Some(&pool.name), "share.forgotten", message);
                return self.forget_shares(pool.uuid, |s| s.same_as(&share));
            }
            Err(e) => Err(e),
        };
        match result {
            Ok(info) => {
                let message = match info.uri == share.uri {
                    true => format!("{name} is shared again as {}", info.uri),
                    false => format!("{name} is shared as {} now; it was {}", info.uri, share.uri),
                };
                let severity = if info.uri == share.uri { Severity::Info } else { Severity::Warning };
                // What fails is an event already.
                let _ = self.remember_share(pool, info.id);
                self.events.tell(severity, Some(&pool.name), "share.restored", message);
            }
            Err(why) => {
                let message = format!("{name} was shared as {} and could not be again: {why}", share.uri);
                self.events.tell(Severity::Error, Some(&pool.name), "share.not_restored", message);
                lock(&self.shares.0).unrestored.push(Unrestored { pool: pool.uuid, volume: name, share, why });
            }
        }
    }
}
