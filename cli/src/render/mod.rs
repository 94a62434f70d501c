//! How answers look: columns from one definition, JSON from the wire structs, errors as a sentence and a next step.

pub(crate) mod table;

use braid_host::control::api::{ApiError, Change, Envelope, ErrorEnvelope};
use braid_host::control::service::Call;
use braid_host::control::size;
use serde::Serialize;
use std::fmt::Write;

/// The reply of a route as `-j` prints it: the envelope, on one line when more will follow.
pub(crate) fn json<C: Call>(data: &C::Reply, stream: bool) -> String {
    envelope(C::ROUTE, data, stream)
}

/// As [`json`], for what is not a route.
pub(crate) fn envelope(schema: &str, data: impl Serialize, stream: bool) -> String {
    let envelope = Envelope::new(schema, data);
    let text = if stream { serde_json::to_string(&envelope) } else { serde_json::to_string_pretty(&envelope) };
    // The structs have string keys and no foreign serializers: nothing in them can fail.
    text.unwrap_or_default() + "\n"
}

/// An error as standard error shows it.
pub(crate) fn error(error: &ApiError, as_json: bool) -> String {
    if as_json {
        let text = serde_json::to_string(&ErrorEnvelope { error: error.clone() });
        return text.unwrap_or_default() + "\n";
    }
    let mut text = format!("braid: {}\n", printable(&error.message));
    if let Some(hint) = &error.hint {
        let _ = writeln!(text, "  {}", printable(hint));
    }
    text
}

/// What a change did, before → after.
pub(crate) fn change(change: &Change) -> String {
    let mut text = String::new();
    let verb = match (change.dry_run, change.changed) {
        (true, _) => "would: ",
        (false, true) => "",
        (false, false) => "unchanged: ",
    };
    let _ = writeln!(text, "{verb}{}", printable(&change.what));
    if let Some(after) = &change.after {
        let before = change.before.as_ref();
        let mut line = |name: &str, value: &dyn Fn(&braid_host::control::api::Standing) -> String| {
            let new = value(after);
            let _ = match before.map(value) {
                Some(old) if old != new => writeln!(text, "  {name:<20} {old} → {new}"),
                _ => writeln!(text, "  {name:<20} {new}"),
            };
        };
        line("raw space", &|s| size::long(s.raw_bytes));
        line("writable data", &|s| size::long(s.writable_data_bytes));
        line("writable metadata", &|s| size::long(s.writable_metadata_bytes));
        line("survivable failures", &|s| match s.data_failures == s.metadata_failures {
            true => s.data_failures.to_string(),
            false => format!("data {}, metadata {}", s.data_failures, s.metadata_failures),
        });
        let _ = writeln!(text, "  {:<20} {}", "bytes to move", size::long(change.move_bytes));
    }
    for note in &change.notes {
        let _ = writeln!(text, "  note: {}", printable(note));
    }
    if change.dry_run {
        text.push_str("nothing was changed\n");
    }
    text
}

/// Text that came from a disk or a socket, fit for a terminal and for one cell of a table.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
