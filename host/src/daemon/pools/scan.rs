//! What could be a member, and what speaks against it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::backend::DiskSpec;
use crate::backend::probe::probe;
use crate::control::api::*;
use crate::control::size;
use crate::daemon::Daemon;
use crate::daemon::discover::{self, Identity, Look};

impl Daemon {
    pub(in crate::daemon) fn scan(&self, request: &ScanDevices) -> Result<Vec<ScannedDevice>, ApiError> {
        let named = !request.paths.is_empty();
        let mut paths: Vec<PathBuf> = request.paths.iter().map(PathBuf::from).collect();
        if !named {
            let files = self.cache.load().unwrap_or_default();
            paths = discover::block_devices();
            paths.extend(files.into_iter().flat_map(|p| p.devices).filter(|d| d.exists()));
        }
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for path in paths {
            let identity = Identity::of(&path);
            if identity.is_some_and(|i| !seen.insert(i)) {
                continue;
            }
            found.push(self.scan_one(&path, identity));
        }
        Ok(found)
    }

    fn scan_one(&self, path: &Path, identity: Option<Identity>) -> ScannedDevice {
        let name = path.display().to_string();
        let mut scanned = ScannedDevice { path: name.clone(), ..ScannedDevice::default() };
        let owner = identity.and_then(|i| self.pools.owner(i));
        let (disk, facts) = match discover::open_to_look(path) {
            Ok(opened) => opened,
            Err(e) => return ScannedDevice { content: Some(discover::with_source(&e)), ..scanned },
        };
        scanned.size_bytes = facts.size;
        scanned.rotational = facts.rotational;
        scanned.class = discover::class_of(&DiskSpec::Path(path.into()), &facts).into();
        (scanned.model, scanned.serial) = (facts.model, facts.serial);
        let mut content = Vec::new();
        match (owner, discover::look(&disk, &name)) {
            (Some((pool, id)), _) => {
                content.push(format!("member {id} of pool {}, which is open", pool.name));
                scanned.pool = Some(pool.name.clone());
            }
            (None, Look::Member(found, note)) => {
                content.push(format!("member {} of pool {}", found.device, found.name));
                scanned.pool = Some(found.name.clone());
                content.extend(note);
            }
            (None, Look::Problem(sentence)) => content.push(sentence),
            (None, Look::Nothing) => match probe(&disk) {
                Ok(findings) => content.extend(findings.iter().map(|f| f.what.clone())),
                Err(e) => content.push(format!("it cannot be looked at: {e}")),
            },
        }
        let too_small = facts.size < braid_core::device::DEVICE_MIN;
        if too_small {
            content.push(format!("smaller than {}", size::long(braid_core::device::DEVICE_MIN)));
        }
        scanned.usable = content.is_empty();
        scanned.content = (!content.is_empty()).then(|| content.join(", "));
        scanned
    }
}
