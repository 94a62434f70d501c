//! What the documents say of the tree is true of the tree: arrows between crates, what core and sim must not know, links,
//! lengths, nothing half done. Each rule reads files and nothing else, so it needs no tool and no daemon.
//!
//! What this does not see: names that are put together at run time, and code that a macro writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use braid_core::Profile;
use braid_core::allocator::Mode;
use braid_core::read_policy::ReadPolicy;
use braid_host::control::check;

/// Longest source file in lines, its unit tests left out: what still fits in a head.
const LINES_MAX: usize = 1200;

/// Longer ones, how long they may be, and why.
const LONG_FILES: &[(&str, usize, &str)] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Files below a folder of the workspace whose name ends so, build output and hidden folders left out.
fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.map(|e| e.expect("a folder that can be read").path()) {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(entry);
            } else if entry.is_file() && name.ends_with(ending) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

/// Names in the sections of a manifest that hold dependencies: section, name.
fn dependencies(krate: &str) -> BTreeSet<(String, String)> {
    let mut section = String::new();
    let mut found = BTreeSet::new();
    for line in read(&root().join(krate).join("Cargo.toml")).lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            // [dependencies.name] and [target.'…'.dependencies] are ways to hide one.
            assert!(!header.contains("dependencies."), "{krate}: write {header} as a line of its section");
            assert!(!header.starts_with("target."), "{krate}: [{header}] is not looked at; a plain section is");
            section = header.into();
        } else if section.ends_with("dependencies")
            && let Some((name, _)) = line.split_once('=')
        {
            let name = name.trim().split('.').next().unwrap_or_default();
            found.insert((section.clone(), name.into()));
        }
    }
    found
}

#[test]
fn arrows_between_crates_are_those_of_the_drawing() {
    for (krate, known) in [
        ("core", &[][..]),
        ("sim", &["braid-core"]),
        ("host", &["braid-core"]),
        ("cli", &["braid-core", "braid-host", "braid-sim"]),
    ] {
        let ours = |(_, name): (String, String)| name.starts_with("braid").then_some(name);
        let found: BTreeSet<String> = dependencies(krate).into_iter().filter_map(ours).collect();
        let allowed: BTreeSet<String> = known.iter().map(|k| k.to_string()).collect();
        assert_eq!(found, allowed, "{krate} points at");
    }
}

#[test]
fn core_depends_on_nothing_and_sim_on_core_and_what_reads_files() {
    let of = |krate: &str| {
        let wanted = dependencies(krate).into_iter().filter(|(section, _)| section != "dev-dependencies");
        wanted.map(|(_, name)| name).collect::<Vec<_>>()
    };
    assert_eq!(of("core"), [""; 0], "core has a dependency");
    assert_eq!(of("sim"), ["braid-core", "serde", "serde_json", "toml"], "sim depends on core and on what reads files");
}

/// A file without comments and without what is compiled for tests only: number and text of each line.
fn product_lines(path: &Path) -> Vec<(usize, String)> {
    let text = read(path);
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let line = lines[i];
        if line.trim() == "#[cfg(test)]" {
            i = end_of_item(&lines, i + 1);
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        if !code.trim().is_empty() {
            kept.push((i + 1, code.to_string()));
        }
        i += 1;
    }
    kept
}

/// The line behind the item that begins at `at`; relies on rustfmt.
fn end_of_item(lines: &[&str], at: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(head) = lines.get(at) else { return lines.len() };
    let is_block = head.ends_with('{');
    for (i, line) in lines.iter().enumerate().skip(at).filter(|(_, line)| indent(line) == indent(head)) {
        let ends = match is_block {
            true => ["}", "},", "};"].contains(&line.trim()),
            false => line.ends_with(';') || line.ends_with('}') || line.ends_with(','),
        };
        if ends {
            return i + 1;
        }
    }
    lines.len()
}

/// Source files of a crate that are compiled into the product: without `tests.rs` and modules behind `#[cfg(test)]`.
fn product_files(krate: &str) -> Vec<PathBuf> {
    let all = files(&format!("{krate}/src"), ".rs");
    let mut for_tests = BTreeSet::new();
    for path in &all {
        let text = read(path);
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]") {
            let Some(name) = pair[1].trim().trim_start_matches("pub(crate) ").strip_prefix("mod ") else { continue };
            let Some(name) = name.strip_suffix(';') else { continue };
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let folder = path.parent().expect("a folder");
            let folder = if ["mod", "lib", "main"].contains(&&*stem) { folder.into() } else { folder.join(&*stem) };
            for_tests.insert(folder.join(format!("{name}.rs")));
            for_tests.insert(folder.join(name).join("mod.rs"));
        }
    }
    all.into_iter().filter(|path| !for_tests.contains(path)).collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn core_knows_no_world_no_floats_and_nothing_unsafe() {
    let crate_file = read(&root().join("core/src/lib.rs"));
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(crate_file.lines().any(|l| l == attribute), "core/src/lib.rs has lost {attribute}");
    }
    let mut found = Vec::new();
    for path in product_files("core") {
        for (number, line) in product_lines(&path) {
            if line.trim() == "#![forbid(unsafe_code)]" {
                continue;
            }
            for word in words(&line).filter(|w| ["std", "f32", "f64", "unsafe"].contains(w)) {
                found.push(format!("{}:{number}: {word}", shown(&path)));
            }
        }
    }
    assert_eq!(found, [""; 0], "outside of tests");
}

/// Where core and sim look at what is different each time, and why that decides nothing.
const UNSTEADY: &[(&str, &str)] = &[
    ("sim/src/cost.rs", "measures CPU time"),
    ("sim/src/scale.rs", "measures time and memory"),
    ("sim/src/table.rs", "the number of threads, on which no result depends"),
];

/// A run is a function of its inputs: no clock of the machine, no dice but seeded ones, no order by hash.
#[test]
fn nothing_in_core_and_sim_is_different_each_time() {
    let marks = [
        "std::time",
        "HashMap",
        "HashSet",
        "RandomState",
        "SystemTime",
        "thread_rng",
        "getrandom",
        "available_parallelism",
    ];
    let mut found = Vec::new();
    for path in product_files("core").into_iter().chain(product_files("sim")).chain(files("sim/tables", ".rs")) {
        let name = shown(&path);
        if UNSTEADY.iter().any(|(file, _)| *file == name) {
            continue;
        }
        for (number, line) in product_lines(&path) {
            found.extend(marks.iter().filter(|m| line.contains(**m)).map(|m| format!("{name}:{number}: {m}")));
        }
    }
    assert_eq!(found, [""; 0], "same seed, same trace");
    for (file, why) in UNSTEADY {
        assert!(root().join(file).exists() && !why.is_empty(), "{file} is gone");
    }
}

/// Words that name a policy or a profile in code: variants, and the names that operators write.
fn decisions() -> (Vec<String>, Vec<String>) {
    let variants = |family: &str, debug: String| {
        let name = debug.split([' ', '(', '{']).next().unwrap_or_default().to_string();
        format!("{family}::{name}")
    };
    let mut code: Vec<String> = Vec::new();
    code.extend(ReadPolicy::ALL.map(|p| variants("ReadPolicy", format!("{p:?}"))));
    code.extend(Mode::ALL.map(|m| variants("Mode", format!("{m:?}"))));
    code.extend(Profile::ALL.map(|p| variants("Profile", format!("{p:?}"))));
    let mut text: Vec<String> = Vec::new();
    text.extend(ReadPolicy::ALL.map(|p| format!("\"{}\"", p.name())));
    text.extend(Mode::ALL.map(|m| format!("\"{}\"", m.name())));
    text.extend(Profile::ALL.map(|p| format!("\"{}\"", p.name())));
    // A word of other trades too: the property of that name, the NBD share of a "device", the "single" queue, the tool.
    let shared = ["\"device\"", "\"single\"", "\"latency\"", "\"queue\"", "\"zfs\""];
    text.retain(|word| !shared.contains(&word.as_str()));
    (code, text)
}

/// No word of `code` or `text` in the crate's product files; `sentence` says where such a name may stand all the same.
#[track_caller]
fn knows_no_decision(krate: &str, code: &[String], text: &[String], may: impl Fn(&str) -> bool, sentence: &str) {
    let mut found = Vec::new();
    for path in product_files(krate) {
        let name = shown(&path);
        if may(&name) {
            continue;
        }
        for (number, line) in product_lines(&path) {
            let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            let in_code = code.iter().filter(|word| {
                line.match_indices(word.as_str()).any(|(at, _)| is_end(line[at + word.len()..].chars().next()))
            });
            let in_text = text.iter().filter(|word| line.contains(word.as_str()));
            found.extend(in_code.chain(in_text).map(|word| format!("{name}:{number}: {word}")));
        }
    }
    assert_eq!(found, [""; 0], "{sentence}");
}

#[test]
fn host_never_matches_on_a_profile_or_a_policy() {
    // The words there are; the profile of a pool for which nobody names one; the shape of a policy's value.
    let files = ["host/src/control/check.rs", "host/src/daemon/pools/plan.rs", "host/src/daemon/properties.rs"];
    let (code, text) = decisions();
    knows_no_decision("host", &code, &text, |name| files.contains(&name), "only what an operator writes may name one");
}

/// The simulator's operator turns knobs, so it knows words; what they mean it leaves to the engine.
#[test]
fn sim_never_repeats_a_decision() {
    let (code, _) = decisions();
    knows_no_decision("sim", &code, &[], |_| false, "a word for the engine to parse will do");
}

/// The host lists the words before a pool is asked; the core decides what they mean.
#[test]
fn the_words_of_the_control_plane_are_those_of_the_core() {
    let profiles: Vec<(&str, usize)> = Profile::ALL.map(|p| (p.name(), p.facts().devs_min)).into();
    assert_eq!(check::PROFILES, profiles);
    let sorted = |words: &mut dyn Iterator<Item = String>| words.collect::<BTreeSet<_>>();
    let bare = |word: &str| word.split([':', '[']).next().unwrap_or_default().to_string();
    let policies = sorted(&mut check::POLICIES.iter().map(|word| bare(word)));
    assert_eq!(policies, sorted(&mut ReadPolicy::ALL.iter().map(|p| p.name().to_string())));
    let modes = sorted(&mut check::MODES.iter().map(|word| word.to_string()));
    assert_eq!(modes, sorted(&mut Mode::ALL.iter().map(|m| m.name().to_string())));
    assert_eq!(check::NAME_MAX, braid_core::names::NAME_LEN_MAX);
}

/// Targets of the links of a document, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // What stands between backticks is no link.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("\u{1}");
        for (at, _) in prose.match_indices("](") {
            let rest = &prose[at + 2..];
            found.extend(rest.find(')').map(|end| rest[..end].to_string()));
        }
    }
    found
}

/// By document, the files that it links to.
fn linked() -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut table = BTreeMap::new();
    for path in files("", ".md") {
        let folder = path.parent().expect("a folder").to_path_buf();
        let relative = |link: String| {
            let outside = link.contains("://") || link.starts_with("mailto:") || link.starts_with('#');
            let target = link.split('#').next().unwrap_or_default();
            (!outside && !target.is_empty()).then(|| folder.join(target))
        };
        table.insert(path.clone(), links(&read(&path)).into_iter().filter_map(relative).collect());
    }
    table
}

#[test]
fn no_link_of_a_document_is_dead() {
    let mut dead = Vec::new();
    for (path, targets) in linked() {
        dead.extend(targets.iter().filter(|t| !t.exists()).map(|t| format!("{}: {}", shown(&path), t.display())));
    }
    assert_eq!(dead, [""; 0]);
}

#[test]
fn every_document_is_reached_from_the_readme() {
    let table: BTreeMap<PathBuf, Vec<PathBuf>> = linked();
    let start = root().join("README.md").canonicalize().expect("a README");
    let (mut seen, mut todo_list) = (BTreeSet::new(), vec![start]);
    while let Some(path) = todo_list.pop() {
        if seen.insert(path.clone()) {
            let same = |p: &&PathBuf| p.canonicalize().is_ok_and(|p| p == path);
            let targets = table.keys().find(same).and_then(|key| table.get(key));
            todo_list.extend(targets.into_iter().flatten().filter_map(|t| t.canonicalize().ok()));
        }
    }
    let lost: Vec<String> = files("docs", ".md")
        .iter()
        .filter(|path| path.canonicalize().is_ok_and(|p| !seen.contains(&p)))
        .map(|path| shown(path))
        .collect();
    assert_eq!(lost, [""; 0], "no way leads from README.md to");
}

/// Source files of all crates, tests included.
fn sources() -> Vec<PathBuf> {
    ["core", "sim", "host", "cli"].iter().flat_map(|krate| files(krate, ".rs")).collect()
}

#[test]
fn no_file_is_too_long() {
    let mut long = Vec::new();
    for krate in ["core", "sim", "host", "cli"] {
        for path in product_files(krate) {
            let name = shown(&path);
            if name.ends_with("/tests.rs") {
                continue;
            }
            let text = read(&path);
            let lines = text.lines().take_while(|l| *l != "mod tests {").count();
            let max = LONG_FILES.iter().find(|(file, ..)| *file == name).map_or(LINES_MAX, |(_, max, _)| *max);
            if lines > max {
                long.push(format!("{name}: {lines} lines, at most {max}"));
            }
        }
    }
    assert_eq!(long, [""; 0], "probably two rooms");
}

#[test]
fn nothing_is_left_half_done() {
    // Put together here, so that this file is not its own finding.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!"), concat!("unimple", "mented!")];
    let mut found = Vec::new();
    let documents = files("", ".md");
    for path in sources().iter().chain(&documents) {
        for (i, line) in read(path).lines().enumerate() {
            let has = |mark: &str| match mark.strip_suffix('!') {
                Some(_) => line.contains(mark),
                None => words(line).any(|word| word == mark),
            };
            found.extend(marks.iter().filter(|m| has(m)).map(|m| format!("{}:{}: {m}", shown(path), i + 1)));
        }
    }
    assert_eq!(found, [""; 0]);
}
