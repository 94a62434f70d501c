//! `braid lab faults`: every fault and every two of them, in every phase of every profile, and what has to come of it.

use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use braid_host::control::api::ApiError;
use braid_sim::matrix::{self, Case, Faults, Layout};
use serde_json::json;

use crate::args::FaultsFlags;
use crate::commands::{self, Outcome};

/// Failures that are told one by one.
const TOLD_MAX: usize = 20;

pub(super) fn faults(flags: &FaultsFlags, json: bool) -> Outcome {
    let cases = chosen(flags)?;
    // A case that fails says what was wrong by itself.
    panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let (trace, failures) = run_all(&cases, flags);
    let trace = format!("{trace:016x}");
    let seconds = begun.elapsed().as_secs_f64();
    let again = |case: &Case| format!("braid lab faults --case {case}");
    if json {
        let told =
            failures.iter().map(|(case, why)| json!({"case": case.to_string(), "why": why, "again": again(case)}));
        let value = json!({
            "schema": "lab.faults", "version": 1, "failed": !failures.is_empty(), "cases": cases.len(),
            "failures": told.collect::<Vec<_>>(), "seconds": seconds, "trace": trace,
        });
        commands::print(&format!("{value}\n"));
    } else if failures.is_empty() {
        commands::print(&format!("All well: {} cases, {seconds:.0} s, trace {trace}\n", cases.len()));
    } else {
        for (case, why) in failures.iter().take(TOLD_MAX) {
            commands::print(&format!("{case}: {why}\nAgain: {}\n", again(case)));
        }
        commands::print(&format!("{} of {} cases failed, {seconds:.0} s\n", failures.len(), cases.len()));
    }
    Ok(u8::from(!failures.is_empty()))
}

fn chosen(flags: &FaultsFlags) -> Result<Vec<Case>, ApiError> {
    if let Some(case) = &flags.case {
        return Ok(vec![case.parse().map_err(|why: String| ApiError::usage("lab.faults", why))?]);
    }
    if let Some(count) = flags.drawn {
        return Ok(matrix::drawn(count, flags.seed));
    }
    let is_meant = |name: &str| flags.profile.as_ref().is_none_or(|profile| profile == name);
    let layouts: Vec<_> = matrix::layouts().filter(|layout| is_meant(layout.profile.name())).collect();
    if layouts.is_empty() {
        let known: Vec<&str> = matrix::profiles().map(|profile| profile.name()).collect();
        let text = format!("there is no such profile here; there are {}", known.join(", "));
        return Err(ApiError::usage("lab.faults", text));
    }
    let kinds: &[Faults] = if flags.single { &[Faults::Single] } else { &[Faults::Single, Faults::Double] };
    let sampled = |layout: Layout, kind| match kind == Faults::Double && !layout.is_usual() {
        true => flags.sample.map_or(1, |n| n.get()),
        false => 1,
    };
    let of = |layout: Layout, kind| matrix::cases(layout, kind).into_iter().step_by(sampled(layout, kind));
    let all = layouts.iter().flat_map(|&layout| kinds.iter().flat_map(move |&kind| of(layout, kind)));
    Ok(all.collect())
}

/// On several threads: the traces of those that went well, whoever came first, and failures in the order of the cases.
fn run_all<'a>(cases: &'a [Case], flags: &FaultsFlags) -> (u64, Vec<(&'a Case, String)>) {
    let threads = flags.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, |n| n.get());
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let trace = AtomicU64::new(0);
    let work = || {
        let runner = matrix::Runner::default();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match runner.run(case, None) {
                Ok(hash) => _ = trace.fetch_add(hash, Ordering::Relaxed),
                Err(why) => failures.lock().expect("nobody panics with the lock").push((case, why)),
            }
        }
    };
    let so_far = || {
        let done = next.load(Ordering::Relaxed).min(cases.len());
        let failed = failures.lock().expect("nobody panics with the lock").len();
        format!("{done} of {} cases, {failed} failed", cases.len())
    };
    super::on_threads(threads, work, so_far);
    let mut failures = failures.into_inner().expect("nobody panics with the lock");
    failures.sort_by_key(|(case, _)| cases.iter().position(|other| other == *case));
    (trace.into_inner(), failures)
}
