//! The same jobs on today's pool and on variants of it.
//!
//! ```text
//!   variant   one change or several:  read_policy=latency   profile=raid10   replace:hdd=ssd   add:nvme:1T
//!   runs      each variant with the same seeds; the run in the middle is shown, the distance of the others is the spread
//!   advice    throughput decides, or p99 where the load sets its own pace; a margin below 5 % is too small to matter, and so
//!             is one within the spread, unless each run of the variant beats the same seed's of today and their middle
//! ```
//!
//! Of several jobs throughput is the geometric mean of what each has in its own time. Bytes of all over time of all would
//! prefer whoever spends more of that time in the quickest job: a variant that slows down the random half of a load and so
//! is cut later in the sequential half would win.
//!
//! What a variant costs in money, work and safety is not weighed: only that it survives fewer failures is said.

use braid_core::{ChunkType, Profile};

use super::job::Job;
use super::outcome::{Outcome, Stop};
use super::pool_file;
use super::run;
use super::script::Work;
use super::setup::{Member, Setup};

/// Margins below this many thousandths don't matter.
pub const MARGIN_MIN: u64 = 50;

/// One change of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A property of the pool, of its queues too.
    Set(String, String),
    /// The profile of data.
    Data(Profile),
    /// The profile of metadata.
    Metadata(Profile),
    /// Every device of one class becomes one of another, as large as before.
    Replace(String, String),
    /// One more device, of a class and so many bytes; none is as large as the largest.
    Add(String, Option<u64>),
}

impl Change {
    /// As it is written, see the module.
    pub fn parse(word: &str) -> Result<Change, String> {
        let wrong = || {
            format!(
                "{word:?} is no change; write NAME=VALUE, profile=PROFILE, metadata=PROFILE, replace:CLASS=CLASS or \
                 add:CLASS[:SIZE]"
            )
        };
        if let Some(rest) = word.strip_prefix("replace:") {
            let (from, to) = rest.split_once('=').ok_or_else(wrong)?;
            return Ok(Change::Replace(from.into(), to.into()));
        }
        if let Some(rest) = word.strip_prefix("add:") {
            let no_size = |word: &str| format!("add:{rest}: {}", pool_file::no_size(word));
            let (class, size) = match rest.split_once(':') {
                Some((class, size)) => (class, Some(pool_file::size(size).ok_or_else(|| no_size(size))?)),
                None => (rest, None),
            };
            return Ok(Change::Add(class.into(), size));
        }
        let (name, value) = word.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        Ok(match name {
            "profile" | "data" => Change::Data(pool_file::profile(value, ChunkType::Data)?),
            "metadata" => Change::Metadata(pool_file::profile(value, ChunkType::Metadata)?),
            _ => Change::Set(name.into(), value.into()),
        })
    }

    fn apply(&self, setup: &mut Setup) -> Result<(), String> {
        match self {
            Change::Set(name, value) => {
                setup.settings.retain(|(known, _)| known != name);
                setup.settings.push((name.clone(), value.clone()));
            }
            Change::Data(profile) => setup.data = *profile,
            Change::Metadata(profile) => setup.metadata = *profile,
            Change::Replace(from, to) => {
                let model = pool_file::model_of_class(to)?;
                let mut found = false;
                for member in setup.members.iter_mut().filter(|member| member.class == *from) {
                    let settings = std::mem::take(&mut member.settings);
                    *member = Member { settings, ..Member::new(&member.name, member.size, to, model.clone()) };
                    found = true;
                }
                if !found {
                    let mut classes: Vec<&str> = setup.members.iter().map(|member| member.class.as_str()).collect();
                    classes.dedup();
                    return Err(format!("the pool has no device of class {from:?}, only {}", classes.join(", ")));
                }
            }
            Change::Add(class, size) => {
                let largest = setup.members.iter().map(|member| member.size).max().unwrap_or(0);
                let name = format!("+{class}{}", setup.members.len());
                let model = pool_file::model_of_class(class)?;
                setup.members.push(Member::new(&name, size.unwrap_or(largest), class, model));
            }
        }
        Ok(())
    }
}

/// Changes that go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// As it was written; `today` without changes.
    pub name: String,
    /// In this order.
    pub changes: Vec<Change>,
}

impl Variant {
    /// The pool as it is.
    pub fn today() -> Variant {
        Variant { name: "today".into(), changes: Vec::new() }
    }

    /// Changes between blanks.
    pub fn parse(text: &str) -> Result<Variant, String> {
        let changes: Vec<Change> = text.split_whitespace().map(Change::parse).collect::<Result<_, _>>()?;
        match changes.is_empty() {
            true => Err("a variant has at least one change".into()),
            false => Ok(Variant { name: text.split_whitespace().collect::<Vec<_>>().join(" "), changes }),
        }
    }

    /// A mistake of this variant; of the pool as it is, the mistake alone.
    fn told(&self, why: String) -> String {
        if self.changes.is_empty() { why } else { format!("variant {}: {why}", self.name) }
    }

    /// A setup with its changes.
    pub fn of(&self, setup: &Setup) -> Result<Setup, String> {
        let mut changed = setup.clone();
        self.changes.iter().try_for_each(|change| change.apply(&mut changed))?;
        Ok(changed)
    }
}

/// What came of a variant.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its name.
    pub name: String,
    /// The pool it ran on.
    pub setup: Setup,
    /// The run in the middle.
    pub outcome: Outcome,
    /// Thousandths between the best and the worst run.
    pub spread_permille: u64,
    /// What each seed gave, of what variants are told apart by.
    by_seed: Vec<u64>,
}

/// Runs every variant with every seed, and then tells them apart.
pub fn trials(setup: &Setup, jobs: &[Job], variants: &[Variant], seeds: &[u64]) -> Result<Vec<Trial>, String> {
    let measure = Measure::of(jobs);
    let one = |variant: &Variant| {
        let setup = variant.of(setup).map_err(|why| variant.told(why))?;
        let run = |&seed: &u64| run::run(&setup, jobs, seed);
        let runs: Result<Vec<Outcome>, String> = seeds.iter().map(run).collect();
        let mut runs = runs.map_err(|why| variant.told(why))?;
        let counts = answered(&runs.iter().collect::<Vec<_>>());
        let by_seed = runs.iter().map(|outcome| measure.value(outcome, &counts)).collect();
        runs.sort_by_key(|outcome| measure.value(outcome, &counts));
        let [low, high] = [runs.first(), runs.last()].map(|run| run.map_or(0, |run| measure.value(run, &counts)));
        let outcome = runs.swap_remove(runs.len() / 2);
        let spread_permille = margin(low, high);
        Ok(Trial { name: variant.name.clone(), setup, outcome, spread_permille, by_seed })
    };
    variants.iter().map(one).collect()
}

/// Jobs that got an answer in every run: only by them can runs be told apart.
fn answered(runs: &[&Outcome]) -> Vec<bool> {
    let jobs = runs.iter().map(|run| run.jobs.len()).min().unwrap_or(0);
    (0..jobs).map(|job| runs.iter().all(|run| run.jobs[job].data().ios > 0)).collect()
}

/// No more than this is told, in thousandths: a thousand million times.
const MARGIN_MAX: u128 = 1_000_000_000_000;

/// Thousandths that the larger is above the smaller.
fn margin(low: u64, high: u64) -> u64 {
    (u128::from(high - low) * 1000).checked_div(u128::from(low)).unwrap_or(0).min(MARGIN_MAX) as u64
}

/// By what variants are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes a second, the geometric mean of the jobs: more is better.
    Throughput,
    /// What 99 of 100 requests wait at most: less is better.
    P99,
}

impl Measure {
    /// A load that sets its own pace cannot go faster on a faster pool: what counts is how long it waits.
    pub fn of(jobs: &[Job]) -> Measure {
        let paced = |job: &Job| {
            let is_trace = matches!(job.work, Some(Work::Trace(_)));
            is_trace || job.think_ns > 0 || job.rate.iter().chain(&job.rate_iops).any(|rate| rate.is_some())
        };
        if jobs.iter().all(paced) { Measure::P99 } else { Measure::Throughput }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Throughput => "throughput",
            Measure::P99 => "p99",
        }
    }

    /// What it is in a run, by the jobs that count.
    pub fn value(self, outcome: &Outcome, counts: &[bool]) -> u64 {
        match self {
            Measure::Throughput => {
                let jobs = outcome.jobs.iter().zip(counts).filter(|(_, counts)| **counts);
                let rates: Vec<f64> = jobs.map(|(job, _)| job.bytes_per_s().max(1) as f64).collect();
                match rates[..] {
                    [] | [_] => rates.first().map_or(0, |rate| *rate as u64),
                    _ => (rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64).exp() as u64,
                }
            }
            Measure::P99 => outcome.all.data().latency.quantile_ns(990),
        }
    }

    fn is_better(self, a: u64, b: u64) -> bool {
        match self {
            Measure::Throughput => a > b,
            Measure::P99 => a < b,
        }
    }
}

/// What to do, and how sure that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The best trial; 0 is today's.
    pub best: usize,
    /// By what.
    pub measure: &'static str,
    /// Thousandths that it is ahead of today.
    pub margin_permille: u64,
    /// It is worth something.
    pub matters: bool,
    /// All of that in sentences.
    pub sentences: Vec<String>,
}

/// The first trial is today's; without another there is nothing to advise.
pub fn advise(jobs: &[Job], trials: &[Trial]) -> Option<Advice> {
    let measure = Measure::of(jobs);
    let today = trials.first().filter(|_| trials.len() > 1)?;
    let fine = |trial: &Trial| !matches!(trial.outcome.stop, Stop::Failed(_) | Stop::Stuck);
    let counts = answered(&trials.iter().map(|trial| &trial.outcome).collect::<Vec<_>>());
    let value = |trial: &Trial| measure.value(&trial.outcome, &counts);
    let mut best = 0;
    for (i, trial) in trials.iter().enumerate().skip(1).filter(|(_, trial)| fine(trial)) {
        if !fine(&trials[best]) || measure.is_better(value(trial), value(&trials[best])) {
            best = i;
        }
    }
    let winner = &trials[best];
    let (a, b) = (value(today), value(winner));
    let margin_permille = margin(a.min(b), a.max(b));
    let noise = today.spread_permille.max(winner.spread_permille);
    let is_apart = margin_permille >= noise || is_ahead_with_each_seed(measure, today, winner, a);
    let matters = best > 0 && margin_permille >= MARGIN_MIN && is_apart;
    let mut sentences = vec![verdict(best, winner, measure, margin_permille, matters, noise)];
    sentences.extend(reservations(best, today, winner, measure));
    let is_same = |trial: &&Trial| trial.outcome.hash == today.outcome.hash && trial.by_seed == today.by_seed;
    let same: Vec<&str> = trials[1..].iter().filter(is_same).map(|trial| trial.name.as_str()).collect();
    if !same.is_empty() {
        sentences.push(format!("Changes nothing here, to the last command: {}.", same.join(", ")));
    }
    let unseen = today.outcome.jobs.iter().zip(&counts).filter(|(_, counts)| !**counts);
    let unseen: Vec<&str> = unseen.map(|(job, _)| job.name.as_str()).collect();
    if !unseen.is_empty() && unseen.len() < counts.len() {
        sentences.push(format!("Not weighed, as not every run came to it: {}.", unseen.join(", ")));
    }
    Some(Advice { best, measure: measure.name(), margin_permille, matters, sentences })
}

/// Runs of today may differ by more than the gain, as where one in three meets no queue; yet no run of the variant is behind the same
/// seed's of today, and the last of them is ahead of today's middle.
fn is_ahead_with_each_seed(measure: Measure, today: &Trial, winner: &Trial, middle: u64) -> bool {
    let is_ahead = |run: u64| measure.is_better(run, middle) && margin(run.min(middle), run.max(middle)) >= MARGIN_MIN;
    let pairs = today.by_seed.iter().zip(&winner.by_seed);
    winner.by_seed.len() > 1
        && winner.by_seed.iter().all(|&run| is_ahead(run))
        && pairs.into_iter().all(|(&before, &run)| !measure.is_better(before, run))
}

fn verdict(best: usize, winner: &Trial, measure: Measure, margin: u64, matters: bool, noise: u64) -> String {
    let percent = |permille: u64| format!("{}.{} %", permille / 10, permille % 10);
    let gain = match measure {
        Measure::Throughput if margin >= 1000 => {
            format!("{}.{} times the throughput", 1 + margin / 1000, margin % 1000 / 100)
        }
        Measure::Throughput => format!("{} more throughput", percent(margin)),
        Measure::P99 if margin >= 1000 => {
            format!("a p99 that is {}.{} times shorter", 1 + margin / 1000, margin % 1000 / 100)
        }
        Measure::P99 => format!("a p99 that is better by {}", percent(margin)),
    };
    match (best, matters) {
        (0, _) => "Leave it as it is: no variant is faster than today.".into(),
        (_, true) if margin >= 1000 && measure == Measure::Throughput => {
            format!("Take {}: {gain} of today.", winner.name)
        }
        (_, true) => format!("Take {}: {gain} than today.", winner.name),
        (_, false) if margin < MARGIN_MIN => {
            format!("Leave it as it is: {} comes first, but {gain} is too small to matter.", winner.name)
        }
        _ => format!(
            "Leave it as it is: {} comes first with {gain}, but runs differ by {} from seed to seed.",
            winner.name,
            percent(noise)
        ),
    }
}

/// What speaks against the winner.
fn reservations(best: usize, today: &Trial, winner: &Trial, measure: Measure) -> Vec<String> {
    let mut found = Vec::new();
    if best == 0 {
        return found;
    }
    let p99 = |trial: &Trial| trial.outcome.all.data().latency.quantile_ns(990);
    if measure == Measure::Throughput && p99(winner) > p99(today) * 3 / 2 {
        found.push("Its p99 is more than half as long again as today's.".into());
    }
    let survives = |setup: &Setup| {
        let failures = |profile: Profile| profile.facts().tolerated_failures;
        failures(setup.data).min(failures(setup.metadata))
    };
    if survives(&winner.setup) < survives(&today.setup) {
        found.push(format!(
            "It survives the loss of {} devices; today's pool survives {}.",
            survives(&winner.setup),
            survives(&today.setup)
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::outcome::JobOutcome;
    use super::*;

    /// Two jobs one after the other. The variant does the first, random one at half the pace, and so is cut later in the
    /// second, which is a hundred times quicker: of all bytes in all time it has more.
    #[test]
    fn more_time_in_the_quickest_job_is_no_gain() {
        let job = |bytes: u64, seconds: u64| {
            let mut job = JobOutcome::new("j");
            (job.sides[0].ios, job.sides[0].bytes, job.runtime_ns) = (1, bytes, seconds * 1_000_000_000);
            job
        };
        let pool = "data='single'\n[[device]]\nclass='hdd'\nsize='1T'";
        let setup = pool_file::PoolFile::parse(pool).and_then(|pool| pool.setup()).expect("a pool");
        let blank = run::run(&setup, &[], 1).expect("an empty run");
        let trial = |name: &str, jobs: Vec<JobOutcome>| {
            let mut all = job(0, 0);
            jobs.iter().for_each(|job| {
                all.sides[0].bytes += job.sides[0].bytes;
                all.runtime_ns += job.runtime_ns;
            });
            let hash = name.bytes().map(u64::from).sum();
            let outcome = Outcome { jobs, all, hash, ..blank.clone() };
            Trial { name: name.into(), setup: setup.clone(), outcome, spread_permille: 0, by_seed: Vec::new() }
        };
        let today = trial("today", vec![job(20 << 20, 10), job(1000 << 20, 5)]);
        let slow = trial("slow", vec![job(10 << 20, 10), job(4000 << 20, 20)]);
        let advice = advise(&[Job::default()], &[today.clone(), slow]).expect("advice");
        assert_eq!((advice.best, &*advice.sentences[0]), (0, "Leave it as it is: no variant is faster than today."));
        let quick = trial("quick", vec![job(40 << 20, 10), job(1000 << 20, 5)]);
        let advice = advise(&[Job::default()], &[today.clone(), quick]).expect("advice");
        assert_eq!(advice.sentences, ["Take quick: 41.4 % more throughput than today."]);
        let cut = trial("cut", vec![job(40 << 20, 10), JobOutcome::new("backup")]);
        let advice = advise(&[Job::default()], &[today.clone(), cut]).expect("advice");
        let [other, same] = [today.clone(), today.clone()].map(|trial| Trial { name: "other".into(), ..trial });
        let other = Trial { outcome: Outcome { hash: 1, ..other.outcome }, ..other };
        let sentences = |trial: Trial| advise(&[Job::default()], &[today.clone(), trial]).expect("advice").sentences;
        assert_eq!(
            (sentences(other).len(), &sentences(same)[1][..]),
            (1, "Changes nothing here, to the last command: other.")
        );
        assert!(advice.sentences[1].starts_with("Not weighed, as not every run came to it: j."), "{advice:?}");
    }

    /// One seed in three of today's meets no queue: its p99 is that of the variant, and the others' is a thousand times longer.
    #[test]
    fn a_variant_that_no_seed_speaks_against_is_taken() {
        let pool = "data='single'\n[[device]]\nclass='hdd'\nsize='1T'";
        let setup = pool_file::PoolFile::parse(pool).and_then(|pool| pool.setup()).expect("a pool");
        let outcome = run::run(&setup, &[], 1).expect("an empty run");
        let trial = |by_seed: [u64; 3]| {
            let (setup, spread_permille) = (setup.clone(), 999_000);
            Trial { name: String::new(), setup, outcome: outcome.clone(), spread_permille, by_seed: by_seed.into() }
        };
        let today = trial([115, 123_000, 114_000]);
        for (by_seed, is_taken) in [
            ([114, 113, 116], true),
            ([116, 113, 116], false),
            ([114, 123_000, 116], false),
            ([114, 113, 112_000], false),
        ] {
            let found = is_ahead_with_each_seed(Measure::P99, &today, &trial(by_seed), 114_000);
            assert_eq!(found, is_taken, "{by_seed:?}");
        }
    }

    #[test]
    fn changes_are_read_and_applied_in_order() {
        let pool = "data='raid1'\n[[device]]\nclass='hdd'\nsize='1T'\ncount=2";
        let setup = pool_file::PoolFile::parse(pool).and_then(|pool| pool.setup()).expect("a pool");
        let text = "read_policy=pid  read_policy=latency replace:hdd=ssd add:nvme:2T profile=raid1c3";
        let changed = Variant::parse(text).and_then(|variant| variant.of(&setup)).expect("a variant");
        let classes: Vec<_> = changed.members.iter().map(|m| (m.class.as_str(), m.rotational, m.size >> 40)).collect();
        assert_eq!(classes, [("ssd", false, 1), ("ssd", false, 1), ("nvme", false, 2)]);
        let settings =
            [("checksum", "crc32c"), ("read_policy", "latency")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(changed.settings, settings, "the last word counts");
        assert_eq!(changed.data, Profile::Raid1c3);
        for (text, wanted) in [
            ("", "at least one change"),
            ("faster", "is no change"),
            ("add:ssd:much", "\"much\" is no size"),
            ("add:nvme:999999P", "\"999999P\" is more than any device has, 64 PiB at most"),
            ("profile=raid9", "there are single"),
        ] {
            assert!(Variant::parse(text).expect_err(text).contains(wanted), "{text}");
        }
        let missing = Variant::parse("replace:nvme=ssd").and_then(|variant| variant.of(&setup));
        assert!(missing.expect_err("there is none").contains("the pool has no device of class \"nvme\", only hdd"));
    }
}
