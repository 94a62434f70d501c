//! `iostat -w` and `-r`: one table a pool, or a member with `-v`, with a line for each power of two.
//!
//! The columns are those of `zpool iostat -w` and `-r`. A line stands for the values above half of its label and up to it.

use super::Row;
use crate::args::ListFlags;
use crate::render::printable;
use crate::render::table::{Cell, Column, extra, shown, table};
use braid_host::control::api::*;
use std::rc::Rc;

/// One line.
struct Line {
    row: Rc<Row>,
    bucket: usize,
}

impl Line {
    fn count(&self, classes: &[&str], histogram: fn(&ClassHistograms) -> &HistogramIo) -> Cell {
        let of = |class: &&str| -> Option<u64> {
            let histograms = self.row.classes.get(*class)?.histograms.as_ref()?;
            histogram(histograms).counts.get(self.bucket).copied()
        };
        Cell::Number(classes.iter().filter_map(of).sum())
    }

    fn label(&self) -> u64 {
        1 << self.bucket
    }
}

const WAITS: &[Column<Line>] = &[
    extra("pool", |l| Cell::text(&l.row.pool)),
    extra("id", |l| l.row.device.as_ref().map_or(Cell::Empty, |d| Cell::Number(d.0.into()))),
    shown("latency", |l| Cell::Ns(l.label())),
    shown("total_wait.read", |l| l.count(&["sync_read", "async_read"], |h| &h.total_ns)),
    shown("total_wait.write", |l| l.count(&["sync_write", "async_write"], |h| &h.total_ns)),
    shown("disk_wait.read", |l| l.count(&["sync_read", "async_read"], |h| &h.device_ns)),
    shown("disk_wait.write", |l| l.count(&["sync_write", "async_write"], |h| &h.device_ns)),
    shown("syncq_wait.read", |l| l.count(&["sync_read"], |h| &h.queue_ns)),
    shown("syncq_wait.write", |l| l.count(&["sync_write"], |h| &h.queue_ns)),
    shown("asyncq_wait.read", |l| l.count(&["async_read"], |h| &h.queue_ns)),
    shown("asyncq_wait.write", |l| l.count(&["async_write"], |h| &h.queue_ns)),
    shown("scrub", |l| l.count(&["scrub"], |h| &h.queue_ns)),
    shown("trim", |l| l.count(&["trim"], |h| &h.queue_ns)),
    shown("rebuild", |l| l.count(&["rebuild"], |h| &h.queue_ns)),
];

const SIZES: &[Column<Line>] = &[
    extra("pool", |l| Cell::text(&l.row.pool)),
    extra("id", |l| l.row.device.as_ref().map_or(Cell::Empty, |d| Cell::Number(d.0.into()))),
    shown("req_size", |l| Cell::Short(l.label())),
    shown("sync_read.ind", |l| l.count(&["sync_read"], |h| &h.size_before)),
    shown("sync_read.agg", |l| l.count(&["sync_read"], |h| &h.size_after)),
    shown("sync_write.ind", |l| l.count(&["sync_write"], |h| &h.size_before)),
    shown("sync_write.agg", |l| l.count(&["sync_write"], |h| &h.size_after)),
    shown("async_read.ind", |l| l.count(&["async_read"], |h| &h.size_before)),
    shown("async_read.agg", |l| l.count(&["async_read"], |h| &h.size_after)),
    shown("async_write.ind", |l| l.count(&["async_write"], |h| &h.size_before)),
    shown("async_write.agg", |l| l.count(&["async_write"], |h| &h.size_after)),
    shown("scrub.ind", |l| l.count(&["scrub"], |h| &h.size_before)),
    shown("scrub.agg", |l| l.count(&["scrub"], |h| &h.size_after)),
    shown("trim.ind", |l| l.count(&["trim"], |h| &h.size_before)),
    shown("trim.agg", |l| l.count(&["trim"], |h| &h.size_after)),
    shown("rebuild.ind", |l| l.count(&["rebuild"], |h| &h.size_before)),
    shown("rebuild.agg", |l| l.count(&["rebuild"], |h| &h.size_after)),
];

/// What is counted.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum What {
    Waits,
    Sizes,
}

/// The tables of these rows.
pub(super) fn tables(rows: Vec<Row>, what: What, flags: &ListFlags) -> Result<String, ApiError> {
    let columns = if what == What::Waits { WAITS } else { SIZES };
    let mut flags = flags.clone();
    if flags.no_header && flags.columns.is_none() {
        // Without titles each line has to say what it is about.
        let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
        flags.columns = Some(names.join(","));
    }
    let mut out = String::new();
    for row in rows.into_iter().map(Rc::new) {
        let used = |h: &ClassHistograms| match what {
            What::Waits => [&h.queue_ns, &h.device_ns, &h.total_ns].map(range),
            What::Sizes => [&h.size_before, &h.size_after, &HistogramIo::default()].map(range),
        };
        let ranges = row.classes.values().filter_map(|c| c.histograms.as_ref()).flat_map(used).flatten();
        let all = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        if !flags.no_header {
            let device = row.device.as_ref().map_or(String::new(), |(id, name)| format!("  {id} {name}"));
            out.push_str(&format!("{}{}\n", printable(&row.pool), printable(&device)));
        }
        match all {
            Some((first, last)) => {
                let lines: Vec<Line> = (first..=last).map(|bucket| Line { row: row.clone(), bucket }).collect();
                out.push_str(&table(&lines, columns, &flags)?);
            }
            None if flags.no_header => {}
            None => out.push_str("no I/O\n"),
        }
    }
    Ok(out)
}

/// First and last bucket that hold something.
fn range(histogram: &HistogramIo) -> Option<(usize, usize)> {
    let first = histogram.counts.iter().position(|n| *n > 0)?;
    Some((first, histogram.counts.iter().rposition(|n| *n > 0)?))
}
