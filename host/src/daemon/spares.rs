//! Members that are held back, and how far those are that get what others have, in the words of the API.

use braid_core::DeviceState;
use braid_core::job::Task;
use braid_core::report::{DeviceReport, PoolReport, Progress};
use braid_core::units::DeviceId;

use super::views::{About, path_of, short_name};
use crate::control::api::Spare;
use crate::control::size;

/// How far a member is that is being rebuilt.
pub(super) fn rebuilt(device: &DeviceReport) -> String {
    let Progress { done, total } = device.rebuilt.unwrap_or_default();
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    format!("{percent} % of {} rebuilt", size::long(total))
}

/// The same, and for whom.
pub(super) fn rebuilding(report: &PoolReport, device: &DeviceReport) -> String {
    match place_of(report, device) {
        Some(old) => format!("a spare in the place of device {old}, {}", rebuilt(device)),
        None => rebuilt(device),
    }
}

/// Whose place a spare takes just now.
fn place_of(report: &PoolReport, device: &DeviceReport) -> Option<DeviceId> {
    let job = report.job.as_ref().map(|last| &last.job).filter(|job| job.is_open() && device.spare)?;
    match job.task {
        Task::Replace { device: old, by } if by == device.id => Some(old),
        _ => None,
    }
}

/// Members that are held back, or were until just now: AVAIL, INUSE, UNAVAIL.
pub(super) fn spares(report: &PoolReport, about: &About) -> Vec<Spare> {
    let spare = |d: &DeviceReport| {
        let place_of = place_of(report, d);
        let state = match (place_of, d.state) {
            (Some(_), _) => "INUSE",
            (None, DeviceState::Online | DeviceState::Removing) => "AVAIL",
            _ => "UNAVAIL",
        };
        let (name, class) = (short_name(&path_of(d, about)), d.class.name().into());
        Spare { id: d.id.0, name, class, size_bytes: d.size, state: state.into(), in_place_of: place_of.map(|id| id.0) }
    };
    report.devices.iter().filter(|d| d.spare).map(spare).collect()
}
