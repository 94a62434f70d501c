//! What a read and an overwrite of 4 KiB cost the engine of a pool of so many devices: `requests DEVICES READS WRITES`, for instance
//! `requests 1000 100000 0`. A pool is raid10 of NVMe, and all that its disks do is answer, as for `braid lab scale`.
//!
//! For instructions rather than time, count those of two runs and divide the difference by that of the requests:
//!
//! ```text
//!   valgrind --tool=callgrind requests 1000 10000 0
//! ```

use braid_core::request::Op;
use braid_sim::scale::Requests;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| args.get(at).map_or(usual, |word| word.parse().expect("a number"));
    let (devices, reads, writes) = (number(0, 10) as usize, number(1, 100_000), number(2, 100_000));
    let mut requests = Requests::on(devices, 1);
    for (what, op, count) in [("read", Op::Read, reads), ("overwrite", Op::Write { fua: false }, writes)] {
        if count > 0 {
            println!("{devices} devices: {what} {:.0} ns", requests.ns_of(op, count));
        }
    }
}
