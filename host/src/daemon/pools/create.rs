//! A pool is made: devices are claimed, nothing is written over that somebody may want, and nothing half made stays.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use braid_core::Profile;
use braid_core::meta::format;
use braid_core::meta::superblock::Superblock;
use braid_core::units::{DeviceId, Uuid};

use super::close::wipe;
use super::plan::new_pool;
use super::{Claimed, devices_word, explain};
use crate::backend::probe::probe;
use crate::backend::{self, Disk, DiskSpec, Facts, OpenError, OpenOptions, sysfs_dir};
use crate::control::api::*;
use crate::control::{check, size};
use crate::daemon::discover::{self, Identity, Look};
use crate::daemon::events::{Severity, kind_name};
use crate::daemon::{Daemon, lock};
use crate::pump::{Setup, Without};

/// Files and folders that go again unless the pool is made.
#[derive(Default)]
struct Made {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.files.iter().for_each(|f| drop(fs::remove_file(f)));
        self.folders.iter().rev().for_each(|f| drop(fs::remove_dir(f)));
    }
}

impl Made {
    fn keep(mut self) {
        self.files.clear();
        self.folders.clear();
    }

    /// Makes a folder and those above it, remembering which were new.
    fn folder(&mut self, path: &Path) -> std::io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
        for folder in missing.into_iter().rev() {
            DirBuilder::new().mode(0o700).create(folder)?;
            self.folders.push(folder.into());
        }
        Ok(())
    }
}

fn open_error(error: &OpenError) -> ApiError {
    let text = discover::with_source(error);
    match error {
        OpenError::Missing(_) => ApiError::not_found("device.not_found", text),
        OpenError::Busy(..) => ApiError::refused("device.busy", text).hint("unmount it, or stop what uses it"),
        OpenError::NotADisk(..) => ApiError::usage("device.not_a_disk", text),
        OpenError::Size(..) => ApiError::usage("device.bad_size", text),
        OpenError::Model(..) => ApiError::usage("device.bad_model", text),
        OpenError::Sector(..) => ApiError::usage("device.bad_sectors", text),
        OpenError::Io(_, e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            ApiError::failed("device.permission_denied", text).hint("a daemon that runs as root may use it")
        }
        OpenError::Io(..) => ApiError::failed("device.open_failed", text),
    }
}

impl Daemon {
    pub(in crate::daemon) fn create_pool(&self, request: CreatePool) -> Result<Change, ApiError> {
        let mut request = request;
        check::create(&mut request)?;
        let _opening = lock(&self.opening);
        self.check_new_name(&request.name)?;

        let mut made = Made::default();
        let mut claimed = Vec::new();
        for device in &request.devices {
            let spec = DiskSpec::parse(&device.path).map_err(|e| ApiError::usage("device.bad_path", e.to_string()))?;
            claimed.push(self.claim(spec, &claimed, request.force, None)?);
        }
        if let Some(files) = &request.files {
            self.make_files(files, request.dry_run, &mut made, &mut claimed)?;
        }

        let (new, said) = new_pool(&request, &claimed)?;
        let mut notes: Vec<String> = explain::lines(&new, &claimed).into_iter().chain(said).collect();
        let plan = format::plan(&new)?;
        for chunk in &plan.preview {
            let mut devices: Vec<u32> = chunk.columns.iter().map(|c| c.device.0).collect();
            devices.dedup();
            let devices: Vec<String> = devices.iter().map(u32::to_string).collect();
            let spilled = if chunk.spilled { ", which is not the preferred tier" } else { "" };
            notes.push(format!(
                "{}: the first chunk of {} goes to device {}{spilled}",
                kind_name(chunk.kind),
                size::long(chunk.length),
                devices.join(" ")
            ));
        }
        let failures = |p: Profile| p.facts().tolerated_failures as u32;
        let after = Standing {
            raw_bytes: new.devices.iter().map(|d| d.size).sum(),
            writable_data_bytes: plan.writable[0],
            writable_metadata_bytes: plan.writable[1],
            data_failures: failures(new.data),
            metadata_failures: failures(new.metadata),
        };
        let what = format!("pool {} of {}", new.name, devices_word(new.devices.len()));
        let dry_run = request.dry_run;
        let change = Change { changed: true, dry_run, what, after: Some(after), notes, ..Change::default() };
        if dry_run {
            return Ok(change);
        }

        let (name, uuid) = (new.name.clone(), new.uuid);
        let paths: Vec<PathBuf> = claimed.iter().filter_map(|c| c.spec.path()).map(Path::to_owned).collect();
        let members = claimed.into_iter().enumerate().map(|(i, c)| (DeviceId(i as u32 + 1), c)).collect();
        if let Err(why) = self.open_pool(&name, uuid, members, Setup::Create(new), Without::Nothing) {
            // Nothing half made: what was written of it before it failed is taken back.
            paths.iter().for_each(|p| drop(wipe(p, uuid)));
            return Err(ApiError::failed("pool.create_failed", format!("making pool {name} failed: {why}")));
        }
        made.keep();
        self.events.tell(Severity::Info, Some(&name), "pool.created", format!("{} was made", change.what));
        Ok(change)
    }

    fn check_new_name(&self, name: &str) -> Result<(), ApiError> {
        match self.pools.get(name) {
            Err(_) => Ok(()),
            Ok(pool) => {
                let message = format!("a pool named {name} is open already ({})", pool.uuid);
                Err(ApiError::failed("pool.exists", message).hint("choose another name, or export that one first"))
            }
        }
    }

    /// Opens one device for nobody else and asks whether it may be written over. `instead` is a member out of use that it may be.
    pub(in crate::daemon) fn claim(
        &self,
        spec: DiskSpec,
        others: &[Claimed],
        force: bool,
        instead: Option<(Uuid, DeviceId)>,
    ) -> Result<Claimed, ApiError> {
        let path = spec.to_string();
        let identity = spec.path().and_then(Identity::of);
        if let Some(identity) = identity {
            if let Some(other) = others.iter().find(|o| o.identity == Some(identity)) {
                let message = format!("{} and {path} are the same device", other.path);
                return Err(ApiError::usage("device.twice", message));
            }
            if let Some((pool, id)) = self.pools.owner(identity).filter(|(pool, id)| instead != Some((pool.uuid, *id)))
            {
                let message = format!("{path} is device {id} of pool {}, which is open", pool.name);
                return Err(ApiError::refused("device.in_pool", message)
                    .hint(format!("it can be used after: braid destroy {}", pool.name)));
            }
        }
        let options = OpenOptions { direct: self.config.direct, ..OpenOptions::default() };
        let (disk, facts) = backend::open(&spec, options).map_err(|e| open_error(&e))?;
        if spec.path().is_some() {
            self.may_overwrite(&disk, &path, force)?;
        }
        Ok(Claimed { spec, path, identity, disk: Some(disk), facts })
    }

    /// It says that it is a member of an open pool, and that pool has no such member.
    fn is_left_over(&self, found: &Superblock) -> bool {
        let report = self.pools.by_uuid(found.pool).and_then(|pool| pool.report().ok());
        report.is_some_and(|report| report.devices.iter().all(|d| d.uuid != found.device_uuid))
    }

    fn may_overwrite(&self, disk: &Disk, path: &str, force: bool) -> Result<(), ApiError> {
        match discover::look(disk, path) {
            Look::Nothing => {}
            // What was on its way into a pool, or out of it, when the machine went down.
            Look::Member(found, _) if force && self.is_left_over(&found) => {}
            Look::Member(found, _) if self.pools.by_uuid(found.pool).is_some() => {
                let message =
                    format!("{path} says it is device {} of pool {}, which is open", found.device, found.name);
                return Err(ApiError::refused("device.in_pool", message)
                    .hint("it may be a copy or another path to a member; wipe it first if it is not wanted"));
            }
            _ if force => {}
            Look::Member(found, _) => {
                let message = format!("{path} is device {} of pool {} ({})", found.device, found.name, found.pool);
                return Err(ApiError::refused("device.in_pool", message)
                    .hint(format!("open it with: braid import {}   or add -f to write over it", found.name)));
            }
            Look::Problem(sentence) => {
                return Err(ApiError::refused(
                    "device.damaged_member",
                    format!("{sentence}; it may have been a member"),
                )
                .hint("add -f to write over it"));
            }
        }
        let findings = probe(disk).map_err(|e| {
            ApiError::failed("device.probe_failed", format!("looking at what is on {path} failed: {e}"))
        })?;
        // What is seen in a file of the kernel is in use now; what is seen on the disk is only there.
        let in_use = findings.iter().find(|f| f.place.starts_with('/'));
        if let Some(use_) = in_use {
            return Err(ApiError::refused("device.busy", format!("{path} is in use: {use_}"))
                .hint("unmount it, or stop what uses it; -f does not help here"));
        }
        match findings.first() {
            Some(_) if !force => {
                let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
                Err(ApiError::refused("device.not_blank", format!("{path} carries {}", all.join(", ")))
                    .hint("add -f to write over it"))
            }
            _ => Ok(()),
        }
    }

    fn make_files(
        &self,
        files: &NewFiles,
        dry_run: bool,
        made: &mut Made,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), ApiError> {
        let folder = Path::new(&files.directory);
        let failed = |e: std::io::Error| ApiError::failed("files.failed", format!("making {}: {e}", folder.display()));
        if !dry_run {
            made.folder(folder).map_err(failed)?;
        }
        for i in 0..files.count {
            let path = folder.join(format!("disk{i}.img"));
            if path.symlink_metadata().is_ok() {
                let message = format!("{} is there already and was left alone", path.display());
                return Err(ApiError::refused("files.exist", message).hint("choose another folder with --dir"));
            }
            let spec = DiskSpec::Path(path.clone());
            let name = path.display().to_string();
            if dry_run {
                let usable = files.size_bytes / braid_core::units::BLOCK * braid_core::units::BLOCK;
                let facts = Facts { size: usable, rotational: folder_rotates(folder), ..Facts::default() };
                claimed.push(Claimed { spec, path: name, identity: None, disk: None, facts });
                continue;
            }
            made.files.push(path.clone());
            let create_size = Some(files.size_bytes);
            let options = OpenOptions { create_size, direct: self.config.direct, ..OpenOptions::default() };
            let (disk, facts) = backend::open(&spec, options).map_err(|e| open_error(&e))?;
            let identity = Identity::of(&path);
            claimed.push(Claimed { spec, path: name, identity, disk: Some(disk), facts });
        }
        Ok(())
    }
}

/// What the kernel says of the disk below a folder, or below the nearest one above it that is there.
fn folder_rotates(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some(meta) = folder.ancestors().find_map(|p| fs::metadata(p).ok()) else { return false };
    let base = sysfs_dir(meta.dev());
    [base.join("queue/rotational"), base.join("../queue/rotational")]
        .iter()
        .find_map(|p| fs::read_to_string(p).ok())
        .is_some_and(|text| text.trim() == "1")
}
