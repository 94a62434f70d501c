//! Work of one size, for an instruction counter: `scale requests|first-writes|assemble|volume SIZE`.
//!
//! `valgrind --tool=cachegrind --cache-sim=no` counts all of the run, the making of the pool included; what grows shows in
//! the functions it lists.

use braid_sim::scale;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, size] = args.as_slice() else {
        eprintln!("scale requests|first-writes|assemble|volume SIZE");
        std::process::exit(2);
    };
    let size: usize = size.parse().expect("a number of devices, or of TiB");
    match what.as_str() {
        "requests" => println!("{:?} ns: read, overwrite, plan of a rebuild", scale::requests_on(size, 1)),
        "first-writes" => println!("{:?} ns: with room, with a new chunk", scale::first_writes_on(size, 1)),
        "assemble" => println!("{} ns", scale::assemble(size, 1)),
        _ => println!("{:?}: ns of a read and an overwrite, bytes a leaf", scale::scattered((size as u64) << 40, 1)),
    }
}
