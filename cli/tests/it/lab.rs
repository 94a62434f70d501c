//! `braid lab` and the documents it writes into: tables are fresh, and a stale one is noticed.

use std::fs;
use std::path::Path;
use std::process::Command;

struct Check {
    code: Option<i32>,
    out: String,
}

/// `lab check` of these tables against a document.
fn check(tables: &[&str], document: &Path) -> Check {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    let run = command.args(["lab", "check"]).args(tables).arg("--docs").arg(document).output().expect("braid runs");
    assert!(run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    Check { code: run.status.code(), out: String::from_utf8_lossy(&run.stdout).into_owned() }
}

/// `lab swarm` with these words: code, standard output, standard error.
fn swarm(words: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    let run = command.args(["lab", "swarm"]).args(words.split_whitespace()).output().expect("braid runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (run.status.code(), text(&run.stdout), text(&run.stderr))
}

#[test]
fn a_swarm_answers_in_words_and_in_json() {
    let (code, out, err) = swarm("--count 2");
    assert!(code == Some(0) && out.starts_with("All well: 2 runs, "), "{out}{err}");
    assert!(err.is_empty(), "no progress where nobody looks: {err}");
    let (_, out, _) = swarm("--count 2 --json");
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&value["data"]["failed"], &value["data"]["runs"]), (&false.into(), &2.into()), "{value}");
    let (code, out, _) = swarm("--count 1 --break read-elsewhere --no-shrink --json");
    let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &value["data"]["checker"]), (Some(1), &"content".into()), "{value}");
    for (words, wanted, part) in [
        ("--hours inf", 2, "write hours, such as 8 or 0.1"),
        ("--hours 0", 2, "see: braid lab swarm --help"),
        ("--count 0", 2, "write a whole number of 1 or more"),
        ("--scenario nosuch.json", 4, "it has to be a scenario that lab swarm printed"),
        ("--break nothing", 2, "there is no mistake 'nothing'"),
    ] {
        let (code, _, err) = swarm(words);
        assert!(code == Some(wanted) && err.contains(part), "{words}: {code:?} {err}");
    }
}

const STALE: &str = "shows other numbers; bring it up to date: braid lab all --docs";

#[test]
fn published_tables_in_the_documents_are_fresh() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let text = fs::read_to_string(&document).expect("the document");
    for table in braid_sim::tables::ALL {
        assert!(text.contains(&format!("<!-- lab {} -->", table.name)), "{} is not in the document", table.name);
    }
    let check = check(&[], &document);
    assert!(!check.out.contains(STALE), "{}", check.out);
}

/// Out of tolerance, and why each is stands in the notes of its table. One more would not be noticed in a document that is fresh.
const OUT: [&str; 1] = ["r1-pid, MiB/s"];

#[test]
fn what_is_out_of_tolerance_is_known() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let text = fs::read_to_string(&document).expect("the document");
    let rows = text.lines().filter(|line| line.ends_with("| NO |")).filter_map(|line| line.split(" | ").next());
    let out: Vec<&str> = rows.map(|what| what.trim_start_matches("| ")).collect();
    assert_eq!(out, OUT);
    let broken: Vec<&str> = text.lines().filter(|line| line.contains(": NO (")).collect();
    assert_eq!(broken, Vec::<&str>::new(), "claims of ours");
}

#[test]
fn a_swarm_has_seeds_and_time_or_says_why_not() {
    let (code, out, err) = swarm("--seed 18446744073709551615 --count 3");
    assert!(code == Some(0) && out.starts_with("All well: 1 runs, "), "the last seed there is: {out} {err}");
    let again = swarm("--seed 18446744073709551615 --count 1");
    let trace = |out: &str| out.split("trace ").nth(1).map(str::to_string);
    assert!(trace(&out).is_some() && trace(&out) == trace(&again.1), "{out} {}", again.1);
}

#[test]
fn a_document_that_is_not_there_is_told_before_anything_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let [page, out] = ["nosuch.md", "out"].map(|name| dir.path().join(name).display().to_string());
    for command in ["run", "check"] {
        let mut braid = Command::new(env!("CARGO_BIN_EXE_braid"));
        let run = braid.args(["lab", command, "dm-stripe", "--docs", &page, "-o", &out]).output().expect("braid runs");
        let err = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && err.contains("nosuch.md: "), "{command}: {err}");
        assert!(run.stdout.is_empty(), "{command} ran");
    }
}

#[test]
fn a_folder_that_cannot_be_is_told_before_anything_runs() {
    for command in ["all", "check", "scale"] {
        let mut braid = Command::new(env!("CARGO_BIN_EXE_braid"));
        let run = braid.args(["lab", command, "-o", "/dev/null/lab"]).output().expect("braid runs");
        let err = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && err.starts_with("braid: /dev/null/lab: "), "{command}: {err}");
        assert!(run.stdout.is_empty(), "{command} ran");
    }
}

#[test]
fn a_stale_number_is_noticed_and_only_misses_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = folder.path().join("page.md");
    fs::write(&document, "a\n<!-- lab dm-stripe -->\n<!-- end -->\nz\n").expect("a page");
    let before = check(&["dm-stripe"], &document);
    assert!(before.code == Some(1) && before.out.contains(STALE), "{}", before.out);
    let page = document.display().to_string();
    let out = folder.path().join("out").display().to_string();
    let run = Command::new(env!("CARGO_BIN_EXE_braid"))
        .args(["lab", "run", "dm-stripe", "--docs", &page, "-o", &out])
        .output()
        .expect("braid runs");
    assert!(run.status.success() && String::from_utf8_lossy(&run.stdout).contains("28 of 28 hold"));
    for (file, part) in [("dm-stripe.csv", "1048592,1048592,0.00"), ("report.html", "<svg")] {
        assert!(fs::read_to_string(Path::new(&out).join(file)).expect(file).contains(part), "{file}");
    }
    let fresh = check(&["dm-stripe"], &document);
    assert!(fresh.code == Some(0) && !fresh.out.contains(STALE), "{}", fresh.out);
    let text = fs::read_to_string(&document).expect("the page");
    assert!(text.starts_with("a\n") && text.ends_with("<!-- end -->\nz\n"));
    fs::write(&document, text.replacen("1048592", "1048593", 1)).expect("a page");
    assert_eq!(check(&["dm-stripe"], &document).code, Some(1));
}
