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
//! | time of one read or write | random, one at a time: the mean, less link and payload |
//! | spread and tail | p99 and p99.9 of the same |
//! | price per command, units or servers | random, as deep as there is: tried until all reads fit best |
//! | average seek | random reads one at a time: the mean, less half a turn |
//!
//! What cannot be seen from outside stays as shipped: turns per minute, caches, the bound on passing over, sustained rates.
//! Of a small file on a large disk the seeks are short, and the model is of a disk of that size.

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
}

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
    let check = measured.iter().map(|m| (m.clone(), runs.by_model(&model, m))).collect();
    Ok(Fitted { model, check })
}

struct Runs<'a> {
    measured: &'a [Measured],
    size: u64,
}

impl Runs<'_> {
    fn guess(&self) -> &'static str {
        match (self.one(DeviceOp::Read), self.stream(DeviceOp::Read, false)) {
            (Some(one), _) if one.got.mean_ns > ROTATES_NS => "hdd",
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
        // Enough for a thousand commands; of a disk, for a write cache to fill.
        let few = (1000 * m.got.mean_ns / u64::from(m.load.depth).max(1)).clamp(SECOND / 50, 30 * SECOND);
        let ns = if model.is_rotational() { 30 * SECOND } else { few };
        m.load.run(&mut Timing::new(model, self.size, 1), ns)
    }

    /// What the model is off at most, in percent, over reads of more than one at a time.
    fn error(&self, model: &Model) -> u64 {
        let loads = self.measured.iter().filter(|m| m.load.op == DeviceOp::Read && m.load.depth > 1);
        let off = |m: &Measured| {
            let wanted = m.got.per_second.max(1);
            self.by_model(model, m).per_second.abs_diff(wanted) * 100 / wanted
        };
        loads.map(off).max().unwrap_or(0)
    }

    /// The price per command and the number of those who work at once, with which the model comes nearest: a ceiling may
    /// be either's, and only how a device gets there tells them apart.
    fn parallel(&self, model: &mut Model, keys: [&str; 3]) -> Result<(), String> {
        let [price_key, kib_key, count_key] = keys;
        let Some(m) = self.deep(DeviceOp::Read) else { return Ok(()) };
        let payload = kib(m) * value(model, kib_key);
        let one = self.one(DeviceOp::Read).map(|one| (one.got.mean_ns, kib(one) * value(model, kib_key)));
        let mut best: Option<(u64, Model)> = None;
        for part in PRICE_PERCENT {
            let each = SECOND * part / 100 / m.got.per_second.max(1);
            for count in COUNTS {
                let mut tried = model.clone();
                tried.set(price_key, each.saturating_sub(payload).min(SECOND), &told(m, "IOPS, less the payload"))?;
                tried.set(count_key, count, &told(m, "with which the model comes nearest, streams included"))?;
                if let Some((mean, payload)) = one {
                    let fixed = value(&tried, price_key) + payload + value(&tried, "round_trip_ns");
                    let ns = without_tail(&tried, mean.saturating_sub(fixed));
                    tried.set("read_ns", ns, tried.source("read_ns").unwrap_or_default().to_string().as_str())?;
                }
                let error = self.error(&tried);
                if best.as_ref().is_none_or(|(least, _)| error < *least) {
                    best = Some((error, tried));
                }
            }
        }
        best.into_iter().for_each(|(_, found)| *model = found);
        Ok(())
    }

    // ---- by kind ----------------------------------------------------------------------------------------------------

    fn flash(&self, model: &mut Model) -> Result<(), String> {
        for (op, key) in [(DeviceOp::Read, "read_kib_ns"), (WRITE, "write_kib_ns")] {
            if let Some(m) = self.stream(op, false).or(self.stream(op, true)) {
                model.set(key, per_kib(m), &told(m, "bandwidth"))?;
            }
        }
        if let Some(m) = self.one(DeviceOp::Read) {
            scatter(model, m)?;
            let link = value(model, "command_ns") + kib(m) * value(model, "read_kib_ns");
            let ns = without_tail(model, m.got.mean_ns.saturating_sub(link));
            model.set("read_ns", ns, &told(m, "mean, less the link"))?;
        }
        self.parallel(model, ["command_ns", "read_kib_ns", "units"])?;
        if let Some(m) = self.one(WRITE) {
            let link = value(model, "command_ns") + kib(m) * value(model, "write_kib_ns");
            let ns = without_tail(model, m.got.mean_ns.saturating_sub(link));
            model.set("write_ns", ns, &told(m, "mean, less the link"))?;
        }
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
        for (op, key) in [(DeviceOp::Read, "read_ns"), (WRITE, "write_ns")] {
            if op == WRITE {
                self.parallel(model, ["request_ns", "kib_ns", "servers"])?;
            }
            let Some(m) = self.one(op) else { continue };
            if op == DeviceOp::Read {
                scatter(model, m)?;
            }
            let known = ["request_ns", "round_trip_ns"].map(|key| value(model, key)).iter().sum::<u64>();
            let known = known + kib(m) * (value(model, "kib_ns") + value(model, "server_kib_ns"));
            let ns = without_tail(model, m.got.mean_ns.saturating_sub(known));
            model.set(key, ns, &told(m, "mean, less what all requests pay"))?;
        }
        Ok(())
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

    #[test]
    fn what_is_no_output_of_fio_is_told() {
        for text in ["", "hello", "{", "{\"jobs\": 3}", "{}"] {
            assert!(from_fio(text).unwrap_err().contains("output of fio"), "{text}");
        }
        let (measured, notes) = from_fio("{\"jobs\": [{\"jobname\": \"a\"}]}").unwrap();
        assert!(measured.is_empty() && notes[0].contains("job a is left out"), "{notes:?}");
    }
}
