//! What was answered survives kill -9.

use super::{BLOCK, Dice, GIB, MIB, Model, stamp};
use crate::real::Real;
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::proto::cmd;
use std::collections::HashMap;

/// What was answered, and what may or may not be there.
struct Ledger {
    model: Model,
    /// By block: generations of writes that were never answered.
    open: HashMap<u64, Vec<u8>>,
}

impl Ledger {
    /// Everything answered is there; of the rest, each block is old or new.
    fn settle(&mut self, client: &mut Client<std::os::unix::net::UnixStream>, what: &str) {
        for offset in (0..self.model.size()).step_by(MIB as usize) {
            let answer = client.read(offset, MIB as u32).expect("read");
            assert_eq!(answer.error, 0, "{what}: reading {offset:#x}: {}", answer.message);
            let mut want = [0; BLOCK as usize];
            for (i, got) in answer.data.chunks(BLOCK as usize).enumerate() {
                let at = offset + i as u64 * BLOCK;
                for generation in self.open.get(&(at / BLOCK)).into_iter().flatten() {
                    stamp(&mut want, at, *generation);
                    if got == want {
                        self.model.write(at, BLOCK, *generation);
                    }
                }
            }
            self.model.check(offset, &answer.data, what);
        }
        self.open.clear();
    }
}

/// A killed process takes nothing with it that was answered: not even what nobody flushed.
#[test]
fn what_was_answered_survives_kill_9() {
    let mut real = Real::start();
    real.tank("raid1", &[GIB, GIB, GIB], 32 * MIB);
    let mut ledger = Ledger { model: Model::new(32 * MIB), open: HashMap::new() };
    let mut dice = Dice(21);
    for round in 0..4 {
        real.ok("share tank/v nbd");
        let mut client = Client::connect(&real.path("run/nbd.sock"), "tank/v", Wish::default()).expect("connect");
        ledger.settle(&mut client, &format!("round {round}"));
        if round == 3 {
            break;
        }
        let mut flying: HashMap<u64, (u64, u64, u8)> = HashMap::new();
        let mut data = vec![0; 128 << 10];
        let (mut cookie, mut answered) = (0u64, 0);
        let last = 150 + dice.below(500);
        loop {
            while flying.len() < 16 && cookie < last {
                cookie += 1;
                let len = BLOCK * (1 + dice.below(32));
                let offset = BLOCK * dice.below((ledger.model.size() - len) / BLOCK + 1);
                // Writes that overlap in flight have no order.
                if flying.values().any(|(at, n, _)| offset < at + n && *at < offset + len) {
                    continue;
                }
                let generation = (1 + (u64::from(round as u8) * 80 + cookie) % 250) as u8;
                if cookie.is_multiple_of(40) {
                    client.send(cmd::FLUSH, 0, cookie, 0, 0);
                    flying.insert(cookie, (0, 0, 0));
                    continue;
                }
                let data = &mut data[..len as usize];
                stamp(data, offset, generation);
                client.send_write(cookie, 0, offset, data);
                flying.insert(cookie, (offset, len, generation));
            }
            if cookie == last && answered > 0 && real.is_up() {
                client.push().expect("sent");
                real.kill();
            }
            // What was answered before the end still comes.
            let Ok(answer) = client.recv() else { break };
            let (offset, len, generation) = flying.remove(&answer.cookie).expect("one of ours");
            assert_eq!(answer.error, 0, "{}", answer.message);
            ledger.model.write(offset, len, generation);
            answered += 1;
            if flying.is_empty() && !real.is_up() {
                break;
            }
        }
        assert!(answered > 50, "round {round}: {answered} answers");
        for (offset, len, generation) in flying.into_values() {
            for block in offset / BLOCK..(offset + len) / BLOCK {
                ledger.open.entry(block).or_default().push(generation);
            }
        }
        // Once from what the daemon remembers, once from the devices alone.
        if round == 1 {
            std::fs::remove_dir_all(real.path("state")).expect("rm");
            real.restart();
            assert_eq!(real.ok("list -H"), "");
            real.ok(&format!("import tank -d {}", real.dir.path().display()));
        } else {
            real.restart();
        }
        assert_eq!(real.ok("list -H -o name"), "tank");
    }
}
