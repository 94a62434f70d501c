//! Work of one size, for an instruction counter: `scale requests|first-writes|assemble|volume SIZE [REQUESTS]`.
//!
//! `valgrind --tool=cachegrind --cache-sim=no` counts all of the run, the making of the pool included: take the difference of
//! two runs with other numbers of requests (each is made three times as a read and three times as an overwrite).

use braid_sim::scale;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, size, requests @ ..] = args.as_slice() else {
        eprintln!("scale requests|first-writes|assemble|volume SIZE [REQUESTS]");
        std::process::exit(2);
    };
    let size: usize = size.parse().expect("a number of devices, or of TiB");
    let requests = requests.first().map_or(100_000, |n| n.parse().expect("a number"));
    match what.as_str() {
        "requests" => println!("{:?} ns: read, overwrite, plan of a rebuild", scale::requests_on(size, requests, 1)),
        "first-writes" => println!("{:?} ns: with room, with a new chunk", scale::first_writes_on(size, 1)),
        "assemble" => println!("{} ns", scale::assemble(size, 1)),
        _ => println!("{:?}: ns of a read and an overwrite, bytes a leaf", scale::scattered((size as u64) << 40, 1)),
    }
}
