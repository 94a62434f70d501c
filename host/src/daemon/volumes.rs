//! Volumes: made, listed, grown, renamed, forgotten, and where their content is.

use braid_core::chunk::{Chunk, Column};
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::report::PoolReport;
use braid_core::units::{BLOCK, STRIP, VolumeId, round_up};
use braid_core::volume::{Extent, VOLUME_MAX};
use braid_core::{ChunkType, Engine};

use super::events::{Severity, kind_name};
use super::{Daemon, OpenPool, lock};
use crate::control::api::*;
use crate::control::{check, size};

/// Extents that the pump looks up before it serves others again: some tens of microseconds.
const MAP_BATCH: usize = 512;
/// Extents in one answer when nobody said how many.
const MAP_MAX: usize = 100_000;

/// The class of this word.
pub(super) fn class(word: &str) -> Result<VolumeClass, ApiError> {
    VolumeClass::ALL.into_iter().find(|c| c.name() == word).ok_or_else(|| {
        let names = VolumeClass::ALL.map(VolumeClass::name).join(" ");
        ApiError::usage("volume_class.unknown", format!("there is no volume class '{word}'; known are {names}"))
    })
}

impl Daemon {
    pub(super) fn create_volume(&self, request: &CreateVolume) -> Result<Change, ApiError> {
        let mut request = request.clone();
        check::volume_create(&mut request)?;
        let class = class(request.class.as_deref().unwrap_or("auto"))?;
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let report = pool.report()?;
        let (name, size) = (request.volume.clone(), request.size_bytes);
        if report.volumes.iter().any(|v| v.name == name) {
            let message = format!("there is a volume {}/{name} already", pool.name);
            return Err(ApiError::failed("volume.exists", message).hint("choose another name"));
        }
        may_be_as_large(size)?;
        let what = format!("volume {}/{name} of {}", pool.name, size::long(size));
        let notes = thin_note(&report, size).into_iter().collect();
        if request.dry_run {
            return Ok(Change { dry_run: true, notes, ..Change::done(what) });
        }
        pool.ask(|pump| pump.control(Command::CreateVolume { name, size, class }))?;
        self.events.tell(Severity::Info, Some(&pool.name), "volume.created", format!("{what} was made"));
        Ok(Change { notes, ..Change::done(what) })
    }

    pub(super) fn list_volumes(&self, request: &ListVolumes) -> Result<Vec<VolumeInfo>, ApiError> {
        let reports = self.view(request.pool.as_ref(), |report, _| report.clone())?;
        let shares = self.list_shares(&ListShares { pool: request.pool.clone() })?;
        let of = |pool: &str, volume: &str| {
            shares.iter().filter(|s| s.pool == pool && s.volume == volume).map(|s| s.uri.clone()).collect()
        };
        let one = |pool: &PoolReport| -> Vec<VolumeInfo> {
            let info = |v: &braid_core::report::VolumeReport| VolumeInfo {
                pool: pool.name.clone(),
                id: v.id.0,
                name: v.name.clone(),
                size_bytes: v.size,
                data_bytes: v.mapped[ChunkType::Data as usize],
                metadata_bytes: v.mapped[ChunkType::Metadata as usize],
                class: v.class.name().into(),
                shares: of(&pool.name, &v.name),
            };
            pool.volumes.iter().map(info).collect()
        };
        let mut all: Vec<VolumeInfo> = reports.iter().flat_map(one).collect();
        all.sort_by(|a, b| (&a.pool, &a.name).cmp(&(&b.pool, &b.name)));
        Ok(all)
    }

    pub(super) fn resize_volume(&self, request: &ResizeVolume) -> Result<Change, ApiError> {
        let mut request = request.clone();
        check::volume_resize(&mut request)?;
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let report = pool.report()?;
        let found = report.volumes.iter().find(|v| v.name == request.volume);
        let found = found.ok_or_else(|| ApiError::no_volume(&pool.name, &request.volume))?;
        let size = new_size(found.size, request.size_bytes, request.relative)?;
        may_be_as_large(size)?;
        let full = format!("{}/{}", pool.name, found.name);
        if size < found.size {
            let message = format!(
                "{full} has {} and would lose what lies above {}; shrinking is not supported",
                size::long(found.size),
                size::long(size)
            );
            return Err(ApiError::refused("volume.shrink", message).hint("make a smaller volume and copy"));
        }
        let what = format!("volume {full} from {} to {}", size::long(found.size), size::long(size));
        if size == found.size {
            return Ok(Change::unchanged(format!("volume {full} has {}", size::long(size))));
        }
        let mut notes: Vec<String> = thin_note(&report, size).into_iter().collect();
        if request.dry_run {
            return Ok(Change { dry_run: true, notes, ..Change::done(what) });
        }
        let volume = found.id;
        pool.ask(|pump| pump.control(Command::ResizeVolume { volume, size }))?;
        notes.extend(self.shares_resized(&pool, volume, size));
        self.events.tell(Severity::Info, Some(&pool.name), "volume.resized", what.clone());
        Ok(Change { notes, ..Change::done(what) })
    }

    pub(super) fn rename_volume(&self, request: &RenameVolume) -> Result<Change, ApiError> {
        let mut request = request.clone();
        check::volume_rename(&mut request)?;
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let (volume, _) = pool.volume(&request.volume)?;
        let what = format!("volume {}/{} is called {} now", pool.name, request.volume, request.to);
        if request.to == request.volume {
            return Ok(Change::unchanged(what));
        }
        if pool.volume(&request.to).is_ok() {
            let message = format!("there is a volume {}/{} already", pool.name, request.to);
            return Err(ApiError::failed("volume.exists", message).hint("choose another name"));
        }
        self.not_shared(&pool, volume, &request.volume, "its clients know it by its name")?;
        if request.dry_run {
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        let done = pool.ask(|pump| pump.control(Command::RenameVolume { volume, name: request.to.clone() }))?;
        self.events.tell(Severity::Info, Some(&pool.name), "volume.renamed", what.clone());
        Ok(Change { changed: done != Done::Unchanged, what, ..Change::default() })
    }

    pub(super) fn destroy_volume(&self, request: &DestroyVolume) -> Result<Change, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let _change = lock(&pool.change);
        let (volume, size) = pool.volume(&request.volume)?;
        let what = format!("volume {}/{} of {} forgotten", pool.name, request.volume, size::long(size));
        if !request.force {
            self.not_shared(&pool, volume, &request.volume, "its clients would lose it")?;
        }
        if request.dry_run {
            return Ok(Change { dry_run: true, ..Change::done(what) });
        }
        self.unshare_volume(&pool, volume, true)?;
        pool.ask(|pump| pump.control(Command::DestroyVolume { volume }))?;
        self.events.tell(Severity::Warning, Some(&pool.name), "volume.destroyed", what.clone());
        Ok(Change::done(what))
    }

    fn not_shared(&self, pool: &OpenPool, volume: VolumeId, name: &str, why: &str) -> Result<(), ApiError> {
        let shares = self.shares.of_volume(pool.uuid, volume);
        if shares.is_empty() {
            return Ok(());
        }
        let places: Vec<&str> = shares.iter().map(|s| s.uri.as_str()).collect();
        let message = format!("volume {}/{name} is shared as {}: {why}", pool.name, places.join(" "));
        Err(ApiError::refused("volume.shared", message).hint(format!("first: braid unshare {}/{name}", pool.name)))
    }

    pub(super) fn map_volume(&self, request: &MapVolume) -> Result<Vec<MapExtent>, ApiError> {
        let pool = self.pools.get(&request.pool)?;
        let (volume, size) = pool.volume(&request.volume)?;
        let limit = if request.limit == 0 { MAP_MAX } else { request.limit as usize };
        let mut extents: Vec<MapExtent> = Vec::new();
        let mut at = request.offset_bytes / BLOCK * BLOCK;
        while at < size && extents.len() < limit {
            let want = (limit - extents.len()).min(MAP_BATCH);
            let batch = pool.ask(|pump| pump.with_engine(move |engine| map_batch(engine, volume, at, want)))?;
            let Some(last) = batch.last() else { break };
            at = last.offset_bytes.saturating_add(last.length_bytes);
            extents.extend(batch);
        }
        Ok(extents)
    }
}

/// Runs of one volume from `at` on; runs on the pump's thread.
fn map_batch(engine: &Engine, volume: VolumeId, mut at: u64, want: usize) -> Vec<MapExtent> {
    let mut extents = Vec::new();
    let Some(found) = engine.pool().volume(volume) else { return extents };
    while at < found.size && extents.len() < want {
        let extent = found.map.first(at, found.size - at);
        let run =
            MapExtent { offset_bytes: at, length_bytes: extent.len(), kind: "hole".into(), ..MapExtent::default() };
        extents.push(match extent {
            Extent::Hole { .. } => run,
            Extent::Lost { .. } => MapExtent { kind: "lost".into(), ..run },
            Extent::Mapped { chunk, offset, len } => mapped(engine.pool().chunk(chunk), offset, len, run),
        });
        at += extent.len().max(BLOCK);
    }
    extents
}

/// The run with what the chunk it stands in says of it.
fn mapped(chunk: Option<&Chunk>, offset: u64, len: u64, run: MapExtent) -> MapExtent {
    // The map names only chunks that are there.
    let Some(chunk) = chunk else { return run };
    let place = |c: Column| MapPlace { device: c.device.0, offset_bytes: c.offset };
    MapExtent {
        kind: kind_name(chunk.kind).into(),
        chunk: Some(chunk.id.0),
        chunk_offset_bytes: Some(offset),
        profile: Some(chunk.profile.name().into()),
        strip_bytes: chunk.profile.facts().striped.then_some(STRIP),
        places: chunk.places(offset, len).into_iter().map(place).collect(),
        ..run
    }
}

/// The size that `+5G`, `-5G` or `5G` makes of the present one.
fn new_size(now: u64, amount: i64, relative: bool) -> Result<u64, ApiError> {
    let bad = |what: &str| ApiError::usage("volume.bad_size", format!("the volume has {}; {what}", size::long(now)));
    let size = match relative {
        false => u64::try_from(amount).map_err(|_| bad("a size cannot be negative"))?,
        true => now.checked_add_signed(amount).ok_or_else(|| bad("there is not so much to take away"))?,
    };
    Ok(round_up(size, BLOCK))
}

fn may_be_as_large(size: u64) -> Result<(), ApiError> {
    if size <= VOLUME_MAX {
        return Ok(());
    }
    let message = format!("{} is larger than a volume's map can hold", size::long(size));
    Err(ApiError::usage("volume.too_large", message).hint(format!("at most {}", size::long(VOLUME_MAX))))
}

/// Thin volumes may promise more than there is; that is worth a sentence.
fn thin_note(report: &PoolReport, size: u64) -> Option<String> {
    let used: u64 = report.volumes.iter().map(|v| v.mapped.iter().sum::<u64>()).sum();
    let holds = used.saturating_add(report.writable_data);
    (size > holds).then(|| {
        format!(
            "the pool can hold {} of data now: a volume of {} cannot be filled unless devices are added",
            size::long(holds),
            size::long(size)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_amounts_or_to_a_size() {
        for (now, amount, relative, size) in [
            (8192, 4096, true, Some(12_288)),
            (8192, 12_288, false, Some(12_288)),
            (8192, -4096, true, Some(4096)),
            (8192, -8193, true, None),
            (8192, -1, false, None),
            (8192, 5000, false, Some(8192)),
        ] {
            assert_eq!(new_size(now, amount, relative).ok(), size, "{now} {amount} {relative}");
        }
        assert_eq!(may_be_as_large(VOLUME_MAX + BLOCK).unwrap_err().kind, ErrorKind::Usage);
    }

    #[test]
    fn classes_have_words() {
        assert_eq!(class("metadata"), Ok(VolumeClass::Metadata));
        assert!(class("fast").unwrap_err().message.contains("auto metadata data"));
    }
}
