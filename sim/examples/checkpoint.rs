//! What a checkpoint costs the engine of a pool with a TiB written here and there, by how many leaves of the map changed since the
//! last one. Nothing else is served while it is built; to send its pages to the disks is in the figure, too.

use braid_sim::scale::Checkpoints;

fn main() {
    let mut checkpoints = Checkpoints::of_a_tib(1);
    for changed in [1, 256, 4_096] {
        println!("{changed} leaves changed: {:.1} ms", checkpoints.ns_of(changed) / 1e6);
    }
}
