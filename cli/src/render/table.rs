//! Tables for people and for scripts from one definition of their columns.
//!
//! | flag | effect |
//! |---|---|
//! | `-H` | no header, one TAB between cells |
//! | `-p` | exact numbers: bytes and nanoseconds |
//! | `-o a,b` | these columns in this order; `-o +a` adds one |
//! | `-s a`, `-s -a` | sorted by a column, descending with `-` |
//!
//! `total_wait.read` is a column `read` under a common heading `total_wait`.
//!
//! An empty cell is `-` everywhere, so that a row always has as many words as the header.

use super::printable;
use crate::args::ListFlags;
use braid_host::control::api::ApiError;
use braid_host::control::{check, size};
use std::cmp::Ordering;

/// A value and what it measures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A word or a sentence.
    Text(String),
    /// A count or an id.
    Number(u64),
    /// Bytes, shown as `7.28TiB`.
    Bytes(u64),
    /// Bytes in a narrow table whose header says what K is, shown as `7.28T`.
    Short(u64),
    /// A duration.
    Ns(u64),
    /// Anything measured: four digits, or all of them.
    Real(f64),
    /// Nothing to say.
    Empty,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        let text = text.into();
        if text.is_empty() { Cell::Empty } else { Cell::Text(text) }
    }

    pub(crate) fn maybe(text: &Option<String>) -> Cell {
        text.as_deref().map_or(Cell::Empty, Cell::text)
    }

    fn show(&self, exact: bool) -> String {
        match self {
            Cell::Text(text) => printable(text),
            Cell::Number(n) => n.to_string(),
            Cell::Bytes(n) | Cell::Short(n) | Cell::Ns(n) if exact => n.to_string(),
            Cell::Bytes(n) => size::long(*n),
            Cell::Short(n) => size::short(*n),
            Cell::Ns(n) => duration(*n),
            Cell::Real(n) => real(*n, exact),
            Cell::Empty => "-".into(),
        }
    }

    fn order(&self, other: &Cell) -> Ordering {
        let number = |c: &Cell| match c {
            Cell::Number(n) | Cell::Bytes(n) | Cell::Short(n) | Cell::Ns(n) => Some(*n),
            _ => None,
        };
        if let (Cell::Real(a), Cell::Real(b)) = (self, other) {
            return a.total_cmp(b);
        }
        match (number(self), number(other)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => self.show(true).cmp(&other.show(true)),
        }
    }
}

/// `12345`, `123.4`, `12.34`, `1.234`; a whole number has no more.
pub(crate) fn real(n: f64, exact: bool) -> String {
    let digits = match n.abs() {
        _ if exact => return n.to_string(),
        v if v >= 1000.0 || v.fract() == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{n:.digits$}")
}

/// `310us`, `1.1ms`, `2.50s`: three digits at most.
pub(crate) fn duration(ns: u64) -> String {
    let (unit, name) = match ns {
        0 => return "0".into(),
        1..=999 => return format!("{ns}ns"),
        1_000..=999_999 => (1_000, "us"),
        1_000_000..=999_999_999 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, tenth) = (ns / unit, ns % unit * 10 / unit);
    if whole >= 100 || tenth == 0 { format!("{whole}{name}") } else { format!("{whole}.{tenth}{name}") }
}

/// One column: its name as `-o` takes it, whether it is there without `-o`, and its cell.
pub(crate) struct Column<T> {
    pub(crate) name: &'static str,
    pub(crate) shown: bool,
    pub(crate) cell: fn(&T) -> Cell,
}

/// A column that is there without `-o`.
pub(crate) const fn shown<T>(name: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
    Column { name, shown: true, cell }
}

/// A column that `-o` can ask for.
pub(crate) const fn extra<T>(name: &'static str, cell: fn(&T) -> Cell) -> Column<T> {
    Column { name, shown: false, cell }
}

/// The table, header included unless `-H`.
pub(crate) fn table<T>(rows: &[T], columns: &[Column<T>], flags: &ListFlags) -> Result<String, ApiError> {
    let chosen = choose(columns, flags)?;
    let mut order: Vec<&T> = rows.iter().collect();
    for key in flags.sort.iter().flat_map(|s| s.split(',')).rev() {
        let (name, down) = key.strip_prefix('-').map_or((key, false), |name| (name, true));
        let column = find(columns, name)?;
        order.sort_by(|a, b| {
            let order = (column.cell)(a).order(&(column.cell)(b));
            if down { order.reverse() } else { order }
        });
    }
    let cells: Vec<Vec<Cell>> = order.iter().map(|row| chosen.iter().map(|c| (c.cell)(row)).collect()).collect();
    let texts: Vec<Vec<String>> =
        cells.iter().map(|row| row.iter().map(|cell| cell.show(flags.exact)).collect()).collect();
    if flags.no_header {
        return Ok(texts.iter().map(|row| row.join("\t") + "\n").collect());
    }
    let right: Vec<bool> =
        (0..chosen.len()).map(|i| cells.iter().any(|row| !matches!(row[i], Cell::Text(_) | Cell::Empty))).collect();
    let header: Vec<String> = chosen.iter().map(|c| own_name(c.name).to_uppercase()).collect();
    let width = |i: usize| texts.iter().chain([&header]).map(|row| row[i].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..chosen.len()).map(width).collect();
    let mut out = headings(&chosen, &mut widths);
    for row in [&header].into_iter().chain(&texts) {
        let line: Vec<String> = row
            .iter()
            .enumerate()
            .map(
                |(i, text)| {
                    if right[i] { format!("{text:>w$}", w = widths[i]) } else { format!("{text:<w$}", w = widths[i]) }
                },
            )
            .collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    Ok(out)
}

/// `read` of `total_wait.read`.
fn own_name(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, own)| own)
}

/// The line above the header, if columns share headings; makes room for headings that are longer than their columns.
fn headings<T>(columns: &[&Column<T>], widths: &mut [usize]) -> String {
    const GAP: usize = 2;
    let heading = |c: &Column<T>| c.name.split_once('.').map_or("", |(heading, _)| heading);
    let mut line = String::new();
    let mut first = 0;
    for group in columns.chunk_by(|a, b| heading(a) == heading(b)) {
        let (name, end) = (group.first().map_or("", |c| heading(c)), first + group.len());
        let width = |widths: &[usize]| widths[first..end].iter().sum::<usize>() + GAP * (group.len() - 1);
        let missing = name.len().saturating_sub(width(widths));
        widths[end - 1] += missing;
        if first > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        line.push_str(&format!("{:^w$}", name.to_uppercase(), w = width(widths)));
        first = end;
    }
    let line = line.trim_end();
    if line.is_empty() { String::new() } else { format!("{line}\n") }
}

fn choose<'a, T>(columns: &'a [Column<T>], flags: &ListFlags) -> Result<Vec<&'a Column<T>>, ApiError> {
    let usual = || columns.iter().filter(|c| c.shown).collect::<Vec<_>>();
    let Some(wanted) = &flags.columns else { return Ok(usual()) };
    let (mut chosen, names) = match wanted.strip_prefix('+') {
        Some(names) => (usual(), names),
        None if wanted == "all" => return Ok(columns.iter().collect()),
        None => (Vec::new(), wanted.as_str()),
    };
    for name in names.split(',') {
        chosen.push(find(columns, name.trim())?);
    }
    Ok(chosen)
}

fn find<'a, T>(columns: &'a [Column<T>], name: &str) -> Result<&'a Column<T>, ApiError> {
    let wanted = name.to_ascii_lowercase();
    columns.iter().find(|c| c.name == wanted).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
        let error = ApiError::usage(
            "column.unknown",
            format!("there is no column '{name}' here; there are {}", names.join(",")),
        );
        match check::nearest(name, &names) {
            Some(near) => error.hint(format!("you may mean {near}")),
            None => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column<(&str, u64)>] =
        &[shown("name", |r| Cell::text(r.0)), shown("size", |r| Cell::Bytes(r.1)), extra("wait", |r| Cell::Ns(r.1))];
    const ROWS: &[(&str, u64)] = &[("b", 1536), ("", 1 << 40), ("a\tc", 7)];

    #[test]
    fn one_definition_gives_every_form() {
        for (flags, text) in [
            ("", "NAME     SIZE\nb     1.50KiB\n-        1TiB\na?c        7B\n"),
            ("H", "b\t1.50KiB\n-\t1TiB\na?c\t7B\n"),
            ("Hp", "b\t1536\n-\t1099511627776\na?c\t7\n"),
            ("Hp wait,name", "1536\tb\n1099511627776\t-\n7\ta?c\n"),
            ("H +wait", "b\t1.50KiB\t1.5us\n-\t1TiB\t1099s\na?c\t7B\t7ns\n"),
            ("Hp all size", "a?c\t7\t7\nb\t1536\t1536\n-\t1099511627776\t1099511627776\n"),
            ("Hp name -size", "-\nb\na?c\n"),
        ] {
            let mut words = flags.split(' ');
            let letters = words.next().unwrap_or_default();
            let flags = ListFlags {
                no_header: letters.contains('H'),
                exact: letters.contains('p'),
                columns: words.next().map(String::from),
                sort: words.next().map(String::from),
            };
            assert_eq!(table(ROWS, COLUMNS, &flags).expect("known columns"), text, "{letters}");
        }
    }

    #[test]
    fn an_unknown_column_lists_the_known() {
        let flags = ListFlags { columns: Some("nme".into()), ..ListFlags::default() };
        let error = table(ROWS, COLUMNS, &flags).expect_err("unknown");
        assert_eq!((error.kind.exit_code(), error.hint.as_deref()), (2, Some("you may mean name")));
        assert!(error.message.contains("name,size,wait"));
    }

    #[test]
    fn durations_have_at_most_three_digits() {
        for (ns, text) in [(0, "0"), (999, "999ns"), (1_100_000, "1.1ms"), (310_999, "310us"), (2_000_000_000, "2s")] {
            assert_eq!(duration(ns), text);
        }
    }
}
