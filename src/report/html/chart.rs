//! Charts with two axes of numbers, linear or logarithmic: dots, curves, labels on hover.

use super::parts::{colour_of, is_dashed, legend};
use crate::report::number::grouped;
use maud::{Markup, html};

/// Size of the drawing area in its own units.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 88.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 52.0;

/// A point with what is said of it.
#[derive(Debug, Clone)]
pub struct Dot {
    /// Where.
    pub x: f64,
    /// Where.
    pub y: f64,
    /// What the pointer shows.
    pub tip: String,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Dots joined by a line.
    Curve,
    /// Pale dots.
    Cloud,
    /// Crosses: something measured.
    Measured,
}

/// Dots that belong together.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Number of its colour.
    pub colour: usize,
    /// The dots, in order.
    pub dots: Vec<Dot>,
}

/// A chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Names of the axes, with units.
    pub axes: [String; 2],
    /// Whether the axes are logarithmic; those with values of 0 or below never are.
    pub log: [bool; 2],
    /// Whether both axes are one: with a line where they are equal, and one to either side 10 % off.
    pub diagonal: bool,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// One axis: its range, and how it places values from 0 to 1.
#[derive(Debug, Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return Self { low: 0.0, high: 1.0, log: false };
        }
        let log = log && low > 0.0;
        if log {
            let room = ((high / low).ln() * 0.05).max(0.05).exp();
            return Self { low: low / room, high: high * room, log };
        }
        let room = ((high - low) * 0.06).max(high.abs() * 0.02).max(1e-12);
        let floor = if low >= 0.0 { 0.0 } else { low - room };
        // A range far from 0 would be a flat line above it.
        let low = if low > 0.5 * high { low - room } else { floor };
        Self { low, high: high + room, log }
    }

    fn place(&self, value: f64) -> f64 {
        match self.log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Round values inside the range.
    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            return linear_ticks(self.low, self.high);
        }
        let decades = (self.high / self.low).log10();
        let digits: &[f64] = match decades {
            span if span > 6.0 => return power_ticks(self.low, self.high),
            span if span > 2.5 => &[1.0],
            span if span > 0.8 => &[1.0, 2.0, 5.0],
            _ => return linear_ticks(self.low, self.high),
        };
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let all = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

fn power_ticks(low: f64, high: f64) -> Vec<f64> {
    let step = ((high / low).log10() / 6.0).ceil() as usize;
    let powers = (low.log10().ceil() as i32..=high.log10().floor() as i32).step_by(step.max(1));
    powers.map(|power| 10f64.powi(power)).collect()
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * power >= raw).unwrap_or(10.0) * power;
    let first = (low / step).ceil() as i64;
    (0..12).map(|number| (first + number) as f64 * step).filter(|tick| *tick <= high).collect()
}

/// A tick in few characters.
fn label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e12 => trimmed(value / 1e12) + " T",
        v if v >= 1e9 => trimmed(value / 1e9) + " G",
        v if v >= 1e6 => trimmed(value / 1e6) + " M",
        v if v >= 1e3 && value % 100.0 == 0.0 => trimmed(value / 1e3) + " k",
        v if v >= 1e4 || (v >= 1e3 && value.fract() == 0.0) => grouped(value.round() as u64),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Chart {
    /// The chart as a figure.
    pub fn render(&self) -> Markup {
        let dots = || self.series.iter().flat_map(|series| &series.dots);
        let both = || dots().flat_map(|dot| [dot.x, dot.y]);
        let scale = |own: fn(&Dot) -> f64, log: bool| match self.diagonal {
            true => Scale::of(both(), log),
            false => Scale::of(dots().map(own), log),
        };
        let (x, y) = (scale(|dot| dot.x, self.log[0]), scale(|dot| dot.y, self.log[1]));
        let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
        let frame = html! {
            rect.frame x=(LEFT) y=(TOP) width=(WIDTH) height=(HEIGHT) {}
        };
        html! {
            figure {
                figcaption { (self.title) }
                @if self.series.len() > 1 {
                    (legend(self.series.iter().filter(|one| one.style != Style::Measured).map(|one| (one.colour, one.name.as_str()))))
                    @for series in self.series.iter().filter(|one| one.style == Style::Measured) {
                        ul.legend { li { "\u{2715} " (series.name) } }
                    }
                }
                svg.chart viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(self.title) {
                    (frame)
                    (ticks(x, y))
                    @if self.diagonal { (guides(x)) }
                    text x=(LEFT + WIDTH / 2.0) y=(height - 8.0) text-anchor="middle" { (self.axes[0]) }
                    text x="14" y=(TOP + HEIGHT / 2.0) text-anchor="middle"
                        transform=(format!("rotate(-90 14 {})", TOP + HEIGHT / 2.0)) { (self.axes[1]) }
                    @for series in &self.series { (series.render(x, y)) }
                }
            }
        }
    }
}

/// Where both axes are equal, and where they are 10 % apart.
fn guides(scale: Scale) -> Markup {
    let line = |factor: f64| {
        let (low, high) = (scale.low.max(scale.low / factor), scale.high.min(scale.high / factor));
        let at = |value: f64| {
            let (x, y) = (scale.place(value), scale.place(value * factor));
            format!("{:.1} {:.1}", LEFT + x * WIDTH, TOP + (1.0 - y) * HEIGHT)
        };
        format!("M{}L{}", at(low), at(high))
    };
    html! {
        path.exact d=(line(1.0)) {}
        path.near d=(line(1.1)) {}
        path.near d=(line(1.0 / 1.1)) {}
    }
}

fn ticks(x: Scale, y: Scale) -> Markup {
    let (right, below) = (LEFT + WIDTH, TOP + HEIGHT);
    html! {
        @for tick in x.ticks() {
            @let at = LEFT + x.place(tick) * WIDTH;
            line.grid x1=(short(at)) x2=(short(at)) y1=(TOP) y2=(below) {}
            text x=(short(at)) y=(below + 19.0) text-anchor="middle" { (label(tick)) }
        }
        @for tick in y.ticks() {
            @let at = TOP + (1.0 - y.place(tick)) * HEIGHT;
            line.grid x1=(LEFT) x2=(right) y1=(short(at)) y2=(short(at)) {}
            text x=(LEFT - 6.0) y=(short(at + 5.0)) text-anchor="end" { (label(tick)) }
        }
    }
}

fn short(value: f64) -> String {
    format!("{value:.1}")
}

impl Series {
    fn render(&self, x: Scale, y: Scale) -> Markup {
        let place = |dot: &Dot| (LEFT + x.place(dot.x) * WIDTH, TOP + (1.0 - y.place(dot.y)) * HEIGHT);
        let visible = || self.dots.iter().filter(|dot| place(dot).0.is_finite() && place(dot).1.is_finite());
        let path: Vec<String> = visible()
            .map(|dot| {
                let (x, y) = place(dot);
                format!("{x:.1} {y:.1}")
            })
            .collect();
        let colour = colour_of(self.colour);
        html! {
            @if self.style == Style::Curve && path.len() > 1 {
                path.curve.dashed[is_dashed(self.colour)] d=(format!("M{}", path.join("L"))) style=(format!("stroke:{colour}")) {}
            }
            @for dot in visible() {
                @let (x, y) = place(dot);
                @match self.style {
                    Style::Measured => path.cross data-tip=(dot.tip)
                        d=(format!("M{:.1} {:.1}l10 10m0 -10l-10 10", x - 5.0, y - 5.0)) {},
                    style => circle.dot.faint[style == Style::Cloud] cx=(short(x)) cy=(short(y)) r="4.5"
                        style=(format!("fill:{colour}")) data-tip=(dot.tip) {},
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_inside() {
        for (low, high, log) in
            [(0.0, 1.0, false), (3.0, 3.1, false), (8.0, 16_384.0, true), (1e-9, 1e9, true), (5.0, 6.0, true)]
        {
            let scale = Scale::of([low, high].into_iter(), log);
            let ticks = scale.ticks();
            assert!((2..=14).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (-0.001..=1.001).contains(&scale.place(*tick))));
        }
    }

    #[test]
    fn a_chart_without_dots_or_with_one_is_a_chart() {
        let chart = |dots: Vec<Dot>| Chart {
            title: "a < b".to_owned(),
            axes: ["x".to_owned(), "y".to_owned()],
            log: [true, true],
            diagonal: true,
            series: vec![Series { name: "s".to_owned(), style: Style::Curve, colour: 0, dots }],
        };
        for dots in [Vec::new(), vec![Dot { x: 1.0, y: 0.0, tip: "\"<x>".to_owned() }]] {
            let text = chart(dots).render().into_string();
            assert!(text.contains("a &lt; b") && !text.contains("NaN") && !text.contains("inf"));
        }
    }
}
