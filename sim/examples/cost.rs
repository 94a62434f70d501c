//! What a request costs the engine: `cost PROFILE LOAD REQUESTS DEPTH [PROPERTY=VALUE..]`, where LOAD is `read` or `write`
//! at random places, or `scan`, reads one after the other.
//!
//! For instructions rather than ns, count those of two runs and divide the difference by that of the requests:
//!
//! ```text
//!   valgrind --tool=cachegrind --cache-sim=no ...     slow and exact; or
//!   perf stat -e instructions:u ...                  where the machine allows it
//! ```

use braid_core::Profile;
use braid_core::request::Op;
use braid_sim::cost::Bench;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [profile, load, requests, depth, settings @ ..] = args.as_slice() else {
        eprintln!("cost PROFILE read|write|scan REQUESTS DEPTH [PROPERTY=VALUE..]");
        std::process::exit(2);
    };
    let profile = Profile::ALL.into_iter().find(|known| known.name() == profile).expect("a profile");
    let (requests, depth): (u64, u64) = (requests.parse().expect("a number"), depth.parse().expect("a number"));
    let split = |word: &String| word.split_once('=').map(|(n, v)| (n.to_string(), v.to_string())).expect("name=value");
    let (mut bench, _) = Bench::new(profile, &settings.iter().map(split).collect::<Vec<_>>());
    let ns = match load.as_str() {
        "read" => bench.random(Op::Read, requests, depth),
        "write" => bench.random(Op::Write { fua: false }, requests, depth),
        "scan" => bench.sequential(Op::Read, requests, depth),
        other => panic!("no load is called {other:?}"),
    };
    println!("{} ns a request", ns.checked_div(requests).unwrap_or(0));
}
