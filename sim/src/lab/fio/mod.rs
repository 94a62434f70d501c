//! fio job files, read as fio 3 reads them.
//!
//! ```text
//!   [global]        options of all sections below it, until the next [global] says otherwise
//!   [name]          a job
//!   option=value    option alone means 1; ; and # begin a comment anywhere
//! ```
//!
//! An option belongs to one of three kinds: it changes what is asked (then it is carried out, or the file is refused), it
//! changes how fio asks or reports (then it is accepted and listed), or nobody knows it (then the file is refused). A
//! run never leaves out silently what would have changed it.
//!
//! Left out: `include`, `${VARIABLES}`, sizes in percent, several files a job.

mod options;
mod values;

use super::job::{Job, THREADS_MAX};

/// A file that jobs touch: a volume, in the laboratory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `filename`, or the job's name, as fio makes a file of its own for each job.
    pub name: String,
    /// Bytes that the jobs need of it; none when a job takes it as large as it is.
    pub bytes: Option<u64>,
}

/// What a job file says.
#[derive(Clone, Debug, Default)]
pub struct JobFile {
    /// Jobs, each with the index of its target as volume.
    pub jobs: Vec<Job>,
    /// What they touch.
    pub targets: Vec<Target>,
    /// What was accepted without effect, and why that is fine: a sentence each.
    pub notes: Vec<String>,
}

/// An option where it stands.
#[derive(Clone, Debug)]
struct Line {
    number: usize,
    name: String,
    value: String,
}

/// A job's section.
struct Section {
    name: String,
    /// So many options of the global sections stand before it.
    globals: usize,
    lines: Vec<Line>,
}

/// What a file is made of.
#[derive(Default)]
struct Sections {
    /// Options of all global sections.
    global: Vec<Line>,
    jobs: Vec<Section>,
}

/// Most jobs of a file: each takes in all options of the global sections before it, so that jobs times options is work.
pub const JOBS_MAX: usize = 1024;

const _: () = assert!(JOBS_MAX as u64 * THREADS_MAX < 1 << 32, "a thread has a number of 32 bits");

/// Reads one; what is wrong with it, in a sentence with the line.
pub fn parse(text: &str) -> Result<JobFile, String> {
    let mut file = JobFile::default();
    let (mut stage, mut threads) = (0, 0);
    let sections = sections(text)?;
    for section in &sections.jobs {
        let mut draft = options::Draft::new(&section.name);
        for line in sections.global.iter().take(section.globals).chain(&section.lines) {
            draft.set(line)?;
        }
        let (mut job, notes) = draft.job()?;
        if job.stage > 0 && !file.jobs.is_empty() {
            stage += 1;
        }
        job.stage = stage;
        job.client = threads;
        threads += job.count as u32;
        job.volume = target(&mut file.targets, draft.target(), &job)?;
        for note in notes {
            if !file.notes.contains(&note) {
                file.notes.push(note);
            }
        }
        file.jobs.push(job);
    }
    match file.jobs.is_empty() {
        true => Err("there is no job in the file: a job is a section such as [reader]".into()),
        false => Ok(file),
    }
}

/// The file, taken apart.
fn sections(text: &str) -> Result<Sections, String> {
    let Sections { mut global, mut jobs } = Sections::default();
    let mut is_global = true;
    for (i, line) in text.lines().enumerate() {
        let (number, line) = (i + 1, line.split([';', '#']).next().unwrap_or_default().trim());
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let Some(name) = name.strip_suffix(']') else {
                return Err(format!("line {number}: the section {line:?} lacks its closing bracket"));
            };
            is_global = name.trim() == "global";
            if !is_global {
                if jobs.len() == JOBS_MAX {
                    return Err(format!("line {number}: a file has at most {JOBS_MAX} jobs; make several files of it"));
                }
                jobs.push(Section { name: name.trim().into(), globals: global.len(), lines: Vec::new() });
            }
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, "1"));
        let (name, value) = (name.trim().to_lowercase(), value.trim().to_string());
        if name.split(' ').next() == Some("include") {
            return Err(format!("line {number}: include is not followed; put the options into this file"));
        }
        if value.contains("${") {
            return Err(format!("line {number}: variables such as {value} are not filled in; write the value"));
        }
        let line = Line { number, name, value };
        match jobs.last_mut() {
            Some(section) if !is_global => section.lines.push(line),
            None if !is_global => return Err(format!("line {number}: an option before the first section")),
            _ => global.push(line),
        }
    }
    Ok(Sections { global, jobs })
}

/// The index of a job's target, which is as large as its jobs need.
fn target(targets: &mut Vec<Target>, name: String, job: &Job) -> Result<usize, String> {
    let last = job.offset_step.checked_mul(job.count - 1).and_then(|steps| steps.checked_add(job.offset));
    let end = last.and_then(|last| last.checked_add(job.size.unwrap_or(0)));
    let end =
        end.ok_or_else(|| format!("job {}: offset, offset_increment and size are too large together", job.name))?;
    let bytes = job.size.map(|_| end);
    Ok(match targets.iter().position(|target| target.name == name) {
        Some(at) => {
            let known = &mut targets[at].bytes;
            *known = known.zip(bytes).map(|(a, b)| a.max(b));
            at
        }
        None => {
            targets.push(Target { name, bytes });
            targets.len() - 1
        }
    })
}

#[cfg(test)]
mod tests;
