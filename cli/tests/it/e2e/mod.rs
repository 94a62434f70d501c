//! The real binary under real input: every share, the tools that people use, and kill -9.

mod away;
mod interop;
mod killed;
mod killed_often;
mod life;
mod operator;
mod policies;
mod refused;
mod torture;

use crate::real::Real;
use std::fs::File;
use std::os::unix::fs::FileExt;

const KIB: u64 = 1 << 10;

const MIB: u64 = 1 << 20;

const GIB: u64 = 1 << 30;

const BLOCK: u64 = 4096;

/// Every eight bytes say their own position and the generation that wrote them.
fn stamp(buffer: &mut [u8], offset: u64, generation: u8) {
    for (i, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&((offset + 8 * i as u64) | (u64::from(generation) << 56)).to_le_bytes());
    }
}

/// What ought to be there: a generation a block, 0 for never written.
#[derive(Clone)]
struct Model(Vec<u8>);

impl Model {
    fn new(size: u64) -> Model {
        Model(vec![0; (size / BLOCK) as usize])
    }
    fn size(&self) -> u64 {
        self.0.len() as u64 * BLOCK
    }
    fn write(&mut self, offset: u64, len: u64, generation: u8) {
        self.0[(offset / BLOCK) as usize..((offset + len) / BLOCK) as usize].fill(generation);
    }
    fn check(&self, offset: u64, data: &[u8], what: &str) {
        let mut want = [0; BLOCK as usize];
        for (i, got) in data.chunks(BLOCK as usize).enumerate() {
            let at = offset + i as u64 * BLOCK;
            match self.0[(at / BLOCK) as usize] {
                0 => want.fill(0),
                generation => stamp(&mut want, at, generation),
            }
            if got != want {
                let word = got.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(0) & !7;
                let word = u64::from_le_bytes(got[word..word + 8].try_into().expect("eight bytes"));
                panic!("{what}: block {at:#x} of {offset:#x}+{:#x} holds {word:#018x}", data.len());
            }
        }
    }
}

/// A small generator of numbers; the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
    fn shuffle<T>(&mut self, all: &mut [T]) {
        (1..all.len()).rev().for_each(|i| all.swap(i, self.below(i as u64 + 1) as usize));
    }
}

/// An image of a few MiB with holes between.
fn image(real: &Real, name: &str, bytes: u64) -> String {
    let path = real.disk(name, bytes);
    let file = File::options().write(true).open(&path).expect("open");
    let mut data = vec![0; MIB as usize];
    for (i, at) in [0, 3 * MIB, 7 * MIB + 12 * KIB, bytes - MIB].into_iter().enumerate() {
        stamp(&mut data, at, i as u8 + 1);
        file.write_all_at(&data, at).expect("write");
    }
    path
}
