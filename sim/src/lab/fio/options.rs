//! What each option of a section means for its job.

use braid_core::names::nearest;

use super::Line;
use super::values::{bytes, flag, is_too_large, pair, time_ns};
use crate::lab::job::{Access, Direction, Job, SizeRange, Sizes, THREADS_MAX};

/// Options that change how fio asks or what it reports, not what it asks.
const WITHOUT_EFFECT: &str = "allow_file_create allow_mounted_write block_error_percentiles buffer_compress_chunk \
    buffer_compress_percentage buffer_pattern bwavgtime clat_percentiles clocksource continue_on_error cpumask cpus_allowed \
    cpus_allowed_policy create_fsync create_on_open create_only create_serialize dedupe_percentage description disable_bw \
    disable_bw_measurement disable_clat disable_lat disable_slat disk_util error_dump \
    fadvise_hint fallocate gtod_cpu gtod_reduce group_reporting hipri fixedbufs registerfiles sqthread_poll \
    nonvectored ignore_error invalidate iomem iopsavgtime lat_percentiles lockmem log_avg_msec log_hist_msec log_offset \
    log_unix_epoch max_latency mem mem_align nice new_group numa_cpu_nodes numa_mem_policy openfiles overwrite \
    per_job_logs percentile_list pre_read prio prioclass random_generator refill_buffers scramble_buffers \
    significant_figures slat_percentiles softrandommap stats thinktime_spin thread unified_rw_reporting unlink uniterror \
    unit_base userspace_reap write_bw_log write_hint write_hist_log write_iops_log write_lat_log zero_buffers directory \
    do_verify file_service_type";

/// Options that are carried out, for whoever wrote another.
const CARRIED_OUT: &str = "rw bs bsrange bssplit size filesize io_size offset offset_increment numjobs iodepth iodepth_batch \
    iodepth_batch_complete_min iodepth_low rwmixread rwmixwrite rate rate_iops thinktime thinktime_blocks runtime time_based \
    ramp_time startdelay loops stonewall fsync fdatasync end_fsync sync norandommap randseed filename name ioengine kb_base \
    direct";

/// Options that change what is asked in a way that a run does not follow.
const REFUSED: &str = "verify verify_backlog read_iolog write_iolog replay_no_stall replay_redirect zonemode zonesize \
    zonerange zoneskip random_distribution percentage_random rw_sequencer latency_target latency_window flow flow_id \
    steadystate trim_percentage trim_backlog experimental_verify bs_unaligned ba blockalign bsalign number_ios fill_device \
    sync_file_range write_barrier rate_min rate_iops_min io_submit_mode profile wait_for exec_prerun exec_postrun \
    opendir offset_align rate_process thinktime_iotime rate_ignore_thinktime file_append nrfiles exitall exitall_on_error exit_what";

/// What those of them say that changes nothing.
const NEUTRAL: &[(&str, &str)] = &[
    ("nrfiles", "1"),
    ("random_distribution", "random"),
    ("percentage_random", "100"),
    ("verify", "0"),
    ("verify", "none"),
    ("verify_backlog", "0"),
    ("experimental_verify", "0"),
    ("zonemode", "none"),
    ("zonesize", "0"),
    ("zonerange", "0"),
    ("zoneskip", "0"),
    ("latency_target", "0"),
    ("flow", "0"),
    ("trim_percentage", "0"),
    ("trim_backlog", "0"),
    ("bs_unaligned", "0"),
    ("number_ios", "0"),
    ("fill_device", "0"),
    ("sync_file_range", "0"),
    ("write_barrier", "0"),
    ("rate_min", "0"),
    ("rate_iops_min", "0"),
    ("rate_process", "linear"),
    ("rate_ignore_thinktime", "0"),
    ("thinktime_iotime", "0"),
    ("io_submit_mode", "inline"),
    ("file_append", "0"),
    ("exitall", "0"),
    ("exitall_on_error", "0"),
    ("replay_no_stall", "0"),
];

/// Engines of fio that ask one at a time, whatever iodepth says.
const SYNCHRONOUS: &[&str] = &["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];
/// Engines that keep iodepth.
const ASYNCHRONOUS: &[&str] =
    &["libaio", "io_uring", "io_uring_cmd", "posixaio", "solarisaio", "windowsaio", "null", "nbd", "rbd", "sg"];

/// Longest time that is taken: sums of a few of them stay far from where numbers end.
const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// A section on its way to a job.
pub(super) struct Draft {
    job: Job,
    section: String,
    filename: Option<String>,
    kb_base: u64,
    engine: String,
    /// Of a job that does both: reads of a hundred.
    mix: Option<u64>,
    is_mixed: bool,
    file_size: Option<u64>,
    notes: Vec<String>,
    ignored: Vec<String>,
}

impl Draft {
    pub(super) fn new(section: &str) -> Draft {
        Draft {
            job: Job { name: section.into(), ..Job::default() },
            section: section.into(),
            filename: None,
            kb_base: 1024,
            engine: "psync".into(),
            mix: None,
            is_mixed: false,
            file_size: None,
            notes: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Takes in one line.
    pub(super) fn set(&mut self, line: &Line) -> Result<(), String> {
        let Line { number, name, value } = line;
        match self.apply(name, value) {
            Some(Ok(())) => Ok(()),
            Some(Err(wanted)) => Err(format!("line {number}: {name}={value} is not understood; {wanted}")),
            None if NEUTRAL.contains(&(&**name, &**value)) => Ok(()),
            None if WITHOUT_EFFECT.split_whitespace().any(|known| known == name) => {
                self.ignored.push(name.clone());
                Ok(())
            }
            None if REFUSED.split_whitespace().any(|known| known == name) => Err(format!(
                "line {number}: {name} changes what is asked in a way that the laboratory does not follow; leave it out"
            )),
            None => {
                let known: Vec<&str> =
                    WITHOUT_EFFECT.split_whitespace().chain(CARRIED_OUT.split_whitespace()).collect();
                let near = nearest(name, &known).map_or(String::new(), |near| format!("; you may mean {near}"));
                Err(format!("line {number}: no option {name:?} is known{near}; these are carried out: {CARRIED_OUT}"))
            }
        }
    }

    /// What the section asks for, and what of it has no effect.
    pub(super) fn job(&self) -> Result<(Job, Vec<String>), String> {
        let (mut job, mut notes) = (self.job.clone(), self.notes.clone());
        if SYNCHRONOUS.contains(&&*self.engine) && job.depth > 1 {
            notes.push(format!(
                "job {}: ioengine={} asks one at a time, so iodepth={} has no effect, as in fio; libaio and io_uring \
                 keep it",
                job.name, self.engine, job.depth
            ));
            job.depth = 1;
        }
        if self.is_mixed {
            job.reads = self.mix.unwrap_or(50);
        }
        job.size = job.size.or(self.file_size);
        job.batch = job.batch.min(job.depth);
        job.reap = job.reap.clamp(1, job.depth);
        if self.filename.is_none() {
            let Some(size) = job.size else {
                return Err(format!("job {}: it needs a size or a filename", job.name));
            };
            // Without a name each thread has a file of its own.
            let step = job.offset_step.checked_add(size);
            job.offset_step =
                step.ok_or_else(|| format!("job {}: offset_increment and size are too large together", job.name))?;
        }
        if job.time_based && job.runtime_ns.is_none() {
            return Err(format!("job {}: time_based needs a runtime", job.name));
        }
        if !self.ignored.is_empty() {
            notes.push(format!("accepted, without effect here: {}", self.ignored.join(", ")));
        }
        Ok((job, notes))
    }

    /// What the job touches.
    pub(super) fn target(&self) -> String {
        self.filename.clone().unwrap_or_else(|| self.section.clone())
    }

    /// None for a name that is not carried out; else what was wanted in place of the value.
    fn apply(&mut self, name: &str, value: &str) -> Option<Result<(), &'static str>> {
        Some(match name {
            "name" => self.take(Some(value.to_string()), "a name", |job, name| job.name = name),
            "rw" | "readwrite" => return Some(self.rw(value)),
            "bs" | "blocksize" | "bsrange" | "blocksize_range" => return Some(self.sizes(value)),
            "bssplit" => return Some(self.split(value)),
            "ioengine" => return Some(self.engine(value)),
            "filename" if value.contains(':') => Err("one file a job"),
            "filename" => {
                self.filename = Some(value.into());
                Ok(())
            }
            "kb_base" => match value {
                "1000" | "1024" => {
                    self.kb_base = value.parse().expect("one of two");
                    Ok(())
                }
                _ => Err("it is 1000 or 1024"),
            },
            "direct" | "buffered" => match flag(value) {
                Some(on) => {
                    if on != (name == "direct") {
                        self.notes.push("buffered I/O is asked as direct I/O: there is no page cache here".into());
                    }
                    Ok(())
                }
                None => Err("it is 0 or 1"),
            },
            "rate" | "rate_iops" => return Some(self.rates(name, value)),
            "sync" => match value {
                "0" | "none" => Ok(()),
                "1" | "sync" | "dsync" => {
                    self.job.fua = true;
                    Ok(())
                }
                _ => Err("it is none, sync or dsync"),
            },
            "rwmixread" | "rwmixwrite" => {
                let share = value.parse().ok().filter(|share| *share <= 100);
                self.mix = share.map(|share: u64| if name == "rwmixread" { share } else { 100 - share });
                self.take(share, "a share of 0 to 100", |_, _| ())
            }
            _ => return self.number(name, value),
        })
    }

    /// Options that are one number, one time or one switch.
    fn number(&mut self, name: &str, value: &str) -> Option<Result<(), &'static str>> {
        const COUNT: &str = "a number of 1 or more";
        const THREADS: &str = "a number of 1 to 4096";
        const SIZE: &str = "a size such as 4k or 1g (of percentages only size=100% is supported)";
        const TOO_LARGE: &str = "a size is below 16 EiB, where numbers of 64 bits end";
        const SECONDS: &str = "a time such as 30, 30s or 5m, at most a year";
        let kb_base = self.kb_base;
        let count = || value.parse::<u64>().ok().filter(|n| *n > 0);
        let size = || bytes(value, kb_base).filter(|n| *n > 0);
        let seconds = || time_ns(value, 1_000_000_000).filter(|ns| *ns <= YEAR_NS);
        let micros = || time_ns(value, 1_000).filter(|ns| *ns <= YEAR_NS);
        let on = || flag(value);
        const SWITCH: &str = "it is 0 or 1";
        let takes_size = ["size", "filesize", "io_size", "io_limit", "offset", "offset_increment"].contains(&name);
        if takes_size && is_too_large(value, kb_base) {
            return Some(Err(TOO_LARGE));
        }
        Some(match name {
            // As large as the file is.
            "size" if value == "100%" => self.take(Some(None), SIZE, |job, all| job.size = all),
            "io_size" | "io_limit" if value == "100%" => self.take(Some(None), SIZE, |job, all| job.io_size = all),
            "iodepth" => self.take(count(), COUNT, |job, n| job.depth = n),
            "iodepth_batch" | "iodepth_batch_submit" => self.take(count(), COUNT, |job, n| job.batch = n),
            "iodepth_batch_complete" | "iodepth_batch_complete_min" => {
                self.take(value.parse().ok(), "a number", |job, n: u64| job.reap = n.max(1))
            }
            // Whatever is back is looked at together.
            "iodepth_batch_complete_max" => self.take(count(), COUNT, |_, _| ()),
            "iodepth_low" => self.take(count(), COUNT, |job, n| job.depth_low = n),
            "numjobs" => self.take(count().filter(|n| *n <= THREADS_MAX), THREADS, |job, n| job.count = n),
            "loops" => self.take(count(), COUNT, |job, n| job.loops = n),
            "size" => self.take(size(), SIZE, |job, n| job.size = Some(n)),
            "filesize" => {
                self.file_size = size();
                self.take(size(), SIZE, |_, _| ())
            }
            "io_size" | "io_limit" => self.take(size(), SIZE, |job, n| job.io_size = Some(n)),
            "offset" => self.take(bytes(value, kb_base), SIZE, |job, n| job.offset = n),
            "offset_increment" => self.take(bytes(value, kb_base), SIZE, |job, n| job.offset_step = n),
            "runtime" | "timeout" => {
                self.take(seconds(), SECONDS, |job, ns| job.runtime_ns = Some(ns).filter(|n| *n > 0))
            }
            "ramp_time" => self.take(seconds(), SECONDS, |job, ns| job.ramp_ns = ns),
            "startdelay" => self.take(seconds(), SECONDS, |job, ns| job.start_ns = ns),
            "thinktime" => {
                self.take(micros(), "a time such as 100, 100us or 5ms, at most a year", |job, ns| job.think_ns = ns)
            }
            "thinktime_blocks" => self.take(count(), COUNT, |job, n| job.think_after = n),
            "fsync" | "fdatasync" => self.take(value.parse().ok(), "a number", |job, n| job.sync_every = n),
            "end_fsync" | "fsync_on_close" => self.take(on(), SWITCH, |job, on| job.sync_last = on),
            "time_based" => self.take(on(), SWITCH, |job, on| job.time_based = on),
            "norandommap" => self.take(on(), SWITCH, |job, on| job.each_once = !on),
            "stonewall" | "wait_for_previous" => self.take(on(), SWITCH, |job, on| job.stage = u32::from(on)),
            "randseed" => self.take(value.parse().ok(), "a number", |job, seed| job.seed = seed),
            "randrepeat" | "allrandrepeat" => {
                self.note("a run always repeats: its seed is one of its inputs, whatever randrepeat says");
                self.take(on(), SWITCH, |_, _| ())
            }
            _ => return None,
        })
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.into());
    }

    fn take<T>(
        &mut self,
        value: Option<T>,
        wanted: &'static str,
        set: impl FnOnce(&mut Job, T),
    ) -> Result<(), &'static str> {
        set(&mut self.job, value.ok_or(wanted)?);
        Ok(())
    }

    fn rw(&mut self, value: &str) -> Result<(), &'static str> {
        const KNOWN: &str = "it is read, write, rw, randread, randwrite, randrw, trim or randtrim";
        let (word, run) = value.split_once(':').unwrap_or((value, "1"));
        let (access, reads, changes) = match word {
            "read" => (Access::Sequential, 100, Direction::Write),
            "write" => (Access::Sequential, 0, Direction::Write),
            "rw" | "readwrite" => (Access::Sequential, 50, Direction::Write),
            "randread" => (Access::Random, 100, Direction::Write),
            "randwrite" => (Access::Random, 0, Direction::Write),
            "randrw" => (Access::Random, 50, Direction::Write),
            "trim" => (Access::Sequential, 0, Direction::Trim),
            "randtrim" => (Access::Random, 0, Direction::Trim),
            _ => return Err(KNOWN),
        };
        let run = run.parse().ok().filter(|run| *run > 0).ok_or("behind the colon is a number")?;
        if run > 1 && access == Access::Sequential {
            return Err("sequential jobs with gaps are not supported");
        }
        let job = &mut self.job;
        (job.access, job.changes, job.run, job.reads) = (access, changes, run, reads);
        self.is_mixed = reads == 50;
        Ok(())
    }

    fn sizes(&mut self, value: &str) -> Result<(), &'static str> {
        let kb_base = self.kb_base;
        let one = |word: &str| {
            let (min, max) = word.split_once('-').unwrap_or((word, word));
            Some((bytes(min, kb_base)?, bytes(max, kb_base)?))
        };
        let sides = pair(value, one).ok_or("sizes are such as 4k, 4k-64k or 4k,64k")?;
        let is_whole = |(min, max): (u64, u64)| min.is_multiple_of(512) && max.is_multiple_of(512);
        if value.to_lowercase().contains("ib") && !sides.iter().flatten().copied().all(is_whole) {
            return Err(
                "fio takes KiB for 1000 bytes here (see its kb_base), and requests are multiples of 512: write 4k",
            );
        }
        for (mine, side) in self.job.sizes.iter_mut().zip(sides) {
            if let Some((min, max)) = side {
                *mine = Sizes::between(min, max);
            }
        }
        Ok(())
    }

    /// `4k/10:64k/90`, for reads and writes or one after a comma each; shares that are not said are equal parts of the
    /// rest.
    fn split(&mut self, value: &str) -> Result<(), &'static str> {
        const WANTED: &str = "a split is such as 4k/10:64k/90, with shares that add up to 100";
        let sides: Vec<&str> = value.split(',').collect();
        for (i, mine) in self.job.sizes.iter_mut().enumerate() {
            let side = sides.get(i).or(sides.last()).ok_or(WANTED)?;
            *mine = split_of(side, self.kb_base).ok_or(WANTED)?;
        }
        Ok(())
    }

    fn rates(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        let kb_base = self.kb_base;
        let rates = pair(value, |word| bytes(word, kb_base)).ok_or("a rate is such as 1m or 500k,1m")?;
        match name {
            "rate" => self.job.rate = rates,
            _ => self.job.rate_iops = rates,
        }
        Ok(())
    }

    fn engine(&mut self, value: &str) -> Result<(), &'static str> {
        let is_known = SYNCHRONOUS.contains(&value) || ASYNCHRONOUS.contains(&value);
        if !is_known {
            return Err("engines of block devices are psync, libaio, io_uring and their like");
        }
        self.engine = value.into();
        Ok(())
    }
}

fn split_of(side: &str, kb_base: u64) -> Option<Sizes> {
    let mut ranges = Vec::new();
    let mut open = Vec::new();
    for part in side.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let size = bytes(size, kb_base)?;
        if share.is_empty() {
            open.push(ranges.len());
        }
        let percent = if share.is_empty() { 0 } else { share.parse().ok()? };
        ranges.push(SizeRange { min: size, max: size, percent });
    }
    let rest = ranges.iter().try_fold(100u64, |rest, range| rest.checked_sub(range.percent))?;
    for (i, &at) in open.iter().enumerate() {
        let n = open.len() as u64;
        ranges[at].percent = rest / n + u64::from((i as u64) < rest % n);
    }
    (ranges.iter().map(|range| range.percent).sum::<u64>() == 100).then_some(Sizes(ranges))
}
