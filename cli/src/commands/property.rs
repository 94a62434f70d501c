//! `get` and `set`, for pools, devices and volumes alike.

use super::{Context, Outcome, print};
use crate::args::{ChangeFlags, GetArgs, InheritArgs, SetArgs};
use crate::render;
use crate::render::table::{Cell, Column, extra, shown, table};
use crate::resolve;
use braid_host::control::api::*;
use std::collections::BTreeMap;

/// `read_policy=latency`, taken apart. Nothing behind the `=` is the default.
pub(crate) fn assignment(word: &str) -> Result<(String, String), ApiError> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.replace('-', "_"), value.to_string())),
        _ => Err(ApiError::usage("set.bad_assignment", format!("'{word}' is no NAME=VALUE"))
            .hint("for example: braid set read_policy=latency tank")),
    }
}

pub(crate) fn get(context: &Context, args: GetArgs) -> Outcome {
    let (names, words) = match args.words.split_first() {
        Some((names, words)) => (names.as_str(), words),
        None => ("all", [].as_slice()),
    };
    let names: Vec<String> = match names {
        "all" => Vec::new(),
        names => names.split(',').map(|n| n.replace('-', "_")).collect(),
    };
    let targets = match words {
        [] => {
            let pools = context.client.call(ListPools::default())?;
            pools.into_iter().filter(|p| p.not_open.is_none()).map(|p| Target::Pool { pool: p.name }).collect()
        }
        words => resolve::targets(&context.client, words)?,
    };
    let mut properties = Vec::new();
    let mut has_queues = false;
    for target in targets {
        has_queues |= !matches!(target, Target::Volume { .. });
        properties.extend(context.client.call(GetProperties { target, names: names.clone() })?);
    }
    if context.json {
        print(&render::json::<GetProperties>(&properties, false));
        return Ok(0);
    }
    match properties.as_slice() {
        // One property of one thing: its value alone, or all values with the current one in brackets.
        [one] if names.len() == 1 && !args.flags.plain() => {
            // Members differ, and nobody set it for the pool.
            let value = if one.value.is_empty() { "-".into() } else { bracketed(one) };
            print(&format!("{}\n", render::printable(&value)));
        }
        several => print(&table(several, COLUMNS, &args.flags)?),
    }
    if names.is_empty() && !args.flags.no_header && has_queues {
        eprintln!("settings of queues that nobody set are left out; all of them: braid get queue {}", words.join(" "));
    }
    Ok(0)
}

fn bracketed(property: &Property) -> String {
    if property.choices.is_empty() {
        return property.value.clone();
    }
    // Choices show the current one with its value, so an exact match is the rule; otherwise the word decides.
    let word = |p: &str| p.split(':').next().unwrap_or(p).to_string();
    let exact = property.choices.contains(&property.value);
    let mark = |choice: &String| match exact {
        true if *choice == property.value => format!("[{choice}]"),
        false if word(choice) == word(&property.value) => format!("[{}]", property.value),
        _ => choice.clone(),
    };
    property.choices.iter().map(mark).collect::<Vec<_>>().join(" ")
}

const COLUMNS: &[Column<Property>] = &[
    shown("name", |p| Cell::text(&p.target)),
    shown("property", |p| Cell::text(&p.name)),
    shown("value", |p| Cell::text(&p.value)),
    shown("source", |p| Cell::text(p.source.name())),
    extra("choices", |p| Cell::text(p.choices.join(" "))),
];

pub(crate) fn set(context: &Context, args: SetArgs) -> Outcome {
    // A device path may contain '='; an assignment has no '/' before it.
    let is_assignment =
        |w: &&String| w.split_once('=').is_some_and(|(name, _)| !name.contains('/') && !name.contains(':'));
    let (assignments, words): (Vec<&String>, Vec<&String>) = args.words.iter().partition(is_assignment);
    if assignments.is_empty() {
        let example = args.words.join(" ");
        return Err(ApiError::usage("set.nothing", format!("nothing to set in: {example}"))
            .hint("write NAME=VALUE, such as: braid set read_policy=latency tank"));
    }
    let mut values = BTreeMap::new();
    for word in assignments {
        let (name, value) = assignment(word)?;
        if values.insert(name.clone(), value).is_some() {
            return Err(ApiError::usage("set.twice", format!("{name} is set twice")));
        }
    }
    let words: Vec<String> = words.into_iter().cloned().collect();
    change(context, args.change, values, &words)
}

/// `inherit NAME tank` is `set NAME= tank`.
pub(crate) fn inherit(context: &Context, args: InheritArgs) -> Outcome {
    let (names, words) = args.words.split_first().map_or(("", [].as_slice()), |(names, words)| (names.as_str(), words));
    let values = names.split(',').map(|name| (name.replace('-', "_"), String::new())).collect();
    change(context, args.change, values, words)
}

fn change(context: &Context, flags: ChangeFlags, values: BTreeMap<String, String>, words: &[String]) -> Outcome {
    if words.is_empty() {
        return Err(ApiError::usage("set.no_target", "of what? name a pool, POOL/VOLUME, or a pool and a device"));
    }
    let mut changes = Vec::new();
    for target in resolve::targets(&context.client, words)? {
        let (dry_run, force) = (flags.dry_run, flags.force);
        changes.push(context.client.call(SetProperties { target, values: values.clone(), dry_run, force })?);
    }
    for change in &changes {
        print(&if context.json {
            render::json::<SetProperties>(change, changes.len() > 1)
        } else {
            render::change(change)
        });
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_choice_stands_in_brackets() {
        for (value, choices, text) in [
            ("latency", "pid latency queue", "pid [latency] queue"),
            ("devid:2", "pid devid:2 queue", "pid [devid:2] queue"),
            ("devid:2", "pid devid:N queue", "pid [devid:2] queue"),
            ("round-robin:262144", "pid round-robin", "pid [round-robin:262144]"),
            ("5", "", "5"),
        ] {
            let property = Property {
                target: "tank".into(),
                name: "read_policy".into(),
                value: value.into(),
                source: Source::Pool,
                choices: choices.split_whitespace().map(String::from).collect(),
                read_only: false,
            };
            assert_eq!(bracketed(&property), text);
        }
    }
}
