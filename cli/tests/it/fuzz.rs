//! `braid lab fuzz`: a short run over every target, and each kind of failure found and found again.

use std::process::Command;

use braid_host::fuzz as host;
use serde_json::Value;

struct Ran {
    code: Option<i32>,
    out: String,
}

/// `lab fuzz` with these words.
fn fuzz(words: &str) -> Ran {
    let run = Command::new(env!("CARGO_BIN_EXE_braid")).args(["lab", "fuzz"]).args(words.split_whitespace()).output();
    let run = run.expect("braid runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: run.status.code(), out: text(&run.stdout) + &text(&run.stderr) }
}

/// So many inputs of each target, the corpora first.
const BRIEFLY: u64 = 250;

#[test]
fn every_target_is_fuzzed_briefly() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = fuzz(&format!("--count {BRIEFLY} --seed 1 --json -o {}", folder.path().display()));
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    let told: Value = serde_json::from_str(&ran.out).expect("JSON");
    let targets = told["data"]["targets"].as_array().expect("a list");
    let names: Vec<&str> = targets.iter().filter_map(|target| target["target"].as_str()).collect();
    assert_eq!(
        names,
        [
            "superblock",
            "log",
            "checkpoint",
            "journal",
            "checksums",
            "job",
            "trace",
            "model",
            "pool",
            "measurement",
            "scenario",
            "flight",
            "negotiation",
            "transmission",
            "control"
        ]
    );
    for target in targets {
        let (inputs, taken) = (&target["inputs"], target["taken"].as_u64().expect("a number"));
        assert!(*inputs == BRIEFLY && (10..BRIEFLY).contains(&taken), "some are taken, some refused: {target}");
    }
}

#[test]
fn each_kind_of_failure_is_found_and_found_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for (mistake, words) in
        [("panic", "a panic on purpose"), ("memory", "it wants more than"), ("endless", "it has not ended")]
    {
        let ran = fuzz(&format!("job --break {mistake} --patience 2 -o {}", folder.path().display()));
        assert!(ran.code == Some(1) && ran.out.contains(words), "{mistake}: {}", ran.out);
        let again = ran.out.split("Again: braid lab fuzz ").nth(1).expect("how to see it again").trim();
        let ran = fuzz(&format!("{again} --patience 2"));
        assert!(ran.code == Some(1) && ran.out.contains(words), "{again}: {}", ran.out);
    }
    let path = std::fs::read_dir(folder.path()).expect("a folder").flatten().next().expect("an input").path();
    let right = fuzz(&format!("job --input {}", path.display()));
    assert_eq!(right.code, Some(0), "without the mistake: {}", right.out);
}

#[test]
fn what_is_asked_for_wrongly_is_told() {
    for (words, code, part) in [
        ("jobs", 2, "you may mean job"),
        ("job --break nothing", 2, "there are panic, memory, endless"),
        ("--input nosuch.input", 2, "an input is for one target"),
        ("job --input nosuch.input", 4, "there is no file nosuch.input"),
        ("job --count 0", 2, "write a whole number of 1 or more"),
    ] {
        let ran = fuzz(words);
        assert!(ran.code == Some(code) && ran.out.contains(part), "{words}: {:?} {}", ran.code, ran.out);
    }
}

/// Of sockets; those of the other targets are looked at where they are.
#[test]
fn each_sample_of_sockets_is_what_it_says_and_all_are_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = host::Control::start(folder.path()).expect("a control socket");
    type Run<'a> = &'a dyn Fn(&[u8]) -> Result<bool, String>;
    let targets: [(&str, &[host::Sample], Run<'_>); 3] = [
        ("negotiation", host::NEGOTIATIONS, &host::negotiation),
        ("transmission", host::TRANSMISSIONS, &host::transmission),
        ("control", host::CONTROLS, &|input| control.run(input)),
    ];
    for (target, samples, run) in targets {
        for (name, bytes, is_fine) in samples {
            assert_eq!(run(bytes), Ok(*is_fine), "{target}: {name}");
        }
        let path = format!("{}/../host/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(path).expect("the corpus").flatten();
        let mut there: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        let mut used: Vec<String> = samples.iter().map(|(name, ..)| name.to_string()).collect();
        there.sort();
        used.sort();
        assert_eq!(there, used, "{target}");
    }
}
