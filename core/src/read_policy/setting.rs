//! A policy as an operator writes and reads it.

use alloc::format;
use alloc::string::{String, ToString};

use super::mirror::Increments;
use crate::units::{BLOCK, DeviceId, KIB};

/// Bytes that `round-robin` reads from one device before it turns to the next; the published default.
pub const ROUND_ROBIN_BYTES_DEFAULT: u64 = 256 * KIB;

/// How a pool chooses among copies; name and value change together. The sentences are in the [module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadPolicy {
    /// Client id modulo copies: the kernel's default.
    Pid,
    /// Expected to answer first: braid's default.
    #[default]
    Latency,
    /// Lowest average since the device appeared; a zero average resets the scan.
    Latency2021,
    /// Lowest average since the device appeared; a zero average wins.
    Latency2024,
    /// The first device flagged `read_preferred`.
    Device,
    /// This device.
    Devid(DeviceId),
    /// Another device on every read.
    RoundRobinV3,
    /// Another device after so many bytes.
    RoundRobin {
        /// Bytes per turn; a multiple of `BLOCK`.
        bytes: u64,
    },
    /// Fewest in flight.
    Queue,
    /// Lowest load, by these increments.
    Zfs(Increments),
    /// As `Latency`; what stands on a far slower member of a row with parity is made from the others.
    ParityAvoidSlow,
}

impl ReadPolicy {
    /// One of each, in the order they are shown; values at their defaults.
    pub const ALL: [ReadPolicy; 11] = [
        ReadPolicy::Pid,
        ReadPolicy::Latency,
        ReadPolicy::Latency2021,
        ReadPolicy::Latency2024,
        ReadPolicy::Device,
        ReadPolicy::Devid(DeviceId(0)),
        ReadPolicy::RoundRobinV3,
        ReadPolicy::RoundRobin { bytes: ROUND_ROBIN_BYTES_DEFAULT },
        ReadPolicy::Queue,
        ReadPolicy::Zfs(Increments::DEFAULT),
        ReadPolicy::ParityAvoidSlow,
    ];

    /// The word, without a value.
    pub fn name(&self) -> &'static str {
        match self {
            ReadPolicy::Pid => "pid",
            ReadPolicy::Latency => "latency",
            ReadPolicy::Latency2021 => "latency-2021",
            ReadPolicy::Latency2024 => "latency-2024",
            ReadPolicy::Device => "device",
            ReadPolicy::Devid(_) => "devid",
            ReadPolicy::RoundRobinV3 => "roundrobin-v3",
            ReadPolicy::RoundRobin { .. } => "round-robin",
            ReadPolicy::Queue => "queue",
            ReadPolicy::Zfs(_) => "zfs",
            ReadPolicy::ParityAvoidSlow => "parity-avoid-slow",
        }
    }

    /// The word with its value, as [`parse`](Self::parse) takes it: `round-robin:262144`, `devid:3`,
    /// `zfs:rotating_seek_inc=7`. This is also how it is stored.
    pub fn value(&self) -> String {
        match self {
            ReadPolicy::Devid(device) => format!("devid:{device}"),
            ReadPolicy::RoundRobin { bytes } => format!("round-robin:{bytes}"),
            ReadPolicy::Zfs(increments) => show_increments(increments),
            _ => self.name().to_string(),
        }
    }

    /// All policies, the one in force with its value; the others with the shape of theirs.
    pub fn choices(current: ReadPolicy) -> [String; 11] {
        ReadPolicy::ALL.map(|policy| match policy {
            _ if policy.name() == current.name() => current.value(),
            ReadPolicy::Devid(_) => "devid:N".to_string(),
            ReadPolicy::RoundRobin { .. } => "round-robin:BYTES".to_string(),
            _ => policy.value(),
        })
    }

    /// As [`choices`](Self::choices) on one line, the one in force in brackets.
    pub fn show(current: ReadPolicy) -> String {
        let value = current.value();
        let words = ReadPolicy::choices(current).map(|word| if word == value { format!("[{word}]") } else { word });
        words.join(" ")
    }

    /// The one device that it reads from while it can.
    pub fn device(self) -> Option<DeviceId> {
        match self {
            ReadPolicy::Devid(device) => Some(device),
            _ => None,
        }
    }

    /// It looks at eligible copies only, and ranks what remains after a failure.
    pub(super) fn ranks_eligible(self) -> bool {
        matches!(self, ReadPolicy::Queue | ReadPolicy::Zfs(_)) || self.minds_streams()
    }

    /// It keeps a client's run together by itself.
    pub(super) fn minds_streams(self) -> bool {
        matches!(self, ReadPolicy::Latency | ReadPolicy::ParityAvoidSlow)
    }

    /// Whether it does nothing until some device is flagged `read_preferred`.
    pub fn needs_preferred(self) -> bool {
        self == ReadPolicy::Device
    }

    /// The policy of this word, with a sentence when the value was adjusted. White space around it is ignored.
    ///
    /// Whether device N of `devid:N` exists is for the caller to check.
    pub fn parse(text: &str) -> Result<(ReadPolicy, Option<String>), String> {
        let text = text.trim();
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        match (name, value) {
            ("round-robin", value) => parse_bytes(value.unwrap_or("-1")),
            ("devid", value) => parse_device(value.unwrap_or("")),
            ("zfs", Some(changes)) => parse_increments(changes),
            _ => match ReadPolicy::ALL.iter().find(|policy| policy.name() == name) {
                Some(policy) if value.is_none() => Ok((*policy, None)),
                Some(_) => Err(format!("read policy '{name}' takes no value; write '{name}'")),
                None => Err(format!("no read policy is called {name:?}; choose one of: {}", all_words())),
            },
        }
    }
}

fn parse_device(value: &str) -> Result<(ReadPolicy, Option<String>), String> {
    match parse_number(value) {
        Some(id @ 1..=0xffff_ffff) => Ok((ReadPolicy::Devid(DeviceId(id as u32)), None)),
        _ => Err(format!("read policy 'devid' needs a device id, not {value:?}; write 'devid:1'")),
    }
}

/// Bytes per turn: `-1` is the default, odd sizes are rounded up to whole blocks.
fn parse_bytes(value: &str) -> Result<(ReadPolicy, Option<String>), String> {
    if value == "-1" {
        return Ok((ReadPolicy::RoundRobin { bytes: ROUND_ROBIN_BYTES_DEFAULT }, None));
    }
    let asked = parse_number(value).filter(|&bytes| bytes > 0);
    let Some((asked, bytes)) = asked.and_then(|asked| Some((asked, asked.checked_next_multiple_of(BLOCK)?))) else {
        return Err(format!(
            "read policy 'round-robin' needs bytes per turn, not {value:?}; write 'round-robin:262144'"
        ));
    };
    let adjusted =
        (asked != bytes).then(|| format!("round-robin turns are whole blocks: {asked} was rounded up to {bytes}"));
    Ok((ReadPolicy::RoundRobin { bytes }, adjusted))
}

/// What differs from the published increments: `rotating_seek_inc=7,non_rotating_seek_inc=0`.
fn parse_increments(changes: &str) -> Result<(ReadPolicy, Option<String>), String> {
    let mut increments = Increments::DEFAULT;
    for change in changes.split(',') {
        let set = |(name, value)| parse_number(value).is_some_and(|value| increments.set(name, value));
        if !change.split_once('=').is_some_and(set) {
            return Err(format!(
                "read policy 'zfs' has no increment {change:?}; write 'zfs', or 'zfs:NAME=N,..' with {}",
                Increments::NAMES.join(", ")
            ));
        }
    }
    Ok((ReadPolicy::Zfs(increments), None))
}

fn show_increments(increments: &Increments) -> String {
    let mut text = "zfs".to_string();
    let all = Increments::NAMES.iter().zip(increments.values()).zip(Increments::DEFAULT.values());
    for (i, ((name, value), _)) in all.filter(|((_, value), default)| value != default).enumerate() {
        text += &format!("{}{name}={value}", if i == 0 { ':' } else { ',' });
    }
    text
}

/// Digits and nothing else: no sign, no blanks.
fn parse_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn all_words() -> String {
    ReadPolicy::ALL
        .map(|policy| match policy {
            ReadPolicy::Devid(_) => "devid:N".to_string(),
            ReadPolicy::RoundRobin { .. } => "round-robin[:BYTES]".to_string(),
            ReadPolicy::Zfs(_) => "zfs[:NAME=N,..]".to_string(),
            _ => policy.value(),
        })
        .join(", ")
}

/// The list as the patch set of 2020 printed it, newline included; a policy it did not know puts no word in brackets.
pub fn show_s0(current: ReadPolicy) -> String {
    let family = match current {
        ReadPolicy::Latency2021 | ReadPolicy::Latency2024 => "latency",
        ReadPolicy::RoundRobinV3 | ReadPolicy::RoundRobin { .. } => "roundrobin",
        _ => current.name(),
    };
    let words = ["pid", "latency", "device", "roundrobin"]
        .map(|word| if word == family { format!("[{word}]") } else { word.to_string() });
    words.join(" ") + "\n"
}
