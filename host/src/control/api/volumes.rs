//! Thin volumes.

use serde::{Deserialize, Serialize};

/// Make a thin volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Pool.
    pub pool: String,
    /// Name within the pool; checked.
    pub volume: String,
    /// Size; the server has rounded it up to whole blocks.
    pub size_bytes: u64,
    /// What its writes count as: `auto`, `metadata`, `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although it could never be filled.
    #[serde(default)]
    pub force: bool,
}

/// Volumes: of the pool named, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListVolumes {
    /// One pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Pool.
    pub pool: String,
    /// Id within the pool.
    pub id: u32,
    /// Name within the pool.
    pub name: String,
    /// Size that clients see.
    pub size_bytes: u64,
    /// Mapped to data chunks.
    pub data_bytes: u64,
    /// Mapped to metadata chunks.
    pub metadata_bytes: u64,
    /// What its writes count as.
    pub class: String,
    /// Where it is served.
    #[serde(default)]
    pub shares: Vec<String>,
}

/// Change the size of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// New size, or with `relative` what is added (or taken) from the present one.
    pub size_bytes: i64,
    /// See `size_bytes`.
    #[serde(default)]
    pub relative: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although it could never be filled.
    #[serde(default)]
    pub force: bool,
}

/// Give a volume another name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// New name; checked.
    pub to: String,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Forget a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// Even while it is shared.
    #[serde(default)]
    pub force: bool,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Where the content of a volume is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapVolume {
    /// Pool.
    pub pool: String,
    /// Name.
    pub volume: String,
    /// From here on.
    #[serde(default)]
    pub offset_bytes: u64,
    /// At most so many extents; 0 = as many as the service gives.
    #[serde(default)]
    pub limit: u32,
}

/// A run of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapExtent {
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// `hole`, `data` or `metadata`.
    pub kind: String,
    /// Chunk, when mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u32>,
    /// First byte of the run within the chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_offset_bytes: Option<u64>,
    /// The chunk's profile, when mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The run changes from one set of devices to the next after so many bytes; absent when it stands on each in one
    /// piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_bytes: Option<u64>,
    /// Where it begins on each device that has a part of it: all copies, and every column of a striped profile.
    #[serde(default)]
    pub places: Vec<MapPlace>,
}

/// Where on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPlace {
    /// Device.
    pub device: u32,
    /// First byte on it.
    pub offset_bytes: u64,
}
