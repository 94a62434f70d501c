//! A scrub beside a client on real files: what each scheduler lets go, counted, and what the client felt, printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_core::Profile;
use braid_core::control::{Command, Done, VolumeClass};
use braid_core::queue::class::Class;
use braid_core::request::{Content, NO_BUF, Op, Reply, Request};
use braid_core::scrub::State;
use braid_core::units::{ClientId, DeviceId, MIB, VolumeId};
use braid_host::pump::{Load, PumpHandle, Setup};
use braid_host::reactor::Choice;

use super::pump::{disk, new_pool, options, run};

const SIZE: u64 = 160 * MIB;

/// Random 4 KiB reads, one at a time, until told to stop.
struct Reader {
    volume: VolumeId,
    stop: Arc<AtomicBool>,
    asked: Instant,
    dice: u64,
    latencies: Vec<Duration>,
    failed: usize,
}

impl Load for Reader {
    fn next(&mut self, tag: u64) -> Option<Request> {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (self.dice >> 33) % (SIZE / 4096) * 4096;
        self.asked = Instant::now();
        let (client, content) = (ClientId(1), Content::Unsaid);
        Some(Request {
            tag,
            client,
            volume: self.volume,
            op: Op::Read,
            offset,
            len: 4096,
            buf: NO_BUF,
            content,
            no_merge: false,
        })
    }
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}
    fn done(&mut self, _: u64, reply: &Reply, _: &[u8]) -> bool {
        self.latencies.push(self.asked.elapsed());
        self.failed += usize::from(reply.result.is_err());
        !self.stop.load(Ordering::Relaxed)
    }
    fn depth(&self) -> usize {
        1
    }
}

fn pool(dir: &std::path::Path, scheduler: &str) -> (PumpHandle, VolumeId) {
    let paths: Vec<_> = (0..2).map(|i| dir.join(format!("disk{i}"))).collect();
    let disks = paths.iter().enumerate().map(|(i, p)| (DeviceId(i as u32 + 1), disk(p, Some(256 * MIB)))).collect();
    let pump =
        PumpHandle::start(options(Choice::Auto), disks, Setup::Create(new_pool(&paths, Profile::Raid1))).unwrap();
    let set = |name: &str, value: &str| pump.control(Command::Set { name: name.into(), value: value.into() }).unwrap();
    set("scheduler", scheduler);
    // All reads go to the first member, whose queue then is the one to look at.
    set("read_policy", "devid:1");
    let create = Command::CreateVolume { name: "v".into(), size: SIZE, class: VolumeClass::Auto };
    let Done::Volume(volume) = pump.control(create).unwrap() else { panic!("no volume") };
    let writes = (0..SIZE / MIB).map(|i| (Op::Write { fua: false }, i * MIB, MIB)).collect();
    assert_eq!(run(&pump, volume, writes), (0, 0));
    (pump, volume)
}

fn scrub_to_its_end(pump: &PumpHandle) {
    pump.control(Command::ScrubStart).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while pump.report().unwrap().scrub.scrub.state != State::Finished {
        assert!(Instant::now() < deadline, "a scrub of {SIZE} bytes takes more than a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Most commands of class scrub that the first member had at once, and how many it had in all.
fn scrub_commands(pump: &PumpHandle) -> (u32, u64) {
    let report = pump.report().unwrap();
    assert_eq!(report.scrub.scrub.differences, 0);
    let device = report.devices.iter().find(|d| d.id == DeviceId(1)).unwrap();
    let stats = device.queue.stats.class(Class::Scrub);
    assert_eq!((stats.queued, stats.active), (0, 0), "nothing is left behind");
    (stats.peak, stats.size_after().count())
}

#[test]
fn a_scrub_beside_a_client_has_what_its_scheduler_says() {
    // Alone, a scrub has its maximum after a while; beside a client the credit keeps it at its minimum, where there is one.
    for (scheduler, alone, beside) in
        [("zfs-before", 2, 2), ("zfs-pr11166", 3, 1), ("zfs-2.0.1", 3, 1), ("braid", 3, 1)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (pump, _) = pool(dir.path(), scheduler);
        scrub_to_its_end(&pump);
        let (peak, commands) = scrub_commands(&pump);
        assert_eq!(peak, alone, "{scheduler}, scrub alone");
        assert!(commands >= SIZE / MIB, "{scheduler}: {commands} commands for {SIZE} bytes");
        drop(pump);

        let dir = tempfile::tempdir().unwrap();
        let (pump, volume) = pool(dir.path(), scheduler);
        let stop = Arc::new(AtomicBool::new(false));
        let (latencies, dice) = (Vec::new(), 42);
        let reader = Reader { volume, stop: stop.clone(), asked: Instant::now(), dice, latencies, failed: 0 };
        let reader = std::thread::scope(|scope| {
            let reading = scope.spawn(|| pump.load(Box::new(reader)).unwrap());
            while pump.report().unwrap().counters.reads < 10 {
                std::thread::sleep(Duration::from_millis(1));
            }
            scrub_to_its_end(&pump);
            stop.store(true, Ordering::Relaxed);
            reading.join().unwrap()
        });
        let reader: Box<dyn std::any::Any> = reader.into_any();
        let mut reader = reader.downcast::<Reader>().unwrap();
        assert_eq!(reader.failed, 0);
        let (peak, _) = scrub_commands(&pump);
        assert_eq!(peak, beside, "{scheduler}, scrub beside a client");
        reader.latencies.sort_unstable();
        let at = |permille: usize| reader.latencies[(reader.latencies.len() - 1) * permille / 1000];
        println!(
            "{scheduler}: {} reads beside a scrub, median {:?}, 99 % {:?}, longest {:?}",
            reader.latencies.len(),
            at(500),
            at(990),
            at(1000)
        );
    }
}
