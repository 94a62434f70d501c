//! Whoever looks on while inputs are read, from a thread of its own: it shows progress, and it ends the process with the
//! input in hand when reading takes too long or too much memory. Neither can be ended from within.

use std::io::IsTerminal;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Fuzz, meter};
use crate::lab::PROGRESS;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Watch {
    pub(super) fuzz: Arc<Fuzz>,
    place: Arc<Place>,
}

/// Which input is being read.
#[derive(Default)]
struct Place {
    target: AtomicUsize,
    number: AtomicU64,
}

impl Watch {
    /// Looks on from here to the end of the process.
    pub(super) fn begin(fuzz: Fuzz) -> Watch {
        let watch = Watch { fuzz: Arc::new(fuzz), place: Arc::default() };
        let (fuzz, place) = (watch.fuzz.clone(), watch.place.clone());
        std::thread::spawn(move || look_on(&fuzz, &place));
        watch
    }

    /// This input is next.
    pub(super) fn now(&self, target: usize, number: u64) {
        self.place.target.store(target, Relaxed);
        self.place.number.store(number, Relaxed);
    }
}

fn look_on(fuzz: &Fuzz, place: &Place) {
    let somebody_looks = std::io::stderr().is_terminal();
    let (mut last, mut since, mut told) = ((0, 0), Instant::now(), Instant::now());
    loop {
        std::thread::sleep(LOOK);
        let now @ (at, number) = (place.target.load(Relaxed), place.number.load(Relaxed));
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let name = fuzz.targets[at].name;
        if meter::is_over() {
            let limit = fuzz.targets[at].memory >> 10;
            end(fuzz, now, &format!("it wants more than {limit} KiB of memory"));
        } else if since.elapsed() >= fuzz.patience {
            end(fuzz, now, &format!("it has not ended after {} s", fuzz.patience.as_secs()));
        } else if somebody_looks && told.elapsed() >= PROGRESS {
            told = Instant::now();
            eprint!("\r\x1b[K{name}: input {number}");
        }
    }
}

fn end(fuzz: &Fuzz, (at, number): (usize, u64), why: &str) -> ! {
    fuzz.tell(at, number, why);
    // Nobody else comes to it any more; what is left behind is empty sockets.
    let _ = std::fs::remove_dir_all(fuzz.folder.path());
    process::exit(1);
}
