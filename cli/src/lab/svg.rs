//! Plots as SVG: bars, shares, lines. No scripts, no fonts of its own, text in the colour of the page.
//!
//! The palette is that of Okabe and Ito, which stays apart for the colour-blind.

use braid_sim::table::Plot;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// Room for the axis, the title with legend and unit, and the right end.
const LEFT: f64 = 70.0;
const TOP: f64 = 66.0;
const RIGHT: f64 = 14.0;
/// The foot of bars and lines.
const FOOT: f64 = 242.0;
/// Room below the foot for level names, and for the unit of an axis.
const BELOW: f64 = 66.0;
/// Names that do not fit beside each other are turned by so many degrees.
const TURN: f64 = 50.0;
const PALETTE: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#888888"];
/// Text of a legend, a letter's width.
const LETTER: f64 = 6.6;

/// The picture, as an element that stands in a page by itself.
pub(super) fn draw(plot: &Plot) -> String {
    match plot {
        Plot::Bars { title, unit, series, groups } => bars(title, unit, series, groups, Stack::Beside),
        Plot::Shares { title, series, groups } => bars(title, "%", series, &shares(groups), Stack::Upon),
        Plot::Lines { title, units, log, lines } => self::lines(title, *units, *log, lines),
    }
}

fn shares(groups: &[(String, Vec<f64>)]) -> Vec<(String, Vec<f64>)> {
    let of = |amounts: &[f64]| {
        let sum: f64 = amounts.iter().sum();
        amounts.iter().map(|a| if sum > 0.0 { a / sum * 100.0 } else { 0.0 }).collect()
    };
    groups.iter().map(|(name, amounts)| (name.clone(), of(amounts))).collect()
}

/// Text that may stand in SVG and HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number in few letters: `1.5M`, `250k`, `0.25`.
pub(super) fn short(value: f64) -> String {
    let of = |value: f64, unit: &str| {
        let digits = if value.abs() >= 100.0 || value.fract().abs() < 1e-9 { 0 } else { 1 };
        format!("{value:.digits$}{unit}")
    };
    match value.abs() {
        v if v >= 1e9 => of(value / 1e9, "G"),
        v if v >= 1e6 => of(value / 1e6, "M"),
        v if v >= 1e4 => of(value / 1e3, "k"),
        v if v >= 1.0 || v == 0.0 => of(value, ""),
        _ => format!("{value:.2}"),
    }
}

/// From values to places along one axis.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let scaled = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).log10() } else { v };
        let (low, high) = (scaled(self.low), scaled(self.high));
        let share = if high > low { (scaled(value) - low) / (high - low) } else { 0.0 };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round numbers from end to end: powers of ten if logarithmic, else about five of 1, 2 or 5.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let all = (low..=high).map(|e| 10f64.powi(e));
            return all.filter(|v| (self.low..=self.high).contains(v)).collect();
        }
        let raw = (self.high - self.low) / 5.0;
        if raw <= 0.0 {
            return vec![self.low];
        }
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= raw).unwrap_or(raw);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|v| *v <= self.high * 1.0001).collect()
    }
}

fn begin(title: &str, series: &[String], below: f64) -> String {
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{t}\" xmlns=\"http://www.w3.org/2000/svg\">\
         <text x=\"{LEFT}\" y=\"18\" class=\"title\">{t}</text>\n",
        t = escape(title),
        height = FOOT + below
    );
    let mut x = LEFT;
    for (i, name) in series.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.1}\" y=\"39\">{}</text>",
            colour(i),
            x + 14.0,
            escape(name)
        );
        x += 30.0 + name.chars().count() as f64 * LETTER;
    }
    out
}

fn colour(i: usize) -> &'static str {
    PALETTE[i % PALETTE.len()]
}

/// Lines across, with their numbers.
fn scale_up(out: &mut String, axis: &Axis, unit: &str) {
    for tick in axis.ticks() {
        let y = axis.place(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(tick)
        );
    }
    let _ = writeln!(out, "<text x=\"4\" y=\"{:.1}\">{}</text>", TOP - 8.0, escape(unit));
}

/// How bars of one group stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    Beside,
    Upon,
}

fn bars(title: &str, unit: &str, series: &[String], groups: &[(String, Vec<f64>)], stack: Stack) -> String {
    let room = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let longest = groups.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) as f64 * LETTER;
    // All names of a picture stand alike.
    let turn = if longest <= room { 0.0 } else { TURN };
    let mut out = begin(title, series, BELOW.max(longest * turn.to_radians().sin() + 30.0));
    let tallest = groups.iter().flat_map(|(_, values)| values).fold(0.0, |a: f64, b| a.max(*b));
    let high = if stack == Stack::Upon { 100.0 } else { tallest.max(f64::MIN_POSITIVE) };
    let up = Axis { low: 0.0, high, log: false, from: FOOT, to: TOP };
    scale_up(&mut out, &up, unit);
    for (g, (name, values)) in groups.iter().enumerate() {
        let left = LEFT + g as f64 * room;
        let count = if stack == Stack::Upon { 1 } else { values.len().max(1) };
        let wide = (room * 0.8 / count as f64).min(40.0);
        let start = left + (room - wide * count as f64) / 2.0;
        let mut below = 0.0;
        for (i, value) in values.iter().enumerate() {
            let x = start + if stack == Stack::Upon { 0.0 } else { i as f64 * wide };
            let (y, foot) = (up.place(below + value), up.place(below));
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>{}: {} {value:.4} {}</title></rect>",
                (wide - 1.0).max(0.5),
                (foot - y).max(0.0),
                colour(i),
                escape(name),
                escape(series.get(i).map_or("", |s| s)),
                escape(unit)
            );
            if stack == Stack::Upon {
                below += value;
            }
        }
        label(&mut out, left + room / 2.0, turn, name);
    }
    out + "</svg>\n"
}

/// The name of a group, level or turned by so many degrees.
fn label(out: &mut String, x: f64, turn: f64, name: &str) {
    let y = FOOT + 16.0;
    let (class, turn) = match turn > 0.0 {
        true => ("end", format!(" transform=\"rotate(-{turn} {x:.1} {y:.1})\"")),
        false => ("mid", String::new()),
    };
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{turn}>{}</text>", escape(name));
}

type Line = (String, Vec<(f64, f64)>);

fn lines(title: &str, units: (&str, &str), log: (bool, bool), lines: &[Line]) -> String {
    let names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
    let mut out = begin(title, &names, BELOW);
    let shown = |(x, y): &(f64, f64)| (!log.0 || *x > 0.0) && (!log.1 || *y > 0.0);
    let points = || lines.iter().flat_map(|(_, points)| points).filter(|p| shown(p));
    let span = |of: fn(&(f64, f64)) -> f64, log: bool| {
        let (low, high) = points().map(of).fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let low = if log { low } else { 0.0 };
        if low.is_finite() && high > low { (low, high) } else { (0.5, 1.0) }
    };
    let (across, up) = (span(|p| p.0, log.0), span(|p| p.1, log.1));
    let across = Axis { low: across.0, high: across.1, log: log.0, from: LEFT, to: WIDTH - RIGHT };
    let up = Axis { low: up.0, high: up.1, log: log.1, from: FOOT, to: TOP };
    scale_up(&mut out, &up, units.1);
    for tick in across.ticks() {
        label(&mut out, across.place(tick), 0.0, &short(tick));
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
        WIDTH - RIGHT,
        FOOT + 36.0,
        escape(units.0)
    );
    for (i, (_, points)) in lines.iter().enumerate() {
        let path: Vec<String> = points
            .iter()
            .filter(|p| shown(p))
            .map(|(x, y)| format!("{:.1},{:.1}", across.place(*x), up.place(*y)))
            .collect();
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>", path.join(" "), colour(i));
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heights(svg: &str) -> Vec<f64> {
        let all = svg.split("height=\"").skip(1).filter(|s| s.contains("<title>"));
        all.map(|s| s.split('"').next().unwrap_or_default().parse().expect("a number")).collect()
    }

    #[test]
    fn bars_are_as_tall_as_their_values() {
        let groups = vec![("a<b".to_string(), vec![1.0, 2.0]), ("c".to_string(), vec![4.0, 0.0])];
        let series = vec!["x".to_string(), "y".to_string()];
        let svg =
            draw(&Plot::Bars { title: "t".into(), unit: "MiB/s", series: series.clone(), groups: groups.clone() });
        let full = FOOT - TOP;
        assert_eq!(heights(&svg), [full / 4.0, full / 2.0, full, 0.0]);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        let svg = draw(&Plot::Shares { title: "t".into(), series, groups });
        let third = (full / 3.0 * 10.0).round() / 10.0;
        assert_eq!(heights(&svg), [third, (full * 20.0 / 3.0).round() / 10.0, full, 0.0]);
    }

    #[test]
    fn long_names_are_turned_all_of_them_and_stay_within_the_picture() {
        let bars = |names: &[&str]| {
            let groups = names.iter().map(|name| (name.to_string(), vec![1.0])).collect();
            draw(&Plot::Bars { title: "t".into(), unit: "s", series: vec!["x".into()], groups })
        };
        assert!(!bars(&["short", "names"]).contains("rotate"));
        let long = "mq-deadline, busy_threshold=64, and more";
        let svg = bars(&["short", long, "c", "d", "e", "f"]);
        assert_eq!(svg.matches("rotate").count(), 6);
        let height: f64 =
            svg.split("viewBox=\"0 0 860 ").nth(1).and_then(|s| s.split('"').next()?.parse().ok()).expect("it");
        let deep = long.len() as f64 * LETTER * TURN.to_radians().sin();
        assert!(height >= FOOT + 16.0 + deep, "{height}");
    }

    #[test]
    fn axes_have_round_numbers() {
        let axis = |low, high, log| Axis { low, high, log, from: 0.0, to: 100.0 };
        assert_eq!(axis(0.0, 10.0, false).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(axis(0.5, 2000.0, true).ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(axis(1.0, 100.0, true).place(10.0), 50.0);
        assert_eq!(axis(0.0, 0.0, false).ticks(), [0.0]);
        for (value, text) in [(0.0, "0"), (0.25, "0.25"), (9.5, "9.5"), (25_000.0, "25k"), (1_500_000.0, "1.5M")] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn what_cannot_stand_on_a_logarithmic_axis_is_left_out() {
        let points = vec![(0.0, 1.0), (1.0, 1.0), (10.0, 0.0), (100.0, 10.0)];
        let svg = draw(&Plot::Lines {
            title: "t".into(),
            units: ("ms", "reads"),
            log: (true, true),
            lines: vec![("a".into(), points)],
        });
        let line = svg.split("points=\"").nth(1).and_then(|s| s.split('"').next()).expect("a line");
        assert_eq!(line, format!("{LEFT}.0,{FOOT}.0 {}.0,{TOP}.0", WIDTH - RIGHT).replace(".0.0", ".0"));
        let empty = draw(&Plot::Lines { title: "t".into(), units: ("", ""), log: (false, false), lines: vec![] });
        assert!(empty.ends_with("</svg>\n") && !empty.contains("NaN"));
    }
}
