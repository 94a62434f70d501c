//! Plots as SVG: bars, shares, lines. No scripts, no fonts of its own, text in the colour of the page.
//!
//! The palette is that of Okabe and Ito, which stays apart for the colour-blind.

use braid_sim::table::Plot;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
/// Where what is drawn begins and ends: title and legend are above, names below. See [`Frame`] for the rest.
const TOP: f64 = 52.0;
const FOOT: f64 = 236.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 14.0;
/// From the axis to what stands below it, and from line to line there.
const BELOW: f64 = 16.0;
const LINE: f64 = 15.0;
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

    /// As it is, or up to the next round numbers where fewer than two are on it.
    fn with_ticks(self) -> Axis {
        if !self.log || self.ticks().len() > 1 {
            return self;
        }
        let around = |e: f64| [1.0, 2.0, 5.0, 10.0].map(|f| f * 10f64.powf(e.floor()));
        let low = around(self.low.log10()).into_iter().rfind(|v| *v <= self.low).unwrap_or(self.low);
        let high = around(self.high.log10()).into_iter().find(|v| *v >= self.high).unwrap_or(self.high);
        Axis { low, high, ..self }
    }

    /// Round numbers from end to end: powers of ten if logarithmic, their 2 and 5 times too where those are few; else
    /// about five of 1, 2 or 5.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let times = |factors: &[f64]| -> Vec<f64> {
                let all = (low..=high).flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)));
                all.filter(|v| (self.low..=self.high).contains(v)).collect()
            };
            let tens = times(&[1.0]);
            return if tens.len() < 3 { times(&[1.0, 2.0, 5.0]) } else { tens };
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

/// How much room names below the axis need, and to its left.
struct Frame {
    left: f64,
    height: f64,
    /// Names that don't fit beside one another even on several lines stand slanted, all of them.
    slanted: bool,
}

/// Most lines of a name.
const LINES_MAX: usize = 4;
/// 45 degrees: what a slanted name takes to the left and below, for each letter.
const SLANTED_LETTER: f64 = LETTER * std::f64::consts::FRAC_1_SQRT_2;

impl Frame {
    fn new(names: &[&str]) -> Frame {
        let room = room(LEFT, names.len());
        let wrapped: Vec<Vec<String>> = names.iter().map(|name| wrap(name, room)).collect();
        let fits = |lines: &Vec<String>| lines.len() <= LINES_MAX && lines.iter().all(|line| width(line) <= room);
        let lines = wrapped.iter().map(Vec::len).max().unwrap_or(1) as f64;
        if wrapped.iter().all(fits) {
            return Frame { left: LEFT, height: FOOT + BELOW + lines * LINE, slanted: false };
        }
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * SLANTED_LETTER;
        Frame { left: LEFT.max(longest), height: FOOT + 2.0 * BELOW + longest, slanted: true }
    }

    /// The name of what stands at `x`.
    fn label(&self, out: &mut String, x: f64, room: f64, name: &str) {
        let y = FOOT + BELOW;
        if self.slanted {
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"end\" transform=\"rotate(-45 {x:.1} {y:.1})\">{}</text>",
                escape(name)
            );
            return;
        }
        for (i, line) in wrap(name, room).iter().enumerate() {
            let y = y + i as f64 * LINE;
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"mid\">{}</text>", escape(line));
        }
    }
}

/// For each of so many groups.
fn room(left: f64, groups: usize) -> f64 {
    (WIDTH - left - RIGHT) / groups.max(1) as f64
}

fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Lines that are no wider than `room`, where words allow that.
fn wrap(text: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= room => *line = format!("{line} {word}"),
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Title with what is shown, and the legend.
fn begin(title: &str, unit: &str, series: &[String], frame: &Frame) -> String {
    let (left, height) = (frame.left, frame.height);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{t}\" xmlns=\"http://www.w3.org/2000/svg\">\
         <text x=\"{left:.1}\" y=\"18\"><tspan class=\"title\">{t}</tspan><tspan dx=\"10\">{u}</tspan></text>\n",
        t = escape(title),
        u = escape(unit)
    );
    let mut x = left;
    for (i, name) in series.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.1}\" y=\"39\">{}</text>",
            colour(i),
            x + 14.0,
            escape(name)
        );
        x += 30.0 + width(name);
    }
    out
}

fn colour(i: usize) -> &'static str {
    PALETTE[i % PALETTE.len()]
}

/// Lines across, with their numbers.
fn scale_up(out: &mut String, axis: &Axis, left: f64) {
    for tick in axis.ticks() {
        let y = axis.place(tick);
        let _ = writeln!(
            out,
            "<line x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
            WIDTH - RIGHT,
            left - 6.0,
            y + 4.0,
            short(tick)
        );
    }
}

/// How bars of one group stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    Beside,
    Upon,
}

fn bars(title: &str, unit: &str, series: &[String], groups: &[(String, Vec<f64>)], stack: Stack) -> String {
    let frame = Frame::new(&groups.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    let mut out = begin(title, unit, series, &frame);
    let tallest = groups.iter().flat_map(|(_, values)| values).fold(0.0, |a: f64, b| a.max(*b));
    let high = if stack == Stack::Upon { 100.0 } else { tallest.max(f64::MIN_POSITIVE) };
    let up = Axis { low: 0.0, high, log: false, from: FOOT, to: TOP };
    scale_up(&mut out, &up, frame.left);
    let room = room(frame.left, groups.len());
    for (g, (name, values)) in groups.iter().enumerate() {
        let left = frame.left + g as f64 * room;
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
        frame.label(&mut out, left + room / 2.0, room, name);
    }
    out + "</svg>\n"
}

type Line = (String, Vec<(f64, f64)>);

fn lines(title: &str, units: (&str, &str), log: (bool, bool), lines: &[Line]) -> String {
    let names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
    // Numbers, and below them what they count.
    let frame = Frame { left: LEFT, height: FOOT + BELOW + 2.0 * LINE, slanted: false };
    let mut out = begin(title, units.1, &names, &frame);
    let shown = |(x, y): &(f64, f64)| (!log.0 || *x > 0.0) && (!log.1 || *y > 0.0);
    let points = || lines.iter().flat_map(|(_, points)| points).filter(|p| shown(p));
    let span = |of: fn(&(f64, f64)) -> f64, begins_at_zero: bool| {
        let (low, high) = points().map(of).fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let low = if begins_at_zero { 0.0 } else { low };
        if low.is_finite() && high > low { (low, high) } else { (0.5, 1.0) }
    };
    // What is before the first point says nothing; a height is read against zero.
    let (across, up) = (span(|p| p.0, false), span(|p| p.1, !log.1));
    let across = Axis { low: across.0, high: across.1, log: log.0, from: LEFT, to: WIDTH - RIGHT };
    let up = Axis { low: up.0, high: up.1, log: log.1, from: FOOT, to: TOP }.with_ticks();
    scale_up(&mut out, &up, LEFT);
    for tick in across.ticks() {
        frame.label(&mut out, across.place(tick), 60.0, &short(tick));
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
        WIDTH - RIGHT,
        FOOT + BELOW + LINE + 3.0,
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
    fn axes_have_round_numbers() {
        let axis = |low, high, log| Axis { low, high, log, from: 0.0, to: 100.0 };
        assert_eq!(axis(0.0, 10.0, false).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(axis(0.5, 2000.0, true).ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(axis(400.0, 2100.0, true).ticks(), [500.0, 1000.0, 2000.0]);
        let wider = axis(600.0, 1900.0, true).with_ticks();
        assert_eq!((wider.low, wider.high, wider.ticks()), (500.0, 2000.0, vec![500.0, 1000.0, 2000.0]));
        assert_eq!(axis(400.0, 2100.0, true).with_ticks().low, 400.0);
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
        assert_eq!(line, format!("{LEFT:.1},{FOOT:.1} {:.1},{TOP:.1}", WIDTH - RIGHT));
        let late = vec![(5.0, 1.0), (10.0, 2.0)];
        let svg = draw(&Plot::Lines {
            title: "t".into(),
            units: ("s", ""),
            log: (false, false),
            lines: vec![("a".into(), late)],
        });
        assert!(svg.contains(&format!("points=\"{LEFT:.1},")), "begins where something is: {svg}");
        let empty = draw(&Plot::Lines { title: "t".into(), units: ("", ""), log: (false, false), lines: vec![] });
        assert!(empty.ends_with("</svg>\n") && !empty.contains("NaN"));
    }

    /// Every name lies within the picture, measured by the letter.
    #[test]
    fn names_are_not_cut_off() {
        let names = |n: usize, name: &str| -> Vec<String> { (0..n).map(|i| format!("{name} {i}")).collect() };
        for (names, slanted) in [
            (names(3, "HDD"), false),
            (names(6, "SSD + HDD, tiers, host passes flushes on"), false),
            (names(20, "memory store, write, at most"), true),
            (names(4, "mq-deadline,queue_depth=64,and-no-blank-anywhere"), true),
        ] {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let frame = Frame::new(&names);
            assert_eq!(frame.slanted, slanted, "{names:?}");
            let room = room(frame.left, names.len());
            let (mut svg, first) = (String::new(), frame.left + room / 2.0);
            frame.label(&mut svg, first, room, names[0]);
            let longest = svg.split("</text>").filter_map(|s| s.rsplit('>').next()).map(width).fold(0.0, f64::max);
            let (beside, below) = match slanted {
                true => (longest * std::f64::consts::FRAC_1_SQRT_2, BELOW + longest * std::f64::consts::FRAC_1_SQRT_2),
                false => (longest / 2.0, BELOW + (svg.matches("<text").count() as f64 - 1.0) * LINE),
            };
            assert!(first - beside >= 0.0 && FOOT + below <= frame.height, "{names:?}: {svg}");
        }
    }
}
