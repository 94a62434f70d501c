//! Properties of pools, members and volumes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What has properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Target {
    /// A pool.
    Pool {
        /// Its name.
        pool: String,
    },
    /// A member.
    Device {
        /// Pool.
        pool: String,
        /// Id.
        device: u32,
    },
    /// A volume.
    Volume {
        /// Pool.
        pool: String,
        /// Name within the pool.
        volume: String,
    },
}

impl Target {
    /// The pool it is in.
    pub fn pool(&self) -> &str {
        match self {
            Target::Pool { pool } | Target::Device { pool, .. } | Target::Volume { pool, .. } => pool,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Pool { pool } => f.write_str(pool),
            Target::Device { pool, device } => write!(f, "{pool}:{device}"),
            Target::Volume { pool, volume } => write!(f, "{pool}/{volume}"),
        }
    }
}

/// Read properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetProperties {
    /// Of what.
    pub target: Target,
    /// Which. `queue` is all settings of queues; none at all is everything, but of those only what somebody set.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Set properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetProperties {
    /// Of what.
    pub target: Target,
    /// Names and values, as an operator writes them. Pool: `read_policy`, `mode`, `strict`, …; device: `class`,
    /// `tier.data`, `tier.metadata`, `tier.system`, `rotational`, `read_preferred`, `allocation_hint`; both: the
    /// settings of queues; volume: `class`. The empty value is the default, of pools and of settings of queues.
    pub values: BTreeMap<String, String>,
    /// Only say what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Although fewer failures would be survived.
    #[serde(default)]
    pub force: bool,
}

/// One property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// Of what: `tank`, `tank:3`, `tank/vm0`.
    pub target: String,
    /// Name.
    pub name: String,
    /// Value as it would be set.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
    /// All values as a list, the current one with its parameters: `["pid","latency","device","devid:1"]`. Empty when
    /// the values are no list.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Cannot be set.
    #[serde(default)]
    pub read_only: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nobody said otherwise.
    Default,
    /// Set, and kept in the pool. Of a setting of a queue: set for all members.
    Pool,
    /// A setting of a queue that is set for this member, and kept in the pool.
    Device,
    /// Set until restart.
    Runtime,
    /// Cannot be set: measured or given.
    Fixed,
}

impl Source {
    /// The word in listings.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Pool => "pool",
            Source::Device => "device",
            Source::Runtime => "runtime",
            Source::Fixed => "-",
        }
    }
}
