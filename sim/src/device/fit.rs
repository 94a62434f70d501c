//! A model from measurements: those of `fio --output-format=json`, or of `braid device probe`.
//!
//! ```text
//!   measured loads --> kind: given, or by the time of a single random read
//!                      base: the shipped model of that kind        what nothing was measured of stays as it is there
//!                      each number from the load that shows it     where only a run shows it, the model is run
//!                      check: the fitted model does the same loads
//! ```
//!
//! | number | from |
//! |---|---|
//! | bandwidth (`…_kib_ns`, `outer_…`, `inner_…`) | the fastest stream; at the end of the device: the inner zone |
//! | time of one read or write | random, one at a time: the mean, less link and payload; else the deepest: the model is run until it gets as much |
//! | spread and tail | p99 and p99.9 of the same |
//! | price per command, units or servers | random, at more than one depth: tried until all deeper loads fit best |
//! | write cache of flash | random writes at depth 1 and deeper, where no number of units makes both: `program_ns` with which the model does as many deep ones |
//! | average seek | random reads one at a time: the mean, less half a turn |
//!
//! What cannot be seen from outside stays as shipped: turns per minute, caches, the bound on passing over, sustained rates.
//! Of a small file on a large disk the seeks are short, and the model is of a disk of that size.

use std::collections::BTreeSet;

use braid_core::request::DeviceOp;

use super::load::{Got, Load};
use super::numbers::SECOND;
use super::{Kind, Model, Timing};

/// A random read that takes longer than this is one of a disk that rotates: no flash is so slow, few disks so fast.
const ROTATES_NS: u64 = 2_500_000;
/// At least so many under way show a ceiling.
const DEEP: u32 = 8;
/// What part of the time between two commands at the ceiling is the price of one; the rest, units that meet are behind.
const PRICE_PERCENT: [u64; 6] = [100, 97, 94, 88, 75, 50];
/// Numbers of units or servers that are tried: fewer first, since more of them explain nothing more.
const COUNTS: [u64; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256];
/// How often a load is run to find the time of one command.
const TRIES: usize = 5;
/// A model that is further off than this, in percent, says so.
const OFF_PERCENT: u64 = 25;
/// How often a run fills a write cache.
const FILLS: u64 = 8;
/// Where the model does so much more of the deepest writes than were measured, in percent, there is a write cache.
const CACHED_PERCENT: u64 = 10;
/// A stream has commands of at least so many bytes.
const STREAM_LEN: u64 = 32 << 10;

/// A load and what it got.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What it is called.
    pub name: String,
    /// What was asked.
    pub load: Load,
    /// What it got.
    pub got: Got,
}

/// A model and how it compares.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The model; its sources say what came from where.
    pub model: Model,
    /// Each measured load, and what the model gets from it.
    pub check: Vec<(Measured, Got)>,
    /// Where both are far apart, a sentence each.
    pub warnings: Vec<String>,
}

/// Names of the numbers of a kind that works in parallel: of reads and of writes where there are two.
struct Keys {
    price: &'static str,
    count: &'static str,
    kib: [&'static str; 2],
    ns: [&'static str; 2],
    /// The price of a KiB is what a stream shows.
    streams: bool,
}

const FLASH: Keys = Keys {
    price: "command_ns",
    count: "units",
    kib: ["read_kib_ns", "write_kib_ns"],
    ns: ["read_ns", "write_ns"],
    streams: true,
};
const NETWORK: Keys = Keys {
    price: "request_ns",
    count: "servers",
    kib: ["kib_ns", "kib_ns"],
    ns: ["read_ns", "write_ns"],
    streams: false,
};

/// Fits a model for a device of so many bytes; `base` is the shipped model whose numbers stand where nothing was measured.
pub fn fit(measured: &[Measured], base: Option<&str>, name: &str, size: u64) -> Result<Fitted, String> {
    if measured.is_empty() {
        return Err("there is nothing to fit a model from: random reads one at a time are the least".into());
    }
    let runs = Runs { measured, size };
    let base = Model::shipped(base.unwrap_or_else(|| runs.guess()))?;
    let about = format!("fitted from {} measured loads, the rest as {}", measured.len(), base.name());
    let mut model = base.named(name, &about);
    for number in model.kind().numbers() {
        let told = model.source(number.key).unwrap_or("assumed").to_string();
        let value = model.get(number.key).unwrap_or(number.min);
        model.set(number.key, value, &format!("Not measured; as model {}: {told}", base.name()))?;
    }
    match model.kind() {
        Kind::Flash(_) => runs.flash(&mut model)?,
        Kind::Hdd(_) => runs.hdd(&mut model)?,
        Kind::Network(_) => runs.network(&mut model)?,
    }
    let check: Vec<_> = measured.iter().map(|m| (m.clone(), runs.by_model(&model, m))).collect();
    let warnings = check.iter().filter_map(warning).collect();
    Ok(Fitted { model, check, warnings })
}

/// What to know of a load that the model does not do as it was measured.
fn warning((m, model): &(Measured, Got)) -> Option<String> {
    let (wanted, found) = (m.got.per_second.max(1), model.per_second);
    let percent = u128::from(found.abs_diff(wanted)) * 100 / u128::from(wanted);
    (percent > u128::from(OFF_PERCENT)).then(|| {
        format!(
            "{}: the model does {found} a second and {wanted} were measured, {percent} % off: do not go by the model for \
             such loads; random reads and writes, each at depth 1 and at 32, and a stream of each fit best",
            m.name
        )
    })
}

struct Runs<'a> {
    measured: &'a [Measured],
    size: u64,
}

impl Runs<'_> {
    fn guess(&self) -> &'static str {
        match (self.one(DeviceOp::Read), self.stream(DeviceOp::Read, false)) {
            (Some(one), _) if one.got.mean_ns > ROTATES_NS => "hdd",
            (None, _) if self.deep(DeviceOp::Read).is_some_and(|m| SECOND / m.got.per_second.max(1) > ROTATES_NS) => {
                "hdd"
            }
            (_, Some(stream)) if stream.got.kib_per_second > 600 << 10 => "nvme",
            (Some(one), None) if one.got.mean_ns < 80_000 => "nvme",
            _ => "sata-ssd",
        }
    }

    fn of(&self, op: DeviceOp, random: bool) -> impl Iterator<Item = &Measured> {
        self.measured.iter().filter(move |m| m.load.random == random && is_write(m.load.op) == is_write(op))
    }

    /// Random, one at a time.
    fn one(&self, op: DeviceOp) -> Option<&Measured> {
        self.of(op, true).filter(|m| m.load.depth == 1).min_by_key(|m| m.load.len)
    }

    /// Random, as many at a time as there were.
    fn deep(&self, op: DeviceOp) -> Option<&Measured> {
        self.of(op, true).filter(|m| m.load.depth >= DEEP).max_by_key(|m| (m.load.depth, m.got.per_second))
    }

    /// The fastest stream: in the first half of the device, or in the second.
    fn stream(&self, op: DeviceOp, at_end: bool) -> Option<&Measured> {
        let place = |m: &&Measured| (m.load.from >= self.size / 2) == at_end;
        self.of(op, false).filter(|m| m.load.len >= STREAM_LEN).filter(place).max_by_key(|m| m.got.kib_per_second)
    }

    fn by_model(&self, model: &Model, m: &Measured) -> Got {
        // Enough for a thousand commands, and for flash with a write cache to fill it so often; of a disk, for a write cache to fill.
        let commands = 1000.max(FILLS * value(model, "write_cache_kib") / kib(m));
        let few = (u128::from(commands) * u128::from(m.got.mean_ns) / u128::from(m.load.depth.max(1)))
            .clamp(u128::from(SECOND / 50), u128::from(30 * SECOND)) as u64;
        let ns = if model.is_rotational() { 30 * SECOND } else { few };
        m.load.run(&mut Timing::new(model, self.size, 1), ns)
    }

    /// What the model is off at most, in percent, over loads of more than one at a time.
    fn error(&self, model: &Model) -> u64 {
        let loads = self.measured.iter().filter(|m| m.load.depth > 1);
        let off = |m: &Measured| {
            let wanted = m.got.per_second.max(1);
            self.by_model(model, m).per_second.abs_diff(wanted) * 100 / wanted
        };
        loads.map(off).max().unwrap_or(0)
    }

    /// How many depths of random loads there are.
    fn depths(&self, op: DeviceOp) -> usize {
        self.of(op, true).map(|m| m.load.depth).collect::<BTreeSet<_>>().len()
    }

    /// The price per command and the number of those who work at once, with which the model comes nearest: a ceiling may
    /// be either's, and only how a device gets there tells them apart. So of one depth both stay as they are.
    fn parallel(&self, model: &mut Model, keys: &Keys) -> Result<(), String> {
        let several = [DeviceOp::Read, WRITE].map(|op| self.depths(op) > 1);
        let deep = self.deep(DeviceOp::Read).filter(|_| several[0]);
        let prices = match deep {
            Some(m) => PRICE_PERCENT.map(|part| (SECOND * part / 100 / m.got.per_second.max(1), Some(m))).to_vec(),
            None => vec![(value(model, keys.price), None)],
        };
        let counts = if several.contains(&true) { COUNTS.to_vec() } else { vec![value(model, keys.count)] };
        let mut best: Option<(u64, Model)> = None;
        for (price, from) in prices {
            for &count in &counts {
                let mut tried = model.clone();
                self.price(&mut tried, keys, price, from)?;
                if let Some(m) = deep.or(self.deep(WRITE)).filter(|_| counts.len() > 1) {
                    let why = told(m, "with which the model comes nearest, streams included");
                    tried.set(keys.count, count, &why)?;
                }
                self.times(&mut tried, keys)?;
                self.write_cache(&mut tried)?;
                let error = self.error(&tried);
                if best.as_ref().is_none_or(|(least, _)| error < *least) {
                    best = Some((error, tried));
                }
            }
        }
        best.into_iter().for_each(|(_, found)| *model = found);
        Ok(())
    }

    /// The price per command, and with it those per KiB. Reads and writes pay it alike, so the fastest of all loads bounds
    /// it; where no load tells it from the payload it is at most half of that.
    fn price(&self, model: &mut Model, keys: &Keys, price: u64, from: Option<&Measured>) -> Result<(), String> {
        self.per_kib(model, keys, 0)?;
        let fastest = self.measured.iter().max_by_key(|m| m.got.per_second).ok_or("nothing is measured")?;
        let least = SECOND / fastest.got.per_second.max(1);
        match from {
            Some(m) if price <= least => {
                let payload = kib(m) * value(model, keys.kib[0]);
                model.set(keys.price, price.saturating_sub(payload), &told(m, "IOPS, less the payload"))?;
            }
            None if price <= least / 2 => {}
            _ => model.set(keys.price, least / 2, &told(fastest, "IOPS: no command costs more"))?,
        }
        self.per_kib(model, keys, value(model, keys.price))
    }

    /// The prices per KiB: what streams show, or as shipped where no load shows that a KiB costs less.
    fn per_kib(&self, model: &mut Model, keys: &Keys, price: u64) -> Result<(), String> {
        for (op, key) in [DeviceOp::Read, WRITE].into_iter().zip(keys.kib) {
            let less = |m: &Measured| per_kib(m).saturating_sub(price / kib(m));
            if let Some(m) = self.stream(op, false).or(self.stream(op, true)).filter(|_| keys.streams) {
                model.set(key, less(m), &told(m, "bandwidth, less the command"))?;
            }
            let loads = self.measured.iter().filter(|m| is_write(m.load.op) == is_write(op));
            if let Some(m) = loads.min_by_key(|m| less(m)).filter(|m| less(m) < value(model, key)) {
                model.set(key, less(m), &told(m, "bandwidth: no KiB costs more"))?;
            }
        }
        Ok(())
    }

    /// The time of one read and of one write: each from loads of its own.
    fn times(&self, model: &mut Model, keys: &Keys) -> Result<(), String> {
        for ((op, key), per_kib) in [DeviceOp::Read, WRITE].into_iter().zip(keys.ns).zip(keys.kib) {
            let (one, deep) = (self.one(op), self.of(op, true).max_by_key(|m| m.load.depth));
            let Some(m) = one.or(deep) else { continue };
            let payload = kib(m) * (value(model, per_kib) + value(model, "server_kib_ns"));
            let all_pay = value(model, keys.price) + value(model, "round_trip_ns") + payload;
            let mut ns = without_tail(model, m.got.mean_ns.saturating_sub(all_pay));
            if one.is_some() {
                model.set(key, ns, &told(m, "mean, less what all commands pay"))?;
                continue;
            }
            // How long one waits for another is no formula.
            for _ in 0..TRIES {
                model.set(key, ns, &told(m, "with which the model does as many"))?;
                let found = u128::from(self.by_model(model, m).per_second);
                let next = u128::from(ns.max(1)) * found / u128::from(m.got.per_second.max(1));
                ns = u64::try_from(next).unwrap_or(SECOND).clamp(1, SECOND);
            }
        }
        Ok(())
    }

    /// Single writes that are quick beside deep ones that are slow: where the numbers so far do not do that, what answers is
    /// a cache, as large as what a flush has to pay for, and the pace of the flash is what the deep ones show.
    fn write_cache(&self, model: &mut Model) -> Result<(), String> {
        let (Kind::Flash(flash), Some(_), Some(deep)) = (model.kind(), self.one(WRITE), self.deep(WRITE)) else {
            return Ok(());
        };
        let wanted = deep.got.per_second.max(1);
        let limit = wanted + wanted * CACHED_PERCENT / 100;
        if flash.write_cache_kib > 0 || flash.volatile_kib == 0 || self.by_model(model, deep).per_second <= limit {
            return Ok(());
        }
        let mut cached = model.clone();
        let why = "such a device answers before flash has it; assumed as large as volatile_kib";
        cached.set("write_cache_kib", flash.volatile_kib, &told(deep, why))?;
        let pieces = (deep.load.len.div_ceil(1024)).div_ceil(flash.unit_kib).max(1);
        let mut ns = (flash.units * SECOND / wanted / pieces).clamp(1, SECOND);
        for _ in 0..TRIES {
            cached.set("program_ns", ns, &told(deep, "with which the model does as many"))?;
            let found = u128::from(self.by_model(&cached, deep).per_second);
            let next = u128::from(ns) * found / u128::from(wanted);
            ns = u64::try_from(next).unwrap_or(SECOND).clamp(1, SECOND);
        }
        let is_better = self.error(&cached) < self.error(model);
        if is_better {
            *model = cached;
        }
        Ok(())
    }

    // ---- by kind ----------------------------------------------------------------------------------------------------

    fn flash(&self, model: &mut Model) -> Result<(), String> {
        if let Some(m) = self.one(DeviceOp::Read) {
            scatter(model, m)?;
        }
        self.parallel(model, &FLASH)?;
        if let Some(m) = self.stream(WRITE, false) {
            // A minute of writing shows no end of a burst, and one that was not seen must not slow anything down.
            let slowest = per_kib(m).max(value(model, "sustained_kib_ns"));
            model.set("sustained_kib_ns", slowest, &told(m, "no faster than its burst"))?;
        }
        Ok(())
    }

    fn hdd(&self, model: &mut Model) -> Result<(), String> {
        if let Some(m) = self.stream(DeviceOp::Read, false) {
            let ratio = |part: u64| part * value(model, "inner_kib_per_s") / value(model, "outer_kib_per_s");
            let inner = ratio(m.got.kib_per_second).max(1);
            model.set("outer_kib_per_s", m.got.kib_per_second.max(1), &told(m, "bandwidth"))?;
            model.set("inner_kib_per_s", inner, &told(m, "bandwidth, in the shipped model's ratio"))?;
        }
        if let Some(m) = self.stream(DeviceOp::Read, true) {
            model.set(
                "inner_kib_per_s",
                m.got.kib_per_second.max(1),
                &told(m, "bandwidth at the end of the device"),
            )?;
        }
        let Some(m) = self.one(DeviceOp::Read) else { return Ok(()) };
        let half_turn = 30 * SECOND / value(model, "rpm");
        let seek = m.got.mean_ns.saturating_sub(half_turn + value(model, "command_ns"));
        let before = value(model, "average_seek_ns").max(1);
        for key in ["track_to_track_ns", "full_stroke_ns"] {
            let scaled = (u128::from(value(model, key)) * u128::from(seek) / u128::from(before)) as u64;
            model.set(key, scaled.min(SECOND), &told(m, "mean, less half a turn, in the shipped model's ratio"))?;
        }
        model.set("average_seek_ns", seek.min(SECOND), &told(m, "mean, less half a turn"))
    }

    fn network(&self, model: &mut Model) -> Result<(), String> {
        if let Some(m) = self.stream(DeviceOp::Read, false) {
            // A stream that is hardly slower than single small reads waits for answers and shows no bandwidth.
            let single = self.one(DeviceOp::Read).map_or(0, |one| one.got.mean_ns);
            let waits = m.got.mean_ns * 2 < single * 3;
            let by_size = m.got.mean_ns.saturating_sub(single) / kib(m);
            model.set("kib_ns", if waits { by_size } else { per_kib(m) }, &told(m, "bandwidth"))?;
            model.set("server_kib_ns", 0, &told(m, "counted in kib_ns"))?;
        }
        if let Some(m) = self.one(DeviceOp::Read) {
            scatter(model, m)?;
        }
        self.parallel(model, &NETWORK)
    }
}

pub(super) const WRITE: DeviceOp = DeviceOp::Write { fua: false };

fn is_write(op: DeviceOp) -> bool {
    matches!(op, DeviceOp::Write { .. })
}

fn kib(m: &Measured) -> u64 {
    m.load.len.div_ceil(1024)
}

fn per_kib(m: &Measured) -> u64 {
    (SECOND / m.got.kib_per_second.max(1)).min(SECOND)
}

fn value(model: &Model, key: &str) -> u64 {
    model.get(key).unwrap_or(0)
}

fn told(m: &Measured, what: &str) -> String {
    format!("Measured: {what} of {}", m.name)
}

/// Spread and tail from the quantiles of a load at depth 1.
fn scatter(model: &mut Model, m: &Measured) -> Result<(), String> {
    let Got { p50_ns, p99_ns, p999_ns, .. } = m.got;
    let spread = (p99_ns.saturating_sub(p50_ns) * 100 / p50_ns.max(1)).min(50);
    model.set("spread_percent", spread, &told(m, "p99 against p50"))?;
    let times = p999_ns / p50_ns.max(1);
    let (one_in, times) = if times >= 4 { (1000, times.min(100)) } else { (0, 1) };
    model.set("tail_one_in", one_in, &told(m, "p99.9 against p50"))?;
    model.set("tail_times", times, &told(m, "p99.9 against p50"))
}

/// A mean without what the tail adds to it.
fn without_tail(model: &Model, mean: u64) -> u64 {
    match (value(model, "tail_one_in"), value(model, "tail_times")) {
        (0, _) => mean.min(SECOND),
        (one_in, times) => (mean * one_in / (one_in + times - 1)).min(SECOND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fio::from_fio;

    const GIB: u64 = 1 << 30;
    const SIZE: u64 = 256 * GIB;

    fn load(op: DeviceOp, depth: u32, len: u64, random: bool) -> Load {
        Load { op, depth, len, from: 0, to: SIZE / 4, random }
    }

    /// What is asked of a device, as `braid device probe --write` does.
    fn loads() -> [(&'static str, Load); 7] {
        let whole = |load: Load| Load { to: SIZE, ..load };
        [
            ("rr1", whole(load(DeviceOp::Read, 1, 4096, true))),
            ("rr8", whole(load(DeviceOp::Read, 8, 4096, true))),
            ("rr32", whole(load(DeviceOp::Read, 32, 4096, true))),
            ("read", load(DeviceOp::Read, 4, 1 << 20, false)),
            ("end", Load { from: SIZE - 4 * GIB, to: SIZE, ..load(DeviceOp::Read, 4, 1 << 20, false) }),
            ("rw1", whole(load(WRITE, 1, 4096, true))),
            ("write", load(WRITE, 4, 1 << 20, false)),
        ]
    }

    fn measure(model: &Model) -> Vec<Measured> {
        let run = |(name, load): (&str, Load)| {
            let got = load.run(&mut Timing::new(model, SIZE, 5), if model.is_rotational() { 30 } else { 1 } * SECOND);
            Measured { name: name.into(), load, got }
        };
        loads().into_iter().map(run).collect()
    }

    #[track_caller]
    fn near(what: &str, found: u64, wanted: u64, percent: u64) {
        assert!(found.abs_diff(wanted) * 100 <= wanted * percent, "{what}: {found}, and not {wanted}");
    }

    /// A run of the model is fitted back: what numbers say and what loads get are within a tenth.
    #[test]
    fn a_model_is_found_again_from_what_it_did() {
        for (name, base, keys) in [
            ("nvme", None, &["read_ns", "write_ns", "read_kib_ns", "write_kib_ns"][..]),
            ("sata-ssd", None, &["read_ns", "read_kib_ns", "write_kib_ns"]),
            ("hdd", None, &["average_seek_ns", "outer_kib_per_s", "inner_kib_per_s"]),
            ("hdd-5400", Some("hdd-5400"), &["average_seek_ns", "outer_kib_per_s", "inner_kib_per_s"]),
            ("ceph-one-node", Some("ceph-one-node"), &["read_ns"]),
        ] {
            let truth = Model::shipped(name).unwrap();
            let fitted = fit(&measure(&truth), base, "again", SIZE).unwrap();
            for key in keys {
                near(&format!("{name} {key}"), value(&fitted.model, key), value(&truth, key), 10);
            }
            for (m, got) in &fitted.check {
                let about = format!("{name} {}: {:?} {got:?}", m.name, m.got);
                near(&about, got.per_second, m.got.per_second, 10);
            }
            assert!(fitted.model.source(keys[0]).unwrap().starts_with("Measured: "));
            assert_eq!(Model::parse(&fitted.model.to_toml()), Ok(fitted.model));
        }
    }

    /// A disk that is half as fast is not taken for the shipped one.
    #[test]
    fn what_was_measured_counts_and_not_what_is_shipped() {
        let mut slow = Model::shipped("hdd").unwrap();
        for (key, value) in [
            ("average_seek_ns", 15_000_000),
            ("full_stroke_ns", 30_000_000),
            ("outer_kib_per_s", 90_000),
            ("inner_kib_per_s", 40_000),
        ] {
            slow.set(key, value, "test").unwrap();
        }
        let fitted = fit(&measure(&slow), None, "slow", SIZE).unwrap().model;
        near("seek", value(&fitted, "average_seek_ns"), 15_000_000, 10);
        near("outer", value(&fitted, "outer_kib_per_s"), 90_000, 10);
        near("inner", value(&fitted, "inner_kib_per_s"), 40_000, 10);
        let told = fitted.source("pass_over_ms").unwrap();
        assert!(told.starts_with("Not measured; as model hdd: "), "{told}");
        assert!(fit(&[], None, "x", SIZE).unwrap_err().contains("nothing to fit"));
    }

    /// A recorded run of fio 3.33 on a virtual disk: random reads at depth 1 and 32, streams, random writes.
    #[test]
    fn a_recorded_run_of_fio_becomes_a_model() {
        let (measured, notes) = from_fio(include_str!("../../tests/fixtures/fio.json")).unwrap();
        let names: Vec<&str> = measured.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "fio job rr1 (rw=randread bs=4k depth 1)",
                "fio job rr32 (rw=randread bs=4k depth 32)",
                "fio job read (rw=read bs=1024k depth 4)",
                "fio job rw1 (rw=randwrite bs=4k depth 1)",
            ]
        );
        assert!(notes.len() == 1 && notes[0].starts_with("job mixed is left out: of rw=randrw"), "{notes:?}");
        let size = measured.iter().map(|m| m.load.to).max().unwrap();
        let fitted = fit(&measured, None, "vda", size).unwrap();
        for (m, got) in &fitted.check {
            println!("{}: {:?} {got:?}", m.name, m.got);
            near(&m.name, got.per_second, m.got.per_second, 15);
        }
    }

    /// What fio would have printed, with latencies that go with it.
    fn measured(name: &str, load: Load, per_second: u64) -> Measured {
        let mean_ns = u64::from(load.depth) * SECOND / per_second;
        let kib_per_second = per_second * load.len / 1024;
        let got = Got { per_second, kib_per_second, mean_ns, p50_ns: mean_ns, p99_ns: mean_ns, ..Got::default() };
        Measured { name: name.into(), load, got: Got { p999_ns: mean_ns, ..got } }
    }

    /// Whatever of random loads and streams was measured, the model does it.
    #[test]
    fn deeper_writes_count_and_one_side_is_not_paid_by_the_other() {
        let (read, write) = (|depth| load(DeviceOp::Read, depth, 4096, true), |depth| load(WRITE, depth, 4096, true));
        let stream = |op, len| load(op, 4, len, false);
        let sets: [&[(Load, u64)]; 7] = [
            &[(write(32), 5_000)],
            &[(write(32), 900_000)],
            &[(read(8), 7_800), (stream(WRITE, 128 << 10), 11_800)],
            &[(read(8), 7_800), (load(WRITE, 8, 128 << 10, true), 11_800)],
            &[(read(1), 9_000), (read(32), 90_000), (write(32), 20_000)],
            &[(read(1), 9_000), (write(1), 30_000), (read(32), 90_000), (stream(DeviceOp::Read, 1 << 20), 500)],
            &[(read(32), 400_000), (write(32), 60_000)],
        ];
        for set in sets {
            let loads: Vec<_> = set.iter().map(|(load, n)| measured(&format!("{load:?}"), *load, *n)).collect();
            for base in [None, Some("nvme"), Some("sata-ssd"), Some("rbd")] {
                let fitted = fit(&loads, base, "x", SIZE).unwrap();
                if base != Some("rbd") {
                    assert!(fitted.warnings.is_empty(), "{base:?}: {:#?}", fitted.warnings);
                }
                let off = |(m, got): &(Measured, Got)| got.per_second.abs_diff(m.got.per_second) * 4 > m.got.per_second;
                assert_eq!(fitted.check.iter().filter(|row| off(row)).count(), fitted.warnings.len());
            }
        }
    }

    /// Single writes that are quick beside deep ones that are slow, as a cache in front of flash makes them.
    #[test]
    fn quick_single_writes_beside_slow_deep_ones_have_a_write_cache() {
        for (one, deep) in [(40_000, 60_000), (30_000, 45_000), (60_000, 62_000)] {
            let loads = [
                measured("read", load(DeviceOp::Read, 1, 4096, true), 10_000),
                measured("reads", load(DeviceOp::Read, 32, 4096, true), 200_000),
                measured("write", load(WRITE, 1, 4096, true), one),
                measured("writes", load(WRITE, 32, 4096, true), deep),
            ];
            let fitted = fit(&loads, None, "x", SIZE).unwrap();
            assert!(
                value(&fitted.model, "write_cache_kib") > 0 && fitted.warnings.is_empty(),
                "{:#?}",
                fitted.warnings
            );
            for (m, got) in &fitted.check {
                let off = got.per_second.abs_diff(m.got.per_second) * 100 / m.got.per_second;
                assert!(off <= 15, "{}: {} of {}", m.name, got.per_second, m.got.per_second);
            }
        }
    }

    /// Nothing that is there for long answers single writes faster than many at a time.
    #[test]
    fn a_model_that_is_far_off_says_so() {
        let (one, deep) = (load(WRITE, 1, 4096, true), load(WRITE, 32, 4096, true));
        let fitted = fit(&[measured("one", one, 50_000), measured("deep", deep, 500)], None, "x", SIZE).unwrap();
        let [warning] = &fitted.warnings[..] else { panic!("{:?}", fitted.warnings) };
        assert!(warning.contains("a second and") && warning.contains("% off"), "{warning}");
    }

    #[test]
    fn what_is_no_output_of_fio_is_told() {
        for text in ["", "hello", "{", "{\"jobs\": 3}", "{}"] {
            assert!(from_fio(text).unwrap_err().contains("output of fio"), "{text}");
        }
        let (measured, notes) = from_fio(r#"{"jobs": [{"jobname": "a"}]}"#).unwrap();
        assert!(measured.is_empty() && notes[0].contains("job a is left out"), "{notes:?}");
    }

    /// The output of fio for one job of random reads.
    fn of_fio(options: &str, iops: &str, mean: &str) -> String {
        format!(
            r#"{{"jobs": [{{"jobname": "a", "job options": {{"rw": "randread", "iodepth": "32", "ioengine": "libaio" {options}}},
            "read": {{"iops": {iops}, "bw": 4000, "lat_ns": {{"mean": {mean}}}}}}}]}}"#
        )
    }

    #[test]
    fn what_no_device_does_is_left_out() {
        let direct = r#", "direct": "1""#;
        let (measured, notes) = from_fio(&of_fio(direct, "1000.0", "32000000.0")).unwrap();
        assert!(measured.len() == 1 && notes.is_empty(), "{notes:?}");
        for (options, iops, mean, part) in [
            ("", "1e300", "32000000", "1e300 requests a second"),
            ("", "1000", "1e300", "a mean of 1e300 ns"),
            ("", "1000", "64000000000", "64000 requests under way"),
            (r#", "bs": "1t""#, "1000", "32000000", "requests of 1099511627776 bytes"),
            (r#", "offset": "18446744073709551615""#, "1000", "32000000", "from byte 18446744073709551615 on"),
            (r#", "rate_iops": "1000""#, "1000", "32000000", "rate_iops=1000 slows it down"),
        ] {
            let (measured, notes) = from_fio(&of_fio(&format!("{direct}{options}"), iops, mean)).unwrap();
            assert!(measured.is_empty() && notes[0].contains(part), "{part}: {notes:?}");
        }
    }

    #[test]
    fn a_run_through_the_page_cache_is_said_to_be_one() {
        for options in ["", r#", "direct": "0""#, r#", "direct": "1", "buffered": "1""#] {
            let (measured, notes) = from_fio(&of_fio(options, "1000", "32000000")).unwrap();
            let [note] = &notes[..] else { panic!("{options}: {notes:?}") };
            assert!(measured.len() == 1 && note.contains("through the page cache"), "{options}: {note}");
        }
    }
}
