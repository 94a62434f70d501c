//! Members that vanished while their pool was open, or that it was opened without: taken back as soon as they are there again, as zed
//! does for ZFS. Who was taken out of use, or failed by its own errors, waits for `braid online`.
//!
//! ```text
//!             vanishes               is there again
//!    in use ------------> away --------------------------> in use, caught up
//!       ^                  ^ |                                  |
//!       |                  | '-- looked for: where it was, when something changed there, or after a pause;
//!       |                  |     everywhere, when a block device came or went
//!       |                  '--- within ten minutes: left alone for 2 s, 4 s, 8 s ... first ----.
//!       '------------------------------------------------------------------------------------'
//! ```
//!
//! A disk that nobody touches is not read again and again: one that sleeps may go on to do so.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_core::report::DeviceReport;
use braid_core::units::{DeviceId, Uuid};

use super::discover::{self, Attached};
use super::pools::Where;
use super::{Daemon, LATE, OpenPool};
use crate::backend::DiskSpec;

/// How often members that are away are looked for, and pools that lacked a member at the start; for these the superblocks of each block
/// device are read, and the records of what is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest pause between looks at a place where nothing changes: it may answer again all the same.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whoever stayed for so long vanishes for the first time.
const STEADY: Duration = Duration::from_secs(600);

/// A member that comes and goes is left alone for 1 s times 2^this at most: four minutes.
const RETURNS_MAX: u32 = 8;

/// What there is at a path: another file or device there has another one.
type Stamp = (u64, u64, u64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(DiskSpec::of_member(path).path()?).ok()?;
    Some((meta.dev(), meta.ino(), meta.rdev(), meta.len()))
}

/// One member that is away, or was.
struct Wait {
    /// How often it vanished again soon after it had come back.
    returns: u32,
    /// Since when it is in use again.
    back: Option<Instant>,
    /// Not looked for before.
    next: Instant,
    /// Until the next look at its place, if nothing changes.
    pause: Duration,
    /// What was there when it was looked for last.
    place: Option<Stamp>,
    attached: Option<Vec<Attached>>,
}

impl Wait {
    fn new(now: Instant) -> Wait {
        Wait { returns: 0, back: None, next: now, pause: LOOK_EVERY, place: None, attached: None }
    }

    /// It is away: where to look for it now, if anywhere.
    fn look(&mut self, now: Instant, place: Option<Stamp>, attached: &[Attached]) -> Option<Where<'static>> {
        if let Some(back) = self.back.take() {
            let is_first = now.duration_since(back) >= STEADY;
            let returns = if is_first { 0 } else { (self.returns + 1).min(RETURNS_MAX) };
            *self = Wait { returns, next: now + LOOK_EVERY * (1 << returns), ..Wait::new(now) };
        }
        let is_changed = self.attached.as_deref() != Some(attached);
        let is_another = self.place != place;
        if is_changed || is_another {
            self.pause = LOOK_EVERY;
        }
        // Before the first look it is left alone, whatever changes.
        let may_wait = self.attached.is_none() || !is_changed && !is_another;
        if may_wait && now < self.next {
            return None;
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        (self.place, self.attached) = (place, Some(attached.to_vec()));
        Some(if is_changed { Where::Anywhere } else { Where::Known })
    }
}

/// What is remembered between looks.
#[derive(Default)]
struct Waits(BTreeMap<(Uuid, DeviceId), Wait>);

impl Waits {
    /// Of those that are in use again only what tells how often they go, unless somebody else brought them back.
    fn tidy(&mut self, now: Instant, is_away: impl Fn(&(Uuid, DeviceId)) -> bool) {
        let was_here_lately = |wait: &Wait| wait.back.is_some_and(|back| now.duration_since(back) < STEADY);
        self.0.retain(|member, wait| is_away(member) || was_here_lately(wait));
    }
}

impl Daemon {
    /// Opens pools that lacked a member when it appears, for [`LATE`] from now on: disks behind adapters and on USB come later than the
    /// daemon. And takes back members of open pools that vanished, for as long as the daemon lives.
    pub fn watch_members(self: &Arc<Self>) {
        let daemon = Arc::downgrade(self);
        let watch = move || {
            let (late, mut waits) = (Instant::now() + LATE, Waits::default());
            while let Some(daemon) = daemon.upgrade().filter(|daemon| daemon.alive().is_ok()) {
                if Instant::now() < late {
                    daemon.open_late();
                }
                daemon.take_back(&mut waits);
                drop(daemon);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        if let Err(e) = std::thread::Builder::new().name("members".into()).spawn(watch) {
            tracing::warn!("nothing waits for members that are late or vanish: {e}");
        }
    }

    fn take_back(&self, waits: &mut Waits) {
        let now = Instant::now();
        let of = |pool: Arc<OpenPool>| pool.about().away.into_iter().map(move |id| (pool.clone(), id));
        let away: Vec<(Arc<OpenPool>, DeviceId)> = self.pools.all().into_iter().flat_map(of).collect();
        waits.tidy(now, |member| away.iter().any(|(pool, id)| (pool.uuid, *id) == *member));
        if away.is_empty() {
            return;
        }
        let attached = discover::attached();
        for (pool, id) in away {
            let Some(device) = pool.report().ok().and_then(|r| r.devices.into_iter().find(|d| d.id == id)) else {
                // It is to leave, or the pool was closed.
                continue;
            };
            let stamp = places(&pool, &device).iter().find_map(|path| stamp(path));
            let wait = waits.0.entry((pool.uuid, id)).or_insert_with(|| Wait::new(now));
            let Some(place) = wait.look(now, stamp, &attached) else { continue };
            match self.bring_back(&pool.name, id, place) {
                Ok(change) => {
                    wait.back = Some(Instant::now());
                    tracing::info!(pool = pool.name, "{}", change.what);
                }
                Err(why) => tracing::debug!(pool = pool.name, "{}", why.message),
            }
        }
    }
}

/// Where a member is, or was.
pub(super) fn places(pool: &OpenPool, device: &DeviceReport) -> Vec<PathBuf> {
    let known = pool.about().members.get(&device.id).map(|facts| facts.path.clone());
    let mut places: Vec<PathBuf> = known.into_iter().chain([device.path.clone()]).map(PathBuf::from).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `at`: seconds and what is there then; a look where one is due.
    #[test]
    fn a_member_is_looked_for_when_something_changes_and_seldom_else() {
        let begun = Instant::now();
        let disk = |n: u64| Attached { path: format!("/dev/sd{n}").into(), sectors: 8, diskseq: Some(n) };
        let (none, one, other) = (vec![], vec![disk(1)], vec![disk(2)]);
        let mut wait = Wait::new(begun);
        let mut looks = |at: u64, place: Option<u64>, attached: &[Attached]| {
            let found = wait.look(begun + Duration::from_secs(at), place.map(|n| (n, 0, 0, 0)), attached);
            found.map(|place| matches!(place, Where::Anywhere))
        };
        for (at, place, attached, expected, why) in [
            (0, None, &none, Some(true), "it has just vanished"),
            (1, None, &none, Some(false), "it may answer again"),
            (2, None, &none, None, "twice as long"),
            (3, None, &none, Some(false), "as it was"),
            (4, Some(1), &none, Some(false), "something came where it was"),
            (5, Some(1), &one, Some(true), "a disk came"),
            (6, Some(1), &one, Some(false), "the pause began anew"),
            (7, Some(1), &other, Some(true), "another one in its place"),
            (8, Some(1), &other, Some(false), "once more"),
            (9, Some(1), &other, None, "and a longer pause"),
        ] {
            assert_eq!(looks(at, place, attached), expected, "{at} s: {why}");
        }
        let hour: Vec<u64> = (10..3610).filter(|&at| looks(at, Some(1), &other).is_some()).collect();
        assert!(hour.len() < 70, "{} looks in an hour at a place where nothing changes", hour.len());
    }

    #[test]
    fn who_vanishes_again_and_again_is_left_alone_for_longer() {
        let mut now = Instant::now();
        let mut wait = Wait::new(now);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let begun = now;
            while wait.look(now, None, &[]).is_none() {
                now += Duration::from_secs(1);
            }
            pauses.push(now.duration_since(begun).as_secs());
            wait.back = Some(now);
            now += Duration::from_secs(5);
        }
        assert_eq!(pauses, [0, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 256]);
        now += STEADY;
        assert!(wait.look(now, None, &[]).is_none());
        assert!(wait.look(now + LOOK_EVERY, None, &[]).is_some(), "it had stayed");
    }
}
