//! A strict reader of the Prometheus text format 0.0.4, for what may go wrong in writing it.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// What a page says, after every rule was checked.
pub(crate) struct Page {
    samples: BTreeMap<(String, Labels), f64>,
}

impl Page {
    /// The value of a sample with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        self.samples.get(&(name.to_string(), labels)).copied()
    }

    pub(crate) fn parse(text: &str) -> Result<Page, String> {
        let mut families: BTreeMap<String, String> = BTreeMap::new();
        let (mut helped, mut current) = (String::new(), String::new());
        let mut samples = BTreeMap::new();
        // Buckets of a histogram in the order they stand, by labels without `le`.
        let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for line in text.lines() {
            let wrong = |what: &str| Err(format!("{what}: {line}"));
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let Some((name, help)) = rest.split_once(' ') else { return wrong("no help") };
                if help.trim().is_empty() || !is_name(name, true) {
                    return wrong("bad help");
                }
                helped = name.into();
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let Some((name, kind)) = rest.split_once(' ') else { return wrong("no type") };
                if helped != name || !["counter", "gauge", "histogram"].contains(&kind) {
                    return wrong("a type without its help, or unknown");
                }
                if (kind == "counter") != name.ends_with("_total") {
                    return wrong("counters and only they end in _total");
                }
                if families.insert(name.into(), kind.into()).is_some() {
                    return wrong("a family twice");
                }
                current = name.into();
                continue;
            }
            let (name, labels, value) = sample(line)?;
            let kind = families.get(&current).map_or("", String::as_str);
            let ending = name.strip_prefix(current.as_str()).unwrap_or("?");
            let fits = match kind {
                "histogram" => ["_bucket", "_sum", "_count"].contains(&ending),
                _ => ending.is_empty(),
            };
            if !fits {
                return wrong("a sample outside of its family");
            }
            if kind != "gauge" && value < 0.0 {
                return wrong("a counter below zero");
            }
            if ending == "_bucket" {
                let mut rest = labels.clone();
                let Some(le) = rest.remove("le").and_then(|le| number(&le)) else {
                    return wrong("a bucket without le");
                };
                buckets.entry((current.clone(), rest)).or_default().push((le, value));
            }
            if samples.insert((name, labels), value).is_some() {
                return wrong("a sample twice");
            }
        }
        for ((name, labels), buckets) in &buckets {
            let wrong = |what: &str| Err(format!("{name} {labels:?}: {what}: {buckets:?}"));
            if !buckets.windows(2).all(|w| w[0].0 < w[1].0) {
                return wrong("le does not rise");
            }
            if !buckets.windows(2).all(|w| w[0].1 <= w[1].1) {
                return wrong("not cumulative");
            }
            let get = |ending: &str| samples.get(&(format!("{name}{ending}"), labels.clone())).copied();
            let last = buckets.last().copied().unwrap_or((0.0, 0.0));
            if last.0 != f64::INFINITY || get("_count") != Some(last.1) || get("_sum").is_none() {
                return wrong("+Inf, _count and _sum");
            }
        }
        let shapes: BTreeSet<usize> = buckets.values().map(Vec::len).collect();
        if shapes.len() > 2 {
            return Err(format!("two histograms are written, {} shapes are there", shapes.len()));
        }
        Ok(Page { samples })
    }
}

fn is_name(name: &str, colon: bool) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || (colon && b == b':');
    name.bytes().next().is_some_and(|b| rest(b) && !b.is_ascii_digit()) && name.bytes().all(rest)
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        _ if text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'e' | b'+')) => text.parse().ok(),
        _ => None,
    }
}

/// `name{label="value",…} 1.5`.
fn sample(line: &str) -> Result<(String, Labels, f64), String> {
    let wrong = |what: &str| format!("{what}: {line}");
    let end = line.find(['{', ' ']).ok_or_else(|| wrong("no value"))?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err(wrong("bad name"));
    }
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or_else(|| wrong("bad label"))?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let close = loop {
                match chars.next() {
                    Some((at, '"')) => break at,
                    Some((_, '\\')) => value.push(match chars.next() {
                        Some((_, 'n')) => '\n',
                        Some((_, c @ ('\\' | '"'))) => c,
                        _ => return Err(wrong("bad escape")),
                    }),
                    Some((_, c)) => value.push(c),
                    None => return Err(wrong("a value without an end")),
                }
            };
            if !is_name(label, false) || labels.insert(label.into(), value).is_some() {
                return Err(wrong("bad label"));
            }
            rest = &after[close + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').ok_or_else(|| wrong("labels without an end"))?;
    }
    let value = rest.strip_prefix(' ').and_then(number).ok_or_else(|| wrong("bad value"))?;
    Ok((name.into(), labels, value))
}

#[test]
fn the_reader_is_strict() {
    let good = "# HELP a_total x y\n# TYPE a_total counter\na_total{p=\"q\\\"\\\\\\n,}\"} 3\na_total 4\n";
    let page = Page::parse(good).expect("valid");
    assert_eq!((page.value("a_total", &[("p", "q\"\\\n,}")]), page.value("a_total", &[])), (Some(3.0), Some(4.0)));
    let h = "# HELP h x\n# TYPE h histogram\n";
    for bad in [
        "a 3\n".to_string(),
        "# TYPE a gauge\na 3\n".into(),
        "# HELP a x\n# TYPE a counter\na 3\n".into(),
        "# HELP a x\n# TYPE a gauge\na 3\na 4\n".into(),
        "# HELP a x\n# TYPE a gauge\na{p=\"q} 3\n".into(),
        "# HELP a x\n# TYPE a gauge\na{p=\"\\q\"} 3\n".into(),
        "# HELP a x\n# TYPE a gauge\na{p-q=\"\"} 3\n".into(),
        "# HELP a x\n# TYPE a gauge\na three\n".into(),
        "# HELP a x\n# TYPE a gauge\nb 3\n".into(),
        format!("{h}h_bucket{{le=\"1\"}} 2\nh_bucket{{le=\"+Inf\"}} 1\nh_sum 1\nh_count 1\n"),
        format!("{h}h_bucket{{le=\"2\"}} 1\nh_bucket{{le=\"1\"}} 1\nh_bucket{{le=\"+Inf\"}} 1\nh_sum 1\nh_count 1\n"),
        format!("{h}h_bucket{{le=\"1\"}} 1\nh_sum 1\nh_count 1\n"),
        format!("{h}h_bucket{{le=\"+Inf\"}} 1\nh_sum 1\nh_count 2\n"),
        format!("{h}h_bucket{{le=\"+Inf\"}} 1\nh_count 1\n"),
    ] {
        assert!(Page::parse(&bad).is_err(), "{bad}");
    }
}
