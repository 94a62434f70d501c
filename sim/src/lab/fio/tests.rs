//! Job files as people have them, against what fio itself makes of them where it is installed.

use std::process::Command;

use super::super::job::{Access, Direction, Job, SizeRange, Sizes};
use super::values::{bytes, time_ns};
use super::*;

const DATABASE: &str = "\
; a database and its log, as one finds them in the wild
[global]
ioengine=libaio
direct=1
bs=8k
size=1g          # of each thread
runtime=60
time_based
group_reporting

[pages]
rw=randrw
rwmixread=70
iodepth=32
iodepth_batch=8
numjobs=4
filename=/dev/vol0

[log]
rw=write
bs=512-16k
fdatasync=1
rate=10m
filename=/dev/vol0
offset=2g
startdelay=500ms

[global]
bs=128k

[scan]
stonewall
rw=read
iodepth=4
thinktime=100
filename=/dev/vol1
";

#[test]
fn a_whole_file_means_what_it_says() {
    let file = parse(DATABASE).expect("a good file");
    let [pages, log, scan] = &file.jobs[..] else { panic!("three jobs") };
    assert_eq!((pages.reads, pages.access, pages.depth, pages.batch, pages.count), (70, Access::Random, 32, 8, 4));
    assert_eq!((pages.runtime_ns, pages.time_based), (Some(60_000_000_000), true));
    assert_eq!((pages.volume, log.volume, scan.volume), (0, 0, 1));
    assert_eq!((log.sizes[1].clone(), log.sync_every), (Sizes::between(512, 16384), 1));
    assert_eq!((log.rate, log.offset, log.start_ns), ([Some(10 << 20); 2], 2 << 30, 500_000_000));
    assert_eq!((scan.sizes[0].clone(), scan.depth, scan.think_ns), (Sizes::fixed(128 << 10), 4, 100_000));
    assert_eq!((pages.stage, log.stage, scan.stage), (0, 0, 1));
    assert_eq!((pages.client, log.client, scan.client), (0, 4, 5), "ids of threads");
    let targets: Vec<_> = file.targets.iter().map(|t| (t.name.as_str(), t.bytes)).collect();
    assert_eq!(targets, [("/dev/vol0", Some(3 << 30)), ("/dev/vol1", Some(1 << 30))]);
    assert_eq!(file.notes, ["accepted, without effect here: group_reporting"]);
}

#[test]
fn options_one_by_one() {
    let job = |text: &str| {
        let file =
            parse(&format!("[j]\nfilename=/dev/x\nioengine=libaio\n{text}")).unwrap_or_else(|e| panic!("{text}: {e}"));
        file.jobs[0].clone()
    };
    type Check = fn(&Job) -> bool;
    let rows: &[(&str, Check)] = &[
        ("bs=4k,64k", |j| j.sizes == [Sizes::fixed(4096), Sizes::fixed(65536)]),
        ("bs=,64k", |j| j.sizes == [Sizes::fixed(4096), Sizes::fixed(65536)]),
        ("bsrange=4k-8k,16k-32k", |j| j.sizes == [Sizes::between(4096, 8192), Sizes::between(16384, 32768)]),
        ("bssplit=4k/10:64k:32k", |j| {
            let range = |bytes, percent| SizeRange { min: bytes, max: bytes, percent };
            j.sizes[1].0 == [range(4096, 10), range(65536, 45), range(32768, 45)]
        }),
        ("rwmixwrite=20\nrw=rw", |j| j.reads == 80 && j.access == Access::Sequential),
        ("rw=randread:4", |j| j.run == 4 && j.reads == 100),
        ("rw=randtrim", |j| j.changes == Direction::Trim && j.reads == 0),
        ("rate_iops=100,200", |j| j.rate_iops == [Some(100), Some(200)]),
        ("rate=,1m", |j| j.rate == [None, Some(1 << 20)]),
        ("kb_base=1000\nbs=4kib\nsize=1k", |j| j.sizes[0] == Sizes::fixed(4096) && j.size == Some(1000)),
        ("sync=1\nend_fsync=1\nnorandommap", |j| j.fua && j.sync_last && !j.each_once),
        ("filename=/dev/y\nrunTIME=2m\nramp_time=5", |j| {
            (j.runtime_ns, j.ramp_ns) == (Some(120_000_000_000), 5_000_000_000)
        }),
        ("iodepth=16\niodepth_batch_complete_min=4\niodepth_low=8", |j| (j.depth, j.reap, j.depth_low) == (16, 4, 8)),
        ("io_size=10m\nloops=3\nfsync=32", |j| (j.io_size, j.loops, j.sync_every) == (Some(10 << 20), 3, 32)),
        ("name=other", |j| j.name == "other"),
        ("size=1g\nsize=100%", |j| j.size.is_none()),
        ("size=100%\nfilesize=1g", |j| j.size == Some(1 << 30)),
        ("nrfiles=1\nrandom_distribution=random\nverify=0\nzonemode=none", |j| {
            *j == Job { name: "j".into(), ..Job::default() }
        }),
        ("ioengine=psync\niodepth=64\niodepth_batch=8", |j| (j.depth, j.batch) == (1, 1)),
    ];
    for (text, check) in rows {
        let job = job(text);
        assert!(check(&job), "{text}: {job:?}");
    }
}

#[test]
fn what_cannot_be_carried_out_is_refused_with_its_line() {
    let rows = [
        ("", "there is no job"),
        ("[global]\nbs=4k", "there is no job"),
        ("[j\nbs=4k", "line 1: the section"),
        ("[j]\nbs=4q", "line 2: bs=4q is not understood"),
        ("[j]\nbs=4KiB\nsize=1m", "line 2: bs=4KiB is not understood; fio takes KiB for 1000 bytes here"),
        ("[j]\n\nrw=sometimes", "line 3: rw=sometimes is not understood; it is read, write"),
        (
            "[j]\niodpeth=4",
            "line 2: no option \"iodpeth\" is known; you may mean iodepth; these are carried out: rw bs",
        ),
        ("[j]\nflavour=4", "line 2: no option \"flavour\" is known; these are carried out: rw bs"),
        ("[j]\nnrfiles=2", "line 2: nrfiles changes what is asked"),
        ("[j]\nsize=99999999t", "line 2: size=99999999t is not understood; a size is below 16 EiB"),
        ("[j]\nsize=100%", "job j: it needs a size or a filename"),
        ("[j]\nverify=crc32c", "line 2: verify changes what is asked"),
        ("[j]\nsize=10%", "of percentages only size=100% is supported"),
        ("[j]\nrw=read", "needs a size or a filename"),
        ("[j]\nfilename=x\ntime_based", "time_based needs a runtime"),
        ("[j]\nsize=${SIZE}", "variables such as ${SIZE}"),
        ("[j]\ninclude more.fio", "line 2: include is not followed"),
        ("[j]\nbssplit=4k/60:8k/60", "add up to 100"),
        ("[j]\nfilename=/dev/a:/dev/b", "one file a job"),
        ("[j]\nioengine=netsplice", "engines of block devices"),
        ("[j]\nnumjobs=0", "a number of 1 to 4096"),
    ];
    for (text, wanted) in rows {
        let error = parse(text).expect_err(text);
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
}

#[test]
fn threads_without_a_filename_have_files_of_their_own() {
    let file = parse("[j]\nrw=randread\nsize=100m\nnumjobs=3\n").expect("a good file");
    assert_eq!(file.targets[0].bytes, Some(300 << 20));
    assert_eq!(file.jobs[0].region(2, 300 << 20), (200 << 20, 300 << 20));
}

/// Sizes and times as fio parses them, asked from fio itself. Without fio the table of what it said stands alone.
#[test]
fn values_are_those_of_fio() {
    let sizes = [
        ("4k", 1024, 4096),
        ("4K", 1024, 4096),
        ("4kb", 1024, 4096),
        ("4KiB", 1024, 4000),
        ("4ki", 1024, 4096),
        ("4ki", 1000, 4000),
        ("4kib", 1000, 4096),
        ("4kb", 1000, 4000),
        ("1m", 1024, 1 << 20),
        ("2g", 1024, 2 << 30),
        ("1t", 1024, 1 << 40),
        ("65536", 1024, 65536),
        ("0x1000", 1024, 4096),
    ];
    for (word, kb_base, wanted) in sizes {
        assert_eq!(bytes(word, kb_base), Some(wanted), "{word}");
        if let Some(told) = fio_says("size", word, kb_base) {
            assert_eq!(told, wanted, "fio on size={word} with kb_base={kb_base}");
        }
    }
    let times = [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("1d", 86400)];
    for (word, wanted) in times {
        assert_eq!(time_ns(word, 1_000_000_000), Some(wanted * 1_000_000_000), "{word}");
        if let Some(told) = fio_says("runtime", word, 1024) {
            assert_eq!(told, wanted * 1_000_000, "fio on runtime={word}, in us");
        }
    }
    assert_eq!((bytes("4q", 1024), bytes("", 1024), bytes("99999999999t", 1024)), (None, None, None));
}

/// What `fio --debug=parse` makes of an option; none where there is no fio.
fn fio_says(option: &str, value: &str, kb_base: u64) -> Option<u64> {
    let kb_base = format!("--kb_base={kb_base}");
    let args = ["--parse-only", "--debug=parse", "--name=j", &kb_base, "--filename=/dev/null"];
    let output = Command::new("fio").args(args).arg(format!("--{option}={value}")).output().ok()?;
    let text = String::from_utf8(output.stdout).expect("fio writes text");
    let from = text.find(&format!("handle_option={option}, ptr={value}")).expect("fio parses it");
    let out = text[from..].split("out=").nth(1).expect("fio tells a value");
    Some(out.split(|c: char| !c.is_ascii_digit()).next().expect("digits").parse().expect("a number"))
}

/// Every file that is read here is one that fio reads too.
#[test]
fn fio_takes_the_same_file() {
    let folder = std::env::temp_dir().join(format!("braid-fio-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("database.fio");
    std::fs::write(&path, DATABASE).expect("a file");
    if let Ok(output) = Command::new("fio").arg("--parse-only").arg(&path).output() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}

/// Times and rates as long as numbers go, on a small pool: a sentence or an end, and nothing overflows.
#[test]
fn no_number_of_a_file_stops_a_run() {
    use crate::device::Model;
    use crate::lab::{Member, Setup, Stop, run};
    use braid_core::Profile;
    let setup = || {
        let nvme = Model::shipped("nvme").expect("a model");
        let members = (0..2).map(|i| Member::new(&format!("d{i}"), 1 << 30, "nvme", nvme.clone())).collect();
        let mut setup = Setup::new(members, Profile::Raid1, Profile::Raid1, 8 << 20);
        (setup.limit_ns, setup.limit_ios) = (30_000_000_000, 1_000);
        setup
    };
    let base = "[j]\nfilename=x\nsize=8m\nioengine=libaio\n";
    for (rest, wanted) in [
        ("runtime=18446744073\nramp_time=18446744073", "line 5: runtime=18446744073 is not understood; a time"),
        ("startdelay=18446744073", "at most a year"),
        ("thinktime=18446744073s", "at most a year"),
        ("numjobs=4096\niodepth=16384", "67108864 requests under way at once"),
        ("numjobs=4096\n[a]\nfilename=x\nsize=1m\nnumjobs=4096", ""),
        ("runtime=365d\nramp_time=365d\ntime_based\nthinktime=365d", ""),
        ("startdelay=365d", ""),
        ("rate=1\nbs=4m", ""),
        ("rate_iops=1", ""),
        ("loops=18446744073709551615\nio_size=18446744073709551615", ""),
        ("thinktime_blocks=18446744073709551615\nthinktime=1\nfsync=18446744073709551615", ""),
        ("iodepth_batch=18446744073709551615\niodepth_low=18446744073709551615\niodepth=4", ""),
        ("rw=randread:18446744073709551615\nrandseed=18446744073709551615", ""),
    ] {
        let ran = parse(&format!("{base}{rest}")).and_then(|file| run(&setup(), &file.jobs, 1));
        match ran {
            Ok(outcome) => assert!(wanted.is_empty() && outcome.stop != Stop::Stuck, "{rest}: {:?}", outcome.stop),
            Err(why) => assert!(!wanted.is_empty() && why.contains(wanted), "{rest}: {why}"),
        }
    }
    // Whoever writes no file has no bounds of one.
    let far = Job {
        think_ns: u64::MAX,
        start_ns: 7,
        ramp_ns: u64::MAX,
        runtime_ns: Some(u64::MAX),
        time_based: true,
        ..Job::default()
    };
    let late = Job { start_ns: u64::MAX, ..Job::default() };
    let slow = Job { rate: [Some(1); 2], sizes: [Sizes::fixed(4 << 20), Sizes::fixed(4 << 20)], ..Job::default() };
    for job in [far, late, slow] {
        let endless = Setup { limit_ns: u64::MAX, ..setup() };
        let outcome = run(&endless, &[job], 1).expect("it runs");
        assert!(matches!(outcome.stop, Stop::Limit | Stop::Done), "{:?}", outcome.stop);
    }
}
