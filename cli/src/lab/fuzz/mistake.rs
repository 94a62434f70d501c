//! Targets that are wrong on purpose: each kind of failure there is has to be found.

use braid_host::control::api::ApiError;
use braid_sim::fuzz::Target;

/// What goes wrong.
type Mistake = fn();

const MISTAKES: &[(&str, Mistake)] = &[("panic", panics), ("memory", takes_all), ("endless", never_ends)];
/// One input in so many.
const EVERY: u64 = 32;

/// The mistake of this name.
pub(super) fn find(word: &str) -> Result<Mistake, ApiError> {
    let known: Vec<&str> = MISTAKES.iter().map(|(name, _)| *name).collect();
    let found = MISTAKES.iter().find(|(name, _)| *name == word).map(|(_, mistake)| *mistake);
    found.ok_or_else(|| {
        ApiError::usage("lab.fuzz", format!("there is no mistake '{word}'; there are {}", known.join(", ")))
    })
}

/// The same target, wrong for some inputs: always for the same ones.
pub(super) fn made(target: Target, mistake: Mistake) -> Target {
    let run = target.run;
    let wrong = move |input: &[u8]| {
        if digest(input).is_multiple_of(EVERY) {
            mistake();
        }
        run(input)
    };
    Target { run: Box::new(wrong), ..target }
}

/// FNV-1a.
fn digest(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn panics() {
    panic!("a panic on purpose");
}

/// What a length off a disk would do that nobody bounds: nothing is touched, it is only asked for. With what is in use already
/// it is more than a counter can count.
fn takes_all() {
    let in_use = std::hint::black_box(vec![1u8; 64]);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(isize::MAX as usize)));
    drop(in_use);
}

fn never_ends() {
    loop {
        std::hint::black_box(());
    }
}
