//! A volume as a file, and as a loop device over that file.

use super::Wanted;
#[cfg(feature = "fuse")]
use super::{Body, make_folder};
use crate::control::api::*;
#[cfg(feature = "fuse")]
use crate::control::server::own_uid;
use crate::daemon::Daemon;
#[cfg(feature = "fuse")]
use crate::fuse::{FuseShare, ShareOptions, Stop};
#[cfg(feature = "fuse")]
use crate::loopdev::{self, LogicalBlock};

impl Daemon {
    #[cfg(not(feature = "fuse"))]
    pub(super) fn share_file(&self, wanted: &Wanted) -> Result<ShareInfo, ApiError> {
        let message = format!("this braid was built without FUSE, so {} is not there", wanted.request.kind.name());
        Err(ApiError::failed("share.not_built", message).hint("share it as nbd"))
    }

    #[cfg(feature = "fuse")]
    pub(super) fn share_file(&self, wanted: &Wanted) -> Result<ShareInfo, ApiError> {
        let &Wanted { pool, volume, size, request, node } = wanted;
        if let Some(info) = self.existing(wanted)? {
            return Ok(info);
        }
        let word = request.kind.name();
        if request.kind == ShareKind::Loop && own_uid() != 0 {
            return Err(ApiError::failed("share.needs_root", "a loop device needs a daemon that runs as root")
                .hint("share it as fuse or nbd, which any user can"));
        }
        let failed = |what: &str, e: &std::io::Error| {
            ApiError::failed("share.failed", format!("{what} for {}/{} failed: {e}", pool.name, request.volume))
        };
        let folder = self.config.runtime_dir.join(word).join(&pool.name);
        make_folder(&folder)?;
        let dir = folder.join(&request.volume);
        let file = dir.join(&request.volume);
        if request.kind == ShareKind::Loop {
            // A daemon that died leaves its device on a file that answers nothing any more. While something is mounted
            // on it, only the operator can let go of it.
            for left in loopdev::find_by_backing(&file).map_err(|e| failed("looking for loop devices", &e))? {
                left.detach().map_err(|e| {
                    failed("detaching the loop device of an earlier daemon", &e)
                        .hint(format!("unmount what is on {}, then share again", left.path.display()))
                })?;
                tracing::info!("{} of an earlier daemon was detached", left.path.display());
            }
        }
        let sink = pool.ask(|pump| Ok(pump.sink(volume)))?;
        let options = ShareOptions { read_only: request.read_only, allow_other: false };
        let mut fuse = FuseShare::start_with(&dir, &request.volume, size, options, sink).map_err(|e| {
            failed("mounting", &e).hint("FUSE needs /dev/fuse, and fusermount3 for users who are not root")
        })?;
        let file = fuse.path().to_path_buf();
        let undo = format!("undo: braid unshare {}/{}", pool.name, request.volume);
        let (uri, device, note) = if request.kind == ShareKind::Loop {
            match loopdev::attach_to(node, &file, request.read_only, LogicalBlock::B4096) {
                Ok(device) => {
                    let direct = if device.is_direct() { "direct-io" } else { "through the page cache" };
                    let note = format!("(FUSE file {}, {direct}, 4096 B sectors; {undo})", file.display());
                    (device.path.display().to_string(), Some(device), note)
                }
                Err(e) => {
                    let _ = fuse.stop(Stop::Force);
                    return Err(failed("attaching a loop device", &e));
                }
            }
        } else {
            (file.display().to_string(), None, undo)
        };
        let mut entry = wanted.entry(uri, Body::File { fuse, device });
        entry.info.notes.push(note);
        Ok(self.shares.insert(entry))
    }
}
