//! `braid lab`: the engine in virtual time, beside what was published.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | runs tables, prints them, writes CSV |
//! | `report.rs` | `report.html` |
//! | `svg.rs` | pictures |
//! | `what_if.rs` | a load on a pool and on variants of it |
//! | `swarm.rs` | runs drawn from seeds |
//! | `crash.rs` | power cuts at every point of small runs |
//! | `faults.rs` | every fault and every two of them |
//! | `fuzz/` | damaged inputs |
//! | `docs.rs` | tables in `docs/policies.md` |

mod crash;
mod docs;
mod faults;
pub(crate) mod fuzz;
mod report;
mod svg;
mod swarm;
pub(crate) mod what_if;

use crate::args::{LabCheck, LabCommand, LabFlags, LabNames, LabScale, ListFlags};
use crate::commands::{self, Outcome};
use crate::render::table::{self, Cell, Column, shown};
use braid_host::control::api::ApiError;
use braid_host::control::check;
use braid_sim::table::{Lab, Row, Sheet, Table, Within};
use braid_sim::{scale, tables};
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two words of how far something is.
const PROGRESS: Duration = Duration::from_secs(1);

/// Where `run` and `all` write unless told otherwise.
const FOLDER: &str = "braid-lab";

/// A table and what came of it.
struct Run {
    table: &'static Table,
    sheet: Sheet,
    took: Duration,
}

pub(crate) fn lab(command: &LabCommand, json: bool) -> Outcome {
    match command {
        LabCommand::List(flags) => list(flags, json),
        LabCommand::Run(LabNames { names, flags }) => show(&chosen(names)?, &lab_of(flags), flags, json).map(|_| 0),
        LabCommand::All(flags) => show(&chosen(&[])?, &lab_of(flags), flags, json).map(|_| 0),
        LabCommand::Check(LabCheck { names: LabNames { names, flags }, twice }) => {
            verify(&chosen(names)?, flags, *twice, json)
        }
        LabCommand::WhatIf(args) => what_if::what_if(None, json, args),
        LabCommand::Swarm(flags) => swarm::swarm(flags, json),
        LabCommand::Crash(flags) => crash::crash(flags, json),
        LabCommand::Faults(flags) => faults::faults(flags, json),
        LabCommand::Fuzz(flags) => fuzz::fuzz(flags, json),
        LabCommand::Scale(flags) => grow(flags, json),
    }
}

/// Those named, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static Table>, ApiError> {
    if names.is_empty() || names == ["all"] {
        return Ok(tables::ALL.iter().collect());
    }
    let find = |name: &String| {
        tables::find(name).ok_or_else(|| {
            let known: Vec<&str> = tables::ALL.iter().map(|t| t.name).collect();
            let message = format!("there is no table '{name}'; there are {}", known.join(", "));
            let error = ApiError::usage("lab.unknown", message);
            match check::nearest(name, &known) {
                Some(near) => error.hint(format!("you may mean {near}")),
                None => error,
            }
        })
    };
    names.iter().map(find).collect()
}

fn list(flags: &ListFlags, json: bool) -> Outcome {
    const COLUMNS: &[Column<Table>] = &[
        shown("name", |t| Cell::text(t.name)),
        shown("title", |t| Cell::text(t.title)),
        shown("source", |t| Cell::text(t.source)),
    ];
    if json {
        let all: Vec<Value> =
            tables::ALL.iter().map(|t| json!({"name": t.name, "title": t.title, "source": t.source})).collect();
        commands::print(&format!("{}\n", json!({"schema": "lab.list", "version": 1, "data": all})));
    } else {
        commands::print(&table::table(tables::ALL, COLUMNS, flags)?);
    }
    Ok(0)
}

/// What grows with the pool, shown like a table; the exit code says whether anything grows more than it may.
fn grow(flags: &LabScale, json: bool) -> Outcome {
    let table: &'static Table = if flags.quick { &scale::QUICK } else { &scale::FULL };
    let flags = LabFlags { output: flags.output.clone(), threads: None, docs: None };
    let runs = show(&[table], &Lab { tell: |line| eprintln!("{line}"), ..Lab::new() }, &flags, json)?;
    Ok(u8::from(totals(&runs).1 > 0))
}

fn lab_of(flags: &LabFlags) -> Lab {
    flags.threads.map_or_else(Lab::new, |threads| Lab::with_threads(threads.get()))
}

/// Work on so many threads. A terminal hears now and then how far they are: a line that is written over, and gone in the end.
fn on_threads(threads: usize, work: impl Fn() + Sync, so_far: impl Fn() -> String) {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let (mut told, somebody_looks) = (Instant::now(), std::io::stderr().is_terminal());
        while somebody_looks && workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                eprint!("\r{}\x1b[K", so_far());
            }
        }
        if somebody_looks {
            eprint!("\r\x1b[K");
        }
    });
}

/// Tables that give something else with another number of threads.
fn unsteady(runs: &[Run], flags: &LabFlags) -> Vec<&'static str> {
    let other = Lab::with_threads(if lab_of(flags).threads == 1 { 3 } else { 1 });
    runs.iter().filter(|run| run.table.sheet(&other) != run.sheet).map(|run| run.table.name).collect()
}

/// One table after the other; `done` hears of each as soon as it is.
fn run(
    tables: &[&'static Table],
    lab: &Lab,
    mut done: impl FnMut(&Run) -> Result<(), ApiError>,
) -> Result<Vec<Run>, ApiError> {
    let somebody_looks = std::io::stderr().is_terminal();
    let mut runs = Vec::new();
    for table in tables {
        if somebody_looks {
            eprint!("running {} ...", table.name);
        }
        let begun = Instant::now();
        let run = Run { table, sheet: table.sheet(lab), took: begun.elapsed() };
        if somebody_looks {
            eprint!("\r\x1b[K");
        }
        done(&run)?;
        runs.push(run);
    }
    Ok(runs)
}

fn show(tables: &[&'static Table], lab: &Lab, flags: &LabFlags, json: bool) -> Result<Vec<Run>, ApiError> {
    let folder = flags.output.as_deref().unwrap_or(Path::new(FOLDER));
    // Some of it takes minutes: what cannot be written is told before.
    create(folder)?;
    fillable(flags)?;
    let runs = run(tables, lab, |run| {
        if !json {
            commands::print(&text(run)?);
        }
        Ok(())
    })?;
    write(&runs, folder)?;
    if let Some(path) = &flags.docs {
        let (_, filled) = documented(path, &runs)?;
        std::fs::write(path, filled).map_err(|e| ApiError::failed("lab.docs", format!("{}: {e}", path.display())))?;
    }
    if json {
        print_json(&runs);
    } else {
        let report = folder.join("report.html");
        commands::print(&format!("{}\nWritten: {}, and a CSV for each table\n", verdict(&runs), report.display()));
    }
    Ok(runs)
}

/// As `show`, but only what is out of tolerance; the exit code says whether anything is, or a document is stale.
fn verify(tables: &[&'static Table], flags: &LabFlags, twice: bool, json: bool) -> Outcome {
    flags.output.as_deref().map_or(Ok(()), create)?;
    fillable(flags)?;
    let runs = run(tables, &lab_of(flags), |run| {
        if !json {
            commands::print(&misses(run));
        }
        Ok(())
    })?;
    let unsteady = if twice { unsteady(&runs, flags) } else { Vec::new() };
    if let Some(folder) = &flags.output {
        write(&runs, folder)?;
    }
    let stale = match &flags.docs {
        Some(path) => documented(path, &runs).map(|(now, fresh)| (now != fresh).then_some(path))?,
        None => None,
    };
    if json {
        print_json(&runs);
    } else {
        let mut out = String::new();
        for name in &unsteady {
            let _ = writeln!(out, "{name}: not the same with another number of threads");
        }
        let _ = writeln!(out, "{}", verdict(&runs));
        if let Some(path) = stale {
            let p = path.display();
            let _ = writeln!(out, "{p} shows other numbers; bring it up to date: braid lab all --docs {p}");
        }
        commands::print(&out);
    }
    Ok(u8::from(totals(&runs).1 > 0 || stale.is_some() || !unsteady.is_empty()))
}

/// The document for the tables can be read, before anything is run.
fn fillable(flags: &LabFlags) -> Result<(), ApiError> {
    flags.docs.as_deref().map_or(Ok(()), |path| documented(path, &[]).map(drop))
}

/// How many hold, and those that do not.
fn misses(Run { table, sheet, took }: &Run) -> String {
    let (judged, misses) = (sheet.judged(), sheet.misses());
    let mut out = format!(
        "{:<22} {} of {judged} hold, trace {:016x}, {:.1} s\n",
        table.name,
        judged - misses,
        sheet.hash,
        took.as_secs_f64()
    );
    for row in sheet.rows.iter().filter(|r| !r.holds()) {
        let published = row.published.map_or("-".into(), number);
        let (ours, allowed) = (number(row.ours), allowed(row.within));
        let _ = writeln!(out, "  {}: ours {ours}, published {published} {}, allowed {allowed}", row.what, row.unit);
    }
    for claim in sheet.claims.iter().filter(|c| !c.holds) {
        let _ = writeln!(out, "  {}: {}", claim.what, claim.shown);
    }
    out
}

/// A document as it is, and with the tables of these runs.
fn documented(path: &Path, runs: &[Run]) -> Result<(String, String), ApiError> {
    let failed = |why: String| ApiError::failed("lab.docs", format!("{}: {why}", path.display()));
    let now = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let filled = docs::fill(&now, runs).ok_or_else(|| failed("a table's mark has no end".into()))?;
    Ok((now, filled))
}

/// What is judged, and what of it does not hold.
fn totals(runs: &[Run]) -> (usize, usize) {
    runs.iter().fold((0, 0), |(judged, misses), r| (judged + r.sheet.judged(), misses + r.sheet.misses()))
}

fn verdict(runs: &[Run]) -> String {
    let (judged, misses) = totals(runs);
    let took: Duration = runs.iter().map(|r| r.took).sum();
    format!("{} of {judged} numbers and claims hold, {:.1} s", judged - misses, took.as_secs_f64())
}

const COLUMNS: &[Column<Row>] = &[
    shown("what", |r| Cell::text(&*r.what)),
    shown("unit", |r| Cell::text(r.unit)),
    shown("published", |r| r.published.map_or(Cell::Empty, Cell::Real)),
    shown("ours", |r| Cell::Real(r.ours)),
    shown("deviation", |r| Cell::text(deviation(r))),
    shown("allowed", |r| Cell::text(allowed(r.within))),
    shown("holds", |r| if r.is_judged() { Cell::text(yes(r.holds())) } else { Cell::Empty }),
];

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}

fn text(run: &Run) -> Result<String, ApiError> {
    let Run { table, sheet, took } = run;
    let mut out = format!("{}: {}\n{}\n\n", table.name, table.title, table.source);
    if !sheet.rows.is_empty() {
        out.push_str(&table::table(&sheet.rows, COLUMNS, &ListFlags::default())?);
    }
    for claim in &sheet.claims {
        let _ = writeln!(out, "{:<3} {} ({})", yes(claim.holds), claim.what, claim.shown);
    }
    for note in &sheet.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let (judged, misses) = (sheet.judged(), sheet.misses());
    // A table of times has none.
    let trace = if sheet.hash == 0 { String::new() } else { format!(" trace {:016x},", sheet.hash) };
    let _ = writeln!(out, "{} of {judged} hold;{trace} {:.1} s\n", judged - misses, took.as_secs_f64());
    Ok(out)
}

fn number(value: f64) -> String {
    table::real(value, false)
}

fn deviation(row: &Row) -> String {
    row.deviation().map_or(String::new(), |percent| format!("{percent:+.1} %"))
}

fn allowed(within: Within) -> String {
    match within {
        Within::Exactly => "equal".into(),
        Within::Percent(percent) => format!("{percent} %"),
        Within::Absolute(limit) => format!("± {}", number(limit)),
        Within::Buckets(0) => "same bucket".into(),
        Within::Buckets(n) => format!("± {n} bucket{}", if n == 1 { "" } else { "s" }),
        Within::Range(from, to) => format!("{} to {}", number(from), number(to)),
        Within::Draws(least, most) => format!("{} to {} by seed", number(least), number(most)),
        Within::Shown => String::new(),
    }
}

fn print_json(runs: &[Run]) {
    let data: Vec<Value> = runs.iter().map(as_json).collect();
    commands::print(&format!("{}\n", json!({"schema": "lab", "version": 1, "data": data})));
}

fn as_json(Run { table, sheet, took }: &Run) -> Value {
    let row = |r: &Row| {
        json!({
            "what": r.what, "unit": r.unit, "published": r.published, "ours": r.ours,
            "deviation_percent": r.deviation(), "allowed": allowed(r.within), "judged": r.is_judged(), "holds": r.holds(),
        })
    };
    let rows: Vec<Value> = sheet.rows.iter().map(row).collect();
    let claims: Vec<Value> =
        sheet.claims.iter().map(|c| json!({"what": c.what, "holds": c.holds, "shown": c.shown})).collect();
    json!({
        "name": table.name, "title": table.title, "source": table.source, "seed": table.seed,
        "trace": format!("{:016x}", sheet.hash), "seconds": took.as_secs_f64(), "judged": sheet.judged(),
        "misses": sheet.misses(), "rows": rows, "claims": claims, "notes": sheet.notes,
    })
}

fn unwritable(path: &Path, e: std::io::Error) -> ApiError {
    ApiError::failed("lab.write", format!("{}: {e}", path.display())).hint("name another folder with -o")
}

/// The folder for what is written, before anything is run.
fn create(folder: &Path) -> Result<(), ApiError> {
    std::fs::create_dir_all(folder).map_err(|e| unwritable(folder, e))
}

/// A CSV for each table, and one report.
fn write(runs: &[Run], folder: &Path) -> Result<(), ApiError> {
    let files = runs.iter().map(|r| (format!("{}.csv", r.table.name), csv(r)));
    for (name, content) in files.chain([("report.html".into(), report::page(runs))]) {
        let path = folder.join(name);
        std::fs::write(&path, content).map_err(|e| unwritable(&path, e))?;
    }
    Ok(())
}

fn csv(Run { table, sheet, .. }: &Run) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut out = format!("# {}\n# seed {}, trace {:016x}\n", table.source, table.seed, sheet.hash);
    out.push_str("what,unit,published,ours,deviation_percent,allowed,holds\n");
    for row in &sheet.rows {
        let published = row.published.map_or(String::new(), |p| p.to_string());
        let deviation = row.deviation().map_or(String::new(), |d| format!("{d:.2}"));
        let _ = writeln!(
            out,
            "{},{},{published},{},{deviation},{},{}",
            quoted(&row.what),
            quoted(row.unit),
            row.ours,
            quoted(&allowed(row.within)),
            if row.is_judged() { yes(row.holds()) } else { "" }
        );
    }
    for claim in &sheet.claims {
        let _ = writeln!(out, "{},claim,,,,{},{}", quoted(&claim.what), quoted(&claim.shown), yes(claim.holds));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let mut sheet =
            Sheet { rows: vec![Row::new("a \"b\", c", "ms", 10.0, 12.5, Within::Percent(20.0))], ..Sheet::default() };
        sheet.claim("x < y", true, "1 < 2");
        Run { table: &tables::ALL[0], sheet, took: Duration::from_secs(1) }
    }

    #[test]
    fn all_tables_have_a_word_too() {
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
            chosen(&names).map_err(|e| e.message).map(|tables| tables.len())
        };
        assert_eq!(count(&["all"]), Ok(tables::ALL.len()));
        assert_eq!(count(&[]), Ok(tables::ALL.len()));
        assert_eq!(count(&["dm-stripe"]), Ok(1));
        assert!(count(&["all", "dm-strip"]).is_err());
        assert!(count(&["al"]).is_err_and(|why| why.starts_with("there is no table 'al'")));
    }

    #[test]
    fn misses_are_told_in_every_form() {
        let run = run();
        let shown = text(&run).expect("known columns");
        assert!(shown.contains("+25.0 %") && shown.contains("NO") && shown.contains("1 of 2 hold"), "{shown}");
        assert!(csv(&run).contains("\n\"a \"\"b\"\", c\",\"ms\",10,12.5,25.00,\"20 %\",NO\n"), "{}", csv(&run));
        let page = report::page(std::slice::from_ref(&run));
        assert!(page.contains("<td class=\"no\">NO</td>") && page.contains("x &lt; y") && page.contains("1 of 2"));
        assert_eq!(as_json(&run)["misses"], 1);
    }

    #[test]
    fn names_are_found_or_suggested() {
        assert_eq!(chosen(&[]).expect("all").len(), tables::ALL.len());
        let error = chosen(&["dm-strpe".into()]).map(|t| t.len()).expect_err("no such table");
        assert_eq!((error.kind.exit_code(), error.hint.as_deref()), (2, Some("you may mean dm-stripe")));
    }
}
