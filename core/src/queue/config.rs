//! The knobs of one member's queue: what they are now, and who said so.
//!
//! ```text
//!   default of the scheduler and the medium  <  set for the pool  <  set for the member
//! ```
//!
//! What is stored are the words that an operator set, by name, once for the pool and once for each member
//! ([`Overrides`]). A [`Config`] is made of them anew whenever one of them, or the medium, changes: an order of setting
//! can never matter.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::blk_mq::{self, Rerun};
use super::budget::{BusyThreshold, WAIT_NS_MAX, Wait};
use super::limits::{Generation, QueueSettings};
use super::merge::{Bounds, Variant};
use crate::units::{BLOCK, MIB};

/// Settings as they were written, by name.
pub type Overrides = BTreeMap<String, String>;

/// Names that belong to the queue as a whole; those of [`limits`](super::limits::NAMES) follow them.
pub const OWN_NAMES: [&str; 8] =
    ["scheduler", "queue_depth", "nr_requests", "budget", "budget_rerun", "budget_wait", "max_request", "boundary"];

/// Most commands in flight: what the limits of the classes allow too.
const DEPTH_MAX: u32 = 65_536;
/// Longest value of a setting, as it is written.
const WORD_MAX: usize = 24;
/// Largest command: the largest request of a client, so that nothing is cut that arrived in one piece.
pub const REQUEST_MAX: u64 = 32 * MIB;

/// Whose rules a queue goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerName {
    /// braid's own: classes, joining, budget.
    #[default]
    Braid,
    /// One of the published OpenZFS queues.
    Zfs(Generation),
    /// The published blk-mq dispatch.
    BlkMq(blk_mq::Scheduler),
}

impl SchedulerName {
    /// All, in the order of the documentation.
    pub const ALL: [SchedulerName; 6] = [
        SchedulerName::Braid,
        SchedulerName::Zfs(Generation::V2_0_1),
        SchedulerName::Zfs(Generation::Pr11166),
        SchedulerName::Zfs(Generation::Before),
        SchedulerName::BlkMq(blk_mq::Scheduler::None),
        SchedulerName::BlkMq(blk_mq::Scheduler::Deadline),
    ];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerName::Braid => "braid",
            SchedulerName::Zfs(generation) => generation.name(),
            SchedulerName::BlkMq(blk_mq::Scheduler::None) => "none",
            SchedulerName::BlkMq(blk_mq::Scheduler::Deadline) => "deadline",
        }
    }

    fn parse(word: &str) -> Result<SchedulerName, String> {
        SchedulerName::ALL.into_iter().find(|known| known.name() == word).ok_or_else(|| {
            let names = SchedulerName::ALL.map(SchedulerName::name).join(", ");
            format!("scheduler {word:?} is unknown; there are {names}")
        })
    }

    const fn generation(self) -> Generation {
        match self {
            SchedulerName::Zfs(generation) => generation,
            _ => Generation::Braid,
        }
    }
}

/// The budget as an operator sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetName {
    /// Nothing is held.
    Off,
    /// So many commands in flight, published rule.
    Fixed(u32),
    /// Found by itself.
    #[default]
    Auto,
}

/// Everything one queue goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whose rules.
    pub scheduler: SchedulerName,
    /// Classes, credit, aggregation.
    pub limits: QueueSettings,
    /// Commands in flight, for the blk-mq schedulers; the others have `max_active`.
    pub queue_depth: u32,
    /// Requests that exist, for the blk-mq schedulers; `None` is the kernel's rule.
    pub nr_requests: Option<u32>,
    /// Which budget.
    pub budget: BudgetName,
    /// When a completion sends what a budget has held, for the blk-mq schedulers; the others always do.
    pub rerun: Rerun,
    /// Longest extra wait that `budget=auto` causes.
    pub budget_wait: Wait,
    /// Bytes that a joined command may have.
    pub max_request: u64,
    /// No joined command crosses a multiple of it; 0 is none.
    pub boundary: u64,
}

/// Who said a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody.
    Default,
    /// The pool's properties.
    Pool,
    /// The member's.
    Device,
}

impl Source {
    /// The word in the SOURCE column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Pool => "pool",
            Source::Device => "device",
        }
    }
}

impl Config {
    /// What the overrides make of the defaults for a medium. An error is one sentence that names the setting.
    pub fn resolve(rotational: bool, class: &str, pool: &Overrides, device: &Overrides) -> Result<Config, String> {
        let word = |name: &str| device.get(name).or_else(|| pool.get(name));
        let scheduler = word("scheduler").map_or(Ok(SchedulerName::Braid), |word| SchedulerName::parse(word))?;
        let mut config = Config::new(scheduler, rotational, class);
        for name in OWN_NAMES {
            if let Some(value) = word(name) {
                config.put(name, value)?;
            }
        }
        let limits = super::limits::NAMES.into_iter().filter_map(|name| Some((name, word(name)?.as_str())));
        config.limits.set_all(limits)?;
        Ok(config)
    }

    /// The defaults for a medium.
    #[must_use]
    pub fn of_medium(rotational: bool, class: &str) -> Config {
        Config::new(SchedulerName::default(), rotational, class)
    }

    /// The defaults of a scheduler for a medium.
    fn new(scheduler: SchedulerName, rotational: bool, class: &str) -> Config {
        let blk_mq = blk_mq::Config::default();
        let published = matches!(scheduler, SchedulerName::BlkMq(_));
        Config {
            scheduler,
            limits: QueueSettings::of_class(scheduler.generation(), rotational, class),
            queue_depth: blk_mq.queue_depth,
            nr_requests: blk_mq.nr_requests,
            budget: if scheduler == SchedulerName::Braid { BudgetName::Auto } else { BudgetName::Off },
            rerun: blk_mq.rerun,
            budget_wait: Wait::of_class(class, rotational),
            max_request: if published { blk_mq.bounds.max_bytes } else { REQUEST_MAX },
            boundary: if published { blk_mq.bounds.boundary } else { 0 },
        }
    }

    fn put(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            // Decided before anything else, since the defaults follow from it.
            "scheduler" => {}
            "queue_depth" => self.queue_depth = number(name, value, 1, DEPTH_MAX.into())? as u32,
            "nr_requests" if value == "auto" => self.nr_requests = None,
            "nr_requests" => self.nr_requests = Some(number(name, value, 1, DEPTH_MAX.into())? as u32),
            "budget" => {
                self.budget = match value {
                    "off" | "0" => BudgetName::Off,
                    "auto" => BudgetName::Auto,
                    n => BudgetName::Fixed(
                        number(name, n, 1, i32::MAX as u64)
                            .map_err(|_| format!("budget is off, auto or commands in flight from 1, not {value:?}"))?
                            as u32,
                    ),
                };
                let fits = match self.scheduler {
                    SchedulerName::Braid => true,
                    SchedulerName::BlkMq(_) => self.budget != BudgetName::Auto,
                    SchedulerName::Zfs(_) => self.budget == BudgetName::Off,
                };
                if !fits {
                    let name = self.scheduler.name();
                    return Err(format!("scheduler {name} as it was published has no budget={value}; braid has it"));
                }
            }
            "budget_rerun" => {
                self.rerun = match value {
                    "completion" => Rerun::Completion,
                    "restart" => Rerun::Restart,
                    _ => return Err(format!("budget_rerun is completion or restart, not {value:?}")),
                };
            }
            "budget_wait" if value == "auto" => self.budget_wait = Wait::Auto,
            "budget_wait" => {
                let ns = super::limits::parse_ns(value).filter(|ns| *ns <= WAIT_NS_MAX).ok_or_else(|| {
                    format!("budget_wait is auto, off, or a time up to 100ms such as 300us, not {value:?}")
                })?;
                self.budget_wait = Wait::Fixed(ns);
            }
            "max_request" => self.max_request = bytes(name, value, BLOCK, REQUEST_MAX)?,
            "boundary" => self.boundary = bytes(name, value, 0, 1 << 40)?,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// The value of one, as [`resolve`](Self::resolve) takes it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "scheduler" => self.scheduler.name().into(),
            "queue_depth" => self.queue_depth.to_string(),
            "nr_requests" => self.nr_requests.map_or_else(|| "auto".into(), |n| n.to_string()),
            "budget" => match self.budget {
                BudgetName::Off => "off".into(),
                BudgetName::Fixed(n) => n.to_string(),
                BudgetName::Auto => "auto".into(),
            },
            "budget_rerun" => match self.rerun {
                Rerun::Completion => "completion".into(),
                Rerun::Restart => "restart".into(),
            },
            "budget_wait" => match self.budget_wait {
                Wait::Auto => "auto".into(),
                Wait::Fixed(ns) => super::limits::show_ns(ns),
            },
            "max_request" => super::limits::show_bytes(self.max_request),
            "boundary" => super::limits::show_bytes(self.boundary),
            _ => return self.limits.get(name),
        })
    }

    /// All: name, value, and who said so.
    #[must_use]
    pub fn list(&self, pool: &Overrides, device: &Overrides) -> Vec<(&'static str, String, Source)> {
        let source = |name: &str| match (device.contains_key(name), pool.contains_key(name)) {
            (true, _) => Source::Device,
            (false, true) => Source::Pool,
            (false, false) => Source::Default,
        };
        names().filter_map(|name| Some((name, self.get(name)?, source(name)))).collect()
    }

    /// What one command may be.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let max_segments = self.limits.max_segments();
        Bounds { max_bytes: self.max_request, max_segments, boundary: self.boundary }
    }

    /// For the blk-mq schedulers.
    #[must_use]
    pub fn blk_mq(&self, scheduler: blk_mq::Scheduler) -> blk_mq::Config {
        let threshold = match self.budget {
            BudgetName::Fixed(n) => i32::try_from(n).unwrap_or(i32::MAX),
            BudgetName::Off | BudgetName::Auto => 0,
        };
        blk_mq::Config {
            scheduler,
            queue_depth: self.queue_depth,
            nr_requests: self.nr_requests,
            budget: BusyThreshold::new(threshold).unwrap_or_default(),
            rerun: self.rerun,
            bounds: self.bounds(),
            variant: Variant::BlkMq,
            ..blk_mq::Config::default()
        }
    }
}

impl Default for Config {
    /// braid's own on a fast device.
    fn default() -> Config {
        Config::new(SchedulerName::Braid, false, "ssd")
    }
}

/// All names, in the order of the documentation.
pub fn names() -> impl Iterator<Item = &'static str> {
    OWN_NAMES.into_iter().chain(super::limits::NAMES)
}

/// An operator's word as it is kept; too long for any value of these settings is an error, since records have to fit a
/// block of the log.
pub fn word(name: &str, value: &str) -> Result<String, String> {
    match value.trim() {
        word if word.len() <= WORD_MAX => Ok(word.into()),
        word => Err(format!("{name}: a value has at most {WORD_MAX} characters, not {}", word.len())),
    }
}

/// The name is one of a queue's.
#[must_use]
pub fn is_name(name: &str) -> bool {
    names().any(|known| known == name)
}

fn unknown(name: &str) -> String {
    format!("no queue setting is called {name:?}")
}

fn number(name: &str, value: &str, low: u64, high: u64) -> Result<u64, String> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let n: Option<u64> = if digits { value.parse().ok() } else { None };
    n.filter(|n| (low..=high).contains(n)).ok_or_else(|| format!("{name} is {low} to {high}, not {value:?}"))
}

/// Bytes in whole blocks, with K, M or G.
fn bytes(name: &str, value: &str, low: u64, high: u64) -> Result<u64, String> {
    super::limits::parse_bytes(value)
        .filter(|n| (low..=high).contains(n) && n.is_multiple_of(BLOCK))
        .ok_or_else(|| format!("{name} is {low} to {high} bytes in multiples of 4096, such as 4M, not {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(&str, &str)]) -> Overrides {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn a_member_goes_before_its_pool_and_both_before_the_default() {
        let pool = words(&[("scrub_max_active", "2"), ("scheduler", "zfs-2.0.1"), ("nia_credit", "9")]);
        let device = words(&[("scrub_max_active", "1")]);
        let config = Config::resolve(true, "hdd", &pool, &device).unwrap();
        let list = config.list(&pool, &device);
        let of =
            |name: &str| list.iter().find(|(n, ..)| *n == name).map(|(_, value, source)| (value.as_str(), *source));
        assert_eq!(of("scrub_max_active"), Some(("1", Source::Device)));
        assert_eq!(of("nia_credit"), Some(("9", Source::Pool)));
        assert_eq!(of("sync_read_max_active"), Some(("10", Source::Default)), "the published limit, not braid's");
        assert_eq!(of("scheduler"), Some(("zfs-2.0.1", Source::Pool)));
        assert_eq!(list.len(), names().count());
    }

    #[test]
    fn an_order_of_setting_does_not_matter() {
        // Each alone would be refused: a minimum above the maximum, or the other way round.
        for (min, max) in [("5", "5"), ("40", "50")] {
            let pool = words(&[("sync_read_min_active", min), ("sync_read_max_active", max)]);
            let config = Config::resolve(true, "hdd", &pool, &Overrides::new()).unwrap();
            assert_eq!(config.get("sync_read_min_active").as_deref(), Some(min));
        }
        let pool = words(&[("sync_read_min_active", "40")]);
        let error = Config::resolve(true, "hdd", &pool, &Overrides::new()).unwrap_err();
        assert!(error.contains("sync_read_max_active"), "{error}");
    }

    #[test]
    fn budgets_belong_to_who_published_them() {
        let with = |scheduler: &str, budget: &str| {
            let pool = words(&[("scheduler", scheduler), ("budget", budget)]);
            Config::resolve(false, "ssd", &pool, &Overrides::new()).map(|config| config.budget)
        };
        assert_eq!(with("braid", "auto"), Ok(BudgetName::Auto));
        assert_eq!(with("none", "64"), Ok(BudgetName::Fixed(64)));
        assert_eq!(with("deadline", "off"), Ok(BudgetName::Off));
        for (scheduler, budget) in [("none", "auto"), ("zfs-before", "8"), ("braid", "-1"), ("braid", "many")] {
            assert!(with(scheduler, budget).is_err(), "{scheduler} {budget}");
        }
    }

    #[test]
    fn a_value_is_short() {
        assert_eq!(word("scrub_max_active", " 2 "), Ok("2".into()));
        let long = "0".repeat(5000) + "2";
        assert!(word("scrub_max_active", &long).unwrap_err().contains("at most 24"));
        // All of them together fit a record.
        assert!(names().map(|name| name.len() + 2 + WORD_MAX + 2).sum::<usize>() < 3000);
    }

    #[test]
    fn values_out_of_range_are_refused_with_their_name() {
        let rows = [
            ("scheduler", "cfq"),
            ("queue_depth", "0"),
            ("queue_depth", "65537"),
            ("nr_requests", ""),
            ("budget_rerun", "never"),
            ("budget_wait", "1s"),
            ("budget_wait", "soon"),
            ("max_request", "1000"),
            ("max_request", "64M"),
            ("boundary", "5000"),
            ("scrub_max_active", "0"),
        ];
        for (name, value) in rows {
            let error = Config::resolve(false, "ssd", &words(&[(name, value)]), &Overrides::new()).unwrap_err();
            assert!(error.contains(name), "{name}={value}: {error}");
        }
        for (name, value) in
            [("max_request", "4M"), ("boundary", "0"), ("boundary", "4194304"), ("nr_requests", "auto")]
        {
            let config = Config::resolve(false, "ssd", &words(&[(name, value)]), &Overrides::new());
            assert!(config.is_ok(), "{name}={value}: {config:?}");
        }
    }
}
