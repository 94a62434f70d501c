//! Tables of the lab in Markdown, between `<!-- lab NAME -->` and `<!-- end -->` of a document.

use super::{Run, allowed, deviation, number, yes};
use std::fmt::Write;

const END: &str = "<!-- end -->";

/// The document with the tables of these runs; other places stay as they are. None when a mark has no end.
pub(super) fn fill(document: &str, runs: &[Run]) -> Option<String> {
    let mut out = document.to_string();
    for run in runs {
        let mark = format!("<!-- lab {} -->\n", run.table.name);
        let Some(at) = out.find(&mark).map(|at| at + mark.len()) else { continue };
        let end = at + out[at..].find(END)?;
        out.replace_range(at..end, &markdown(run));
    }
    Some(out)
}

fn markdown(Run { table, sheet, .. }: &Run) -> String {
    let mut out = format!("\n{} ({}):\n\n", table.title, table.source);
    out.push_str(
        "| what | unit | published | ours | deviation | allowed | holds |\n|---|---|---:|---:|---:|---|---|\n",
    );
    for row in &sheet.rows {
        let published = row.published.map_or(String::new(), number);
        let holds = if row.is_judged() { yes(row.holds()) } else { "" };
        let _ = writeln!(
            out,
            "| {} | {} | {published} | {} | {} | {} | {holds} |",
            row.what,
            row.unit,
            number(row.ours),
            deviation(row),
            allowed(row.within)
        );
    }
    out.push('\n');
    for claim in &sheet.claims {
        let _ = writeln!(out, "- {}: {} ({})", claim.what, yes(claim.holds), claim.shown);
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_sim::table::Sheet;
    use braid_sim::tables;

    #[test]
    fn only_what_is_between_marks_changes() {
        let table = &tables::ALL[0];
        let mut sheet = Sheet::default();
        sheet.claim("a claim", true, "shown");
        let run = [Run { table, sheet, took: Default::default() }];
        let document = format!("before\n<!-- lab {} -->\nold\n<!-- end -->\nafter\n", table.name);
        let filled = fill(&document, &run).expect("an end");
        assert!(filled.starts_with("before\n") && filled.ends_with("<!-- end -->\nafter\n"));
        assert!(filled.contains("- a claim: yes (shown)") && !filled.contains("\nold\n"));
        assert_eq!(fill(&filled, &run).as_deref(), Some(&*filled), "twice is once");
        assert_eq!(fill("nothing", &run).as_deref(), Some("nothing"));
        assert_eq!(fill(&document.replace(END, ""), &run), None);
    }
}
