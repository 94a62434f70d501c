//! Models as files.
//!
//! ```text
//!   name = "nvme"
//!   kind = "flash"
//!   about = "…"
//!
//!   # Where the number comes from: any comment above it is its source.
//!   units = 64
//!
//!   [bus]                # only if it shares one
//!   name = "host"
//!   command_ns = 2_000
//!   kib_ns = 400
//! ```
//!
//! A file holds every number of its kind: a default would be a number without a source.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use toml::{Table, Value};

use super::{BusNumbers, Flash, Hdd, Kind, Model, Network, Number};

/// What comes with the crate.
const SHIPPED: &[(&str, &str)] = &[
    ("nvme", include_str!("../../models/nvme.toml")),
    ("sata-ssd", include_str!("../../models/sata-ssd.toml")),
    ("hdd", include_str!("../../models/hdd.toml")),
    ("hdd-5400", include_str!("../../models/hdd-5400.toml")),
    ("hdd-14t", include_str!("../../models/hdd-14t.toml")),
    ("sas-ssd", include_str!("../../models/sas-ssd.toml")),
    ("rbd", include_str!("../../models/rbd.toml")),
    ("rbd-posting", include_str!("../../models/rbd-posting.toml")),
    ("rbd-review", include_str!("../../models/rbd-review.toml")),
    ("ceph-one-node", include_str!("../../models/ceph-one-node.toml")),
    ("sata-ssd-2021", include_str!("../../models/sata-ssd-2021.toml")),
    ("guest-virtio", include_str!("../../models/guest-virtio.toml")),
    ("guest-sata", include_str!("../../models/guest-sata.toml")),
    ("sata-ssd-20g", include_str!("../../models/sata-ssd-20g.toml")),
];

/// Longest file that is read, in bytes: ours have 3 KiB.
const LEN_MAX: u64 = 1 << 20;

impl Model {
    /// One that comes with the crate, by name.
    pub fn shipped(name: &str) -> Result<Model, String> {
        match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            Some((_, text)) => Model::parse(text).map_err(|why| format!("model {name}: {why}")),
            None => Err(format!("no model is called {name:?}; there are {}", Model::shipped_names().join(", "))),
        }
    }

    /// What comes with the crate.
    pub fn shipped_names() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    /// From a file.
    pub fn load(path: &Path) -> Result<Model, String> {
        let shown = path.display();
        let fail = |why: std::io::Error| format!("cannot read model {shown}: {why}");
        let file = std::fs::File::open(path).map_err(fail)?;
        let mut text = String::new();
        // What a device or a pipe will give, its length does not tell.
        if file.take(LEN_MAX + 1).read_to_string(&mut text).map_err(fail)? as u64 > LEN_MAX {
            return Err(format!("model {shown} is longer than any model: at most {LEN_MAX} bytes are read"));
        }
        Model::parse(&text).map_err(|why| format!("model {shown}: {why}"))
    }

    /// From a name or a file: what has a dot or a slash in it is a file.
    pub fn find(word: &str) -> Result<Model, String> {
        if word.contains(['.', '/']) { Model::load(Path::new(word)) } else { Model::shipped(word) }
    }

    /// From the text of a file.
    pub fn parse(text: &str) -> Result<Model, String> {
        let mut table: Table = text.parse().map_err(|e| complaint(text, &e))?;
        let lines = Lines::of(text);
        let name = word(&mut table, "name", &lines)?;
        let about = word(&mut table, "about", &lines)?;
        let mut kind = match word(&mut table, "kind", &lines)?.as_str() {
            "flash" => Kind::Flash(Flash::default()),
            "hdd" => Kind::Hdd(Hdd::default()),
            "network" => Kind::Network(Network::default()),
            other => return Err(lines.at("kind", &format!("kind is {other:?}; there are flash, hdd, network"))),
        };
        let bus = match table.remove("bus") {
            None => None,
            Some(Value::Table(bus)) => Some(read_bus(bus, &lines)?),
            Some(_) => return Err(lines.at("bus", "bus is a section of its own: [bus]")),
        };
        let about_kind = format!("a model of kind {}", kind.name());
        take_numbers(&mut table, "", &about_kind, kind.numbers(), &lines, |key, value| {
            kind.number(key).into_iter().for_each(|place| *place = value);
        })?;
        let sources = Arc::new(lines.sources);
        Ok(Model { name: name.into(), about: about.into(), kind, bus, cache: None, sources })
    }

    /// As a file; reading it back gives the same model.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (key, value) in [("name", &self.name), ("kind", &self.kind.name().into()), ("about", &self.about)] {
            let _ = writeln!(text, "{key} = {}", Value::String(value.to_string()));
        }
        let mut kind = self.kind;
        for number in self.kind.numbers() {
            let value = kind.number(number.key).map_or(0, |n| *n);
            let _ = writeln!(text, "\n{}{} = {}", self.comment(number.key), number.key, grouped(value));
        }
        if let Some((name, mut numbers)) = self.bus() {
            let _ = writeln!(text, "\n[bus]\nname = {}", Value::String(name.into()));
            for number in BusNumbers::NUMBERS {
                let value = numbers.number(number.key).map_or(0, |n| *n);
                let source = self.comment(&format!("bus.{}", number.key));
                let _ = writeln!(text, "{source}{} = {}", number.key, grouped(value));
            }
        }
        text
    }

    fn comment(&self, key: &str) -> String {
        self.source(key).map_or(String::new(), |source| wrapped(source, 116))
    }
}

/// Comment lines of at most so many characters.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            let _ = writeln!(lines, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(lines, "#{line}");
    }
    lines
}

/// 1234567 as 1_234_567.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// Where keys stand and the comments above them, which the parser does not keep. Keys of a section are `section.key`.
struct Lines {
    numbers: BTreeMap<String, usize>,
    sources: BTreeMap<String, String>,
}

impl Lines {
    fn of(text: &str) -> Lines {
        let mut lines = Lines { numbers: BTreeMap::new(), sources: BTreeMap::new() };
        let (mut section, mut comment) = (String::new(), Vec::new());
        for (i, line) in text.lines().map(str::trim).enumerate() {
            if let Some(words) = line.strip_prefix('#') {
                comment.push(words.trim());
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                section = format!("{}.", name.trim_end_matches(']').trim());
                lines.numbers.insert(section.trim_end_matches('.').into(), i + 1);
            } else if let Some((key, _)) = line.split_once('=') {
                let key = format!("{section}{}", key.trim());
                lines.numbers.insert(key.clone(), i + 1);
                if !comment.is_empty() {
                    lines.sources.insert(key, comment.join(" "));
                }
            }
            comment.clear();
        }
        lines
    }

    fn at(&self, key: &str, why: &str) -> String {
        self.numbers.get(key).map_or(why.into(), |line| format!("line {line}: {why}"))
    }
}

/// What the parser says, with its line and in one.
pub(crate) fn complaint(text: &str, e: &toml::de::Error) -> String {
    let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let why = e.message().replace('\n', ", ");
    line.map_or(why.clone(), |line| format!("line {line}: {why}"))
}

fn word(table: &mut Table, key: &str, lines: &Lines) -> Result<String, String> {
    match table.remove(key) {
        Some(Value::String(word)) => Ok(word),
        Some(_) => Err(lines.at(key, &format!("{key} is a text in quotes"))),
        None => Err(format!("{key} is missing")),
    }
}

fn read_bus(mut table: Table, lines: &Lines) -> Result<(Arc<str>, BusNumbers), String> {
    let Some(Value::String(name)) = table.remove("name") else {
        return Err(lines.at("bus", "a bus has a name, which devices that share it have in common"));
    };
    let mut numbers = BusNumbers::default();
    take_numbers(&mut table, "bus.", "a bus", BusNumbers::NUMBERS, lines, |key, value| {
        numbers.number(key).into_iter().for_each(|place| *place = value);
    })?;
    Ok((name.into(), numbers))
}

/// Moves numbers from the table to where they belong; nothing may be missing and nothing left.
fn take_numbers(
    table: &mut Table,
    prefix: &str,
    owner: &str,
    numbers: &[Number],
    lines: &Lines,
    mut put: impl FnMut(&str, u64),
) -> Result<(), String> {
    for number in numbers {
        let Number { key, min, max, about } = number;
        let at = |why: &str| lines.at(&format!("{prefix}{key}"), why);
        let Some(value) = table.remove(*key) else {
            return Err(format!("{key} is missing: {owner} needs it ({about}, {min} to {max})"));
        };
        let Some(value) = value.as_integer() else {
            return Err(at(&format!("{key} is a whole number from {min} to {max}, and not {value}")));
        };
        match u64::try_from(value).ok().filter(|value| (*min..=*max).contains(value)) {
            Some(value) => put(key, value),
            None => return Err(at(&format!("{key} = {value} is out of range: {min} to {max}"))),
        }
    }
    match table.keys().next() {
        None => Ok(()),
        Some(key) => {
            let known: Vec<&str> = numbers.iter().map(|n| n.key).collect();
            let why = format!("{owner} has no {key}; it has {}", known.join(", "));
            Err(lines.at(&format!("{prefix}{key}"), &why))
        }
    }
}
