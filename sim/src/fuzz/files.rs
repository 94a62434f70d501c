//! Targets that users bring as files. What is taken is used as far as it is without a run: checked, measured, listed. Jobs
//! are run, up to a few answers.
//!
//! The corpora are in `corpus/`, a folder each: files as people and programs write them, and damaged ones named by what is
//! wrong with them.

use std::sync::Arc;

use braid_core::control::VolumeClass;

use super::{Named, Sample, Target, change};
use crate::device::{Model, fio};
use crate::lab::fio as job_file;
use crate::lab::pool_file::PoolFile;
use crate::lab::script::Work;
use crate::lab::trace::Trace;
use crate::lab::{Fill, Job, Setup, Volume, run};
use crate::swarm::{Scenario, draw};

/// Most memory for one file, with what is read out of it: a line of a few bytes is at most some hundred of a value.
const MEMORY: usize = 32 << 20;
/// Jobs that ask for more at once are not run: what they take is what they say.
const UNDER_WAY_MAX: u64 = 1024;
/// A volume for jobs that take one as large as it is.
const VOLUME: u64 = 4 << 30;

/// Files of a folder of the corpus, by name.
macro_rules! files {
    ($folder:literal: fine [$($fine:literal),*] damaged [$($damaged:literal),*]) => {
        vec![
            $(Sample::fine($fine, include_bytes!(concat!("../../corpus/", $folder, "/", $fine))),)*
            $(Sample::damaged($damaged, include_bytes!(concat!("../../corpus/", $folder, "/", $damaged))),)*
        ]
    };
}

pub(super) const TARGETS: &[Named] = &[
    ("job", || of_files("job", "a job file of fio", jobs(), job)),
    ("trace", || of_files("trace", "a trace of blkparse or of braid", traces(), trace)),
    ("model", || {
        of_files("model", "a model of a device", models(), |text| Model::parse(text).map(|m| drop(m.to_toml())))
    }),
    ("pool", || of_files("pool", "a pool in words", pools(), pool)),
    ("measurement", || {
        let read = |text: &str| fio::from_fio(text).map(drop);
        of_files("measurement", "the output of fio --output-format=json", measurements(), read)
    }),
    ("scenario", || {
        let read = |text: &str| Scenario::parse(text).map(|scenario| drop(scenario.to_text()));
        of_files("scenario", "a scenario of the swarm", scenarios(), read)
    }),
];

fn of_files(
    name: &'static str,
    about: &'static str,
    corpus: Vec<Sample>,
    read: fn(&str) -> Result<(), String>,
) -> Target {
    Target {
        name,
        about,
        corpus,
        change: change::text,
        // Whoever reads a file refuses what is not text before it gets here.
        run: Box::new(move |bytes| Ok(std::str::from_utf8(bytes).is_ok_and(|text| read(text).is_ok()))),
        memory: MEMORY,
    }
}

fn jobs() -> Vec<Sample> {
    files!("job":
        fine ["home.fio", "every-kind-of-option.fio"]
        damaged ["a-section-without-its-bracket.fio", "a-step-and-a-size-past-all-numbers.fio", "a-variable.fio", "empty.fio",
            "shares-past-all-numbers.fio", "the-end-of-a-file-past-all-numbers.fio", "threads-past-all-numbers.fio",
            "threads-times-steps-past-all-numbers.fio", "three-hundred-shares.fio"])
}

fn traces() -> Vec<Sample> {
    files!("trace":
        fine ["blkparse.txt", "flushes.txt", "recorded.trace", "recorded-of-a-pool.trace",
            "the-recorder-was-killed.trace"]
        damaged ["a-later-version.trace", "a-length-past-all-numbers.trace", "a-place-past-all-numbers.trace",
            "a-time-past-all-numbers.txt", "sectors-past-all-numbers.txt"])
}

fn models() -> Vec<Sample> {
    let shipped =
        |name: &'static str| Sample::fine(name, Model::shipped(name).expect("it comes with the crate").to_toml());
    let damaged = files!("model":
        fine []
        damaged ["a-bus-without-a-name.toml", "a-kind-that-is-none.toml", "a-number-out-of-range.toml",
            "two-hundred-arrays-deep.toml"]);
    Model::shipped_names().into_iter().map(shipped).chain(damaged).collect()
}

fn pools() -> Vec<Sample> {
    files!("pool":
        fine ["box.toml"]
        damaged ["a-setting-two-hundred-arrays-deep.toml", "a-size-past-all-numbers.toml", "devices-past-all-numbers.toml",
            "more-devices-than-any-pool-has.toml", "no-device.toml"])
}

fn measurements() -> Vec<Sample> {
    files!("measurement":
        fine ["fio-3.33.json", "depth-times-threads-past-all-numbers.json", "sums-past-all-numbers.json"]
        damaged ["five-hundred-objects-deep.json"])
}

fn scenarios() -> Vec<Sample> {
    let drawn = [("drawn-from-1", 1), ("drawn-from-2", 2)];
    let fine = drawn.map(|(name, seed)| Sample::fine(name, draw::scenario(seed).to_text()));
    let short = [("the-beginning-of-3", 3), ("the-beginning-of-4", 4)];
    let short = short.map(|(name, seed)| Sample::fine(name, beginning(draw::scenario(seed)).to_text()));
    let deep = Sample::damaged("five-hundred-arrays-deep", "[".repeat(500));
    fine.into_iter().chain(short).chain([deep]).collect()
}

/// A scenario of some lines: a change of it is more often one of what is rare in long ones.
fn beginning(mut scenario: Scenario) -> Scenario {
    scenario.lives.truncate(1);
    for life in &mut scenario.lives {
        life.steps.truncate(6);
        life.faults.truncate(2);
    }
    scenario
}

fn job(text: &str) -> Result<(), String> {
    let file = job_file::parse(text)?;
    let volumes: Vec<u64> = file.targets.iter().map(|target| target.bytes.unwrap_or(VOLUME)).collect();
    for job in &file.jobs {
        job.check(&volumes)?;
        job.regions(volumes[job.volume]);
    }
    let under_way = file.jobs.iter().map(|job| job.count.saturating_mul(job.depth)).fold(0, u64::saturating_add);
    if under_way <= UNDER_WAY_MAX {
        // Whether it fits the pool is another question; here it has to end.
        drop(run(&small(&volumes)?, &file.jobs, 1));
    }
    Ok(())
}

/// A pool on which a run ends after a few answers, and holds nothing before.
fn small(volumes: &[u64]) -> Result<Setup, String> {
    let setup = PoolFile::parse("data = 'single'\n[[device]]\nclass = 'nvme'\nsize = '1G'")?.setup()?;
    let volume =
        |(i, &size): (usize, &u64)| Volume { name: format!("v{i}"), size, class: VolumeClass::Auto, checksum: true };
    let volumes = volumes.iter().enumerate().map(volume).collect();
    Ok(Setup { volumes, fill: Fill::Nothing, limit_ns: 30_000_000_000, limit_ios: 20, ..setup })
}

fn trace(text: &str) -> Result<(), String> {
    let trace = Trace::parse(text)?;
    for (_, trace) in trace.by_volume() {
        let (size, _) = (trace.bytes_needed(), trace.duration_ns());
        let job = Job { work: Some(Work::Trace(Arc::new(trace))), ..Job::default() };
        job.check(&[size])?;
    }
    Ok(())
}

fn pool(text: &str) -> Result<(), String> {
    let pool = PoolFile::parse(text)?.one_by_one()?;
    // A model by its path is a file of this machine: it says nothing of the reader.
    match pool.devices.iter().any(|device| device.model.as_ref().is_some_and(|word| word.contains(['.', '/']))) {
        true => Ok(()),
        false => pool.setup().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_corpus_is_used() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("the corpus").flatten() {
            let kind = entry.file_name().into_string().expect("text");
            let files = std::fs::read_dir(entry.path()).expect("a folder of it").flatten();
            there.extend(files.map(|file| (kind.clone(), file.file_name().into_string().expect("text"))));
        }
        let used: BTreeSet<_> = TARGETS
            .iter()
            .map(|(_, make)| make())
            .flat_map(|Target { name, corpus, .. }| corpus.into_iter().map(|s| (name.to_string(), s.name.to_string())))
            .filter(|(_, name)| name.contains('.'))
            .collect();
        assert_eq!(there, used);
    }
}
