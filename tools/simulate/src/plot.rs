//! Curves as SVG, the same bytes each time.

use std::fmt::Write;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 34.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 44.0;

/// A curve of settings: what each costs, against what it spares.
#[derive(Debug)]
pub struct Panel {
    /// What is compared.
    pub title: &'static str,
    /// The axis to the right.
    pub across: &'static str,
    /// The axis upwards.
    pub up: &'static str,
    /// Name, place and whether it is the default.
    pub points: Vec<(String, f64, f64, bool)>,
}

/// Draws panels beside each other.
pub fn draw(panels: &[Panel]) -> String {
    let mut wide = 0.0;
    let mut body = String::new();
    for panel in panels {
        panel.draw(&mut body, wide);
        wide += WIDTH;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {HEIGHT:.0}\" width=\"{wide:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// A round number that is not below this one.
fn ceiling(largest: f64) -> f64 {
    let mut step = 0.001;
    while step < 1e9 {
        for times in [1.0, 2.0, 5.0] {
            if step * times >= largest {
                return step * times;
            }
        }
        step *= 10.0;
    }
    largest
}

impl Panel {
    fn draw(&self, body: &mut String, offset: f64) {
        let across = ceiling(self.points.iter().map(|point| point.1).fold(0.001, f64::max));
        let up = ceiling(self.points.iter().map(|point| point.2).fold(0.001, f64::max));
        let x = |value: f64| offset + LEFT + value / across * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / up * (HEIGHT - TOP - BOTTOM);
        let mut text = |x: f64, y: f64, how: &str, words: &str| {
            // Writing to a string does not fail.
            let _written = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" {how}>{words}</text>");
        };
        text(offset + WIDTH / 2.0, 18.0, "text-anchor=\"middle\" font-weight=\"bold\"", self.title);
        text(x(across / 2.0), HEIGHT - 10.0, "text-anchor=\"middle\"", self.across);
        let (left, middle) = (offset + 12.0, y(up / 2.0));
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 {left:.1} {middle:.1})\"");
        text(left, middle, &turned, self.up);
        for share in [0.0, 0.5, 1.0] {
            text(x(across * share), y(0.0) + 14.0, "text-anchor=\"middle\" fill=\"#666\"", &short(across * share));
            text(x(0.0) - 4.0, y(up * share) + 4.0, "text-anchor=\"end\" fill=\"#666\"", &short(up * share));
        }
        for (name, right, high, default) in &self.points {
            let weight = if *default { "font-weight=\"bold\"" } else { "" };
            let (end, side) = if x(*right) > offset + WIDTH - 70.0 { ("end", -7.0) } else { ("start", 7.0) };
            text(x(*right) + side, y(*high) - 6.0, &format!("text-anchor=\"{end}\" {weight}"), name);
        }
        let corner = format!("{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}", x(0.0), y(up), x(0.0), y(0.0), x(across), y(0.0));
        let curve: Vec<String> =
            self.points.iter().map(|point| format!("{:.1},{:.1}", x(point.1), y(point.2))).collect();
        for (points, colour) in [(corner, "#999"), (curve.join(" "), "#2a6f97")] {
            let _written = writeln!(body, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>");
        }
        for (_, right, high, default) in &self.points {
            let colour = if *default { "#c1121f" } else { "#2a6f97" };
            let _written =
                writeln!(body, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>", x(*right), y(*high));
        }
    }
}

fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (largest, expected) in [(0.3, 0.5), (1.0, 1.0), (1.1, 2.0), (37.0, 50.0), (99.0, 100.0)] {
            assert!((ceiling(largest) - expected).abs() < 1e-9, "{largest}: {}", ceiling(largest));
        }
    }
}
