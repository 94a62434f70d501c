//! One file that can be mailed: ours beside published, with pictures. No scripts, nothing from a network.

use super::svg::{draw, escape};
use super::{Run, allowed, deviation, number};
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --bad: #c0392b; --good: #2e8b57 }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em }
h2 { margin-top: 2.5em; border-bottom: 1px solid var(--line) }
table { border-collapse: collapse; width: 100%; font-size: 14px; margin: 1em 0 }
th { text-align: left; font-weight: 600 }
th, td { padding: 2px 8px; border-bottom: 1px solid var(--line); vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.no { color: var(--bad); font-weight: 600 } .yes { color: var(--good) }
svg { width: 100%; height: auto; margin: .6em 0 } svg text { font: 12px system-ui, sans-serif; fill: currentColor }
svg .title { font-weight: 600; font-size: 13px } svg .end { text-anchor: end } svg .mid { text-anchor: middle }
svg .grid { stroke: currentColor; stroke-opacity: .15 } svg polyline { stroke-width: 2 }
.source { opacity: .75 } p.note { margin: .4em 0 }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a7a; --good: #6fcf97 } }
@media print { h2 { break-after: avoid } svg, tr { break-inside: avoid } }
";

/// The page.
pub(super) fn page(runs: &[Run]) -> String {
    let (judged, misses) = super::totals(runs);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>braid lab</title><style>{STYLE}</style></head>\n\
         <body><h1>braid lab</h1>\n\
         <p>The engine that serves real disks, in virtual time. {} of {judged} judged numbers and claims hold.</p>\n\
         <p>A number holds when it deviates from the published one by no more than what is allowed; a claim is a sentence \
         that is true or not. What has neither yes nor NO is only shown. Bars tell their value when pointed at.</p>\n",
        judged - misses
    );
    out.push_str("<table><tr><th>table</th><th>what</th><th class=\"n\">hold</th></tr>\n");
    for Run { table, sheet, .. } in runs {
        let class = if sheet.misses() == 0 { "yes" } else { "no" };
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{n}\">{n}</a></td><td>{}</td><td class=\"n {class}\">{} of {}</td></tr>",
            escape(table.title),
            sheet.judged() - sheet.misses(),
            sheet.judged(),
            n = table.name
        );
    }
    out.push_str("</table>\n");
    for run in runs {
        section(&mut out, run);
    }
    out + "</body></html>\n"
}

fn section(out: &mut String, Run { table, sheet, .. }: &Run) {
    let _ = writeln!(
        out,
        "<h2 id=\"{}\">{}</h2><p class=\"source\">{}; seed {}, trace {:016x}</p>",
        table.name,
        escape(table.title),
        escape(table.source),
        table.seed,
        sheet.hash
    );
    for plot in &sheet.plots {
        out.push_str(&draw(plot));
    }
    for note in &sheet.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str(
        "<table><tr><th>what</th><th>unit</th><th class=\"n\">published</th><th class=\"n\">ours</th>\
         <th class=\"n\">deviation</th><th class=\"n\">allowed</th><th></th></tr>\n",
    );
    for row in &sheet.rows {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td>{}</tr>",
            escape(&row.what),
            escape(row.unit),
            row.published.map_or(String::new(), number),
            number(row.ours),
            deviation(row),
            allowed(row.within),
            verdict(row.holds(), row.is_judged())
        );
    }
    for claim in &sheet.claims {
        let _ = writeln!(
            out,
            "<tr><td colspan=\"2\">{}</td><td colspan=\"4\">{}</td>{}</tr>",
            escape(&claim.what),
            escape(&claim.shown),
            verdict(claim.holds, true)
        );
    }
    out.push_str("</table>\n");
}

fn verdict(holds: bool, is_judged: bool) -> &'static str {
    match (is_judged, holds) {
        (false, _) => "<td></td>",
        (true, true) => "<td class=\"yes\">yes</td>",
        (true, false) => "<td class=\"no\">NO</td>",
    }
}
