//! Curves as SVG, both axes by powers of ten, the same bytes for the same figures.

use std::fmt::Write;

use crate::report::{Curve, Line, plain};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 48.0;
const COLOURS: [&str; 5] = ["#2a6f97", "#c1121f", "#588157", "#b5651d", "#6a4c93"];

/// An axis by powers of ten.
#[derive(Debug, Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// From the power of ten below all values to the one above.
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let least = positive.clone().fold(f64::INFINITY, f64::min).log10().floor();
        let most = positive.fold(f64::NEG_INFINITY, f64::max).log10().ceil();
        let least = if least.is_finite() { least } else { 0.0 };
        let most = if most.is_finite() { most.max(least + 1.0) } else { least + 1.0 };
        Self { least, most, from, to }
    }

    fn place(self, value: f64) -> f64 {
        let exponent = if value > 0.0 { value.log10() } else { self.least };
        self.from + (exponent - self.least) / (self.most - self.least) * (self.to - self.from)
    }

    fn marks(self) -> impl Iterator<Item = f64> {
        let mut exponent = self.least;
        std::iter::from_fn(move || {
            let mark = 10_f64.powf(exponent);
            exponent += 1.0;
            (exponent <= self.most + 1.5).then_some(mark)
        })
        .take_while(move |mark| mark.log10() <= self.most + 0.5)
    }
}

/// Draws a curve with a line for each operation.
pub(crate) fn draw(curve: &Curve) -> String {
    let points: Vec<(f64, f64)> = curve.lines.iter().flat_map(Line::middles).collect();
    let across = Axis::new(points.iter().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let up = Axis::new(points.iter().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut body = String::new();
    let mut put = |element: String| {
        // Writing to a string does not fail.
        let _written = writeln!(body, "{element}");
    };
    let text = |x: f64, y: f64, how: &str, words: &str| {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {how}>{words}</text>")
    };
    put(text(LEFT, 20.0, "font-weight=\"bold\" font-size=\"13\"", curve.title));
    put(text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0, "text-anchor=\"middle\"", curve.across));
    put(text(
        14.0,
        HEIGHT / 2.0,
        &format!("text-anchor=\"middle\" transform=\"rotate(-90 14 {})\"", HEIGHT / 2.0),
        curve.up,
    ));
    for mark in up.marks() {
        let y = up.place(mark);
        put(format!("<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>", WIDTH - RIGHT));
        put(text(LEFT - 6.0, y + 4.0, "text-anchor=\"end\" fill=\"#666\"", &plain(mark)));
    }
    let places = curve.lines.first().map(Line::middles).unwrap_or_default();
    for (at, _) in places {
        put(text(across.place(at), HEIGHT - BOTTOM + 16.0, "text-anchor=\"middle\" fill=\"#666\"", &plain(at)));
    }
    for (number, (line, colour)) in curve.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let middles = line.middles();
        let places: Vec<(f64, f64)> = middles.iter().map(|(x, y)| (across.place(*x), up.place(*y))).collect();
        let way: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        put(format!("<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>", way.join(" ")));
        for (x, y) in places {
            put(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
        }
        let y = TOP + 14.0 + 18.0 * number as f64;
        put(text(WIDTH - RIGHT + 12.0, y, &format!("fill=\"{colour}\""), &line.name));
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::curve;

    #[test]
    fn axes_span_whole_powers_of_ten() {
        let axis = Axis::new([3.0, 250.0].into_iter(), 0.0, 300.0);
        assert_eq!(axis.marks().map(|mark| mark.round()).collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.place(100.0) - 200.0).abs() < 1e-9);
        assert!((axis.place(0.0) - 0.0).abs() < 1e-9);
    }

    #[test]
    fn every_line_is_drawn_once_and_words_are_escaped() {
        let drawn = draw(&curve());
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert_eq!(drawn.matches("<circle").count(), 6);
        assert!(drawn.contains("two &amp; more"), "{drawn}");
        assert_eq!(drawn, draw(&curve()));
    }

    #[test]
    fn nothing_at_all_is_drawn_too() {
        let empty = Curve { lines: vec![Line::new("none")], ..curve() };
        assert!(draw(&empty).contains("</svg>"));
    }
}
