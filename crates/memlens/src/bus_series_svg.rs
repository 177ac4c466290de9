//! A series as a picture: a panel for each quantity, a line for each object, runs from left to right.
//!
//! Values are those relative to the first run, so that objects of different sizes fit one scale; each panel's begins at
//! zero. Plain SVG 1.1 without scripts or style sheets: every browser and word processor shows it.

use std::fmt::Write;

/// The colours of Okabe and Ito, which colour-blind people can tell apart (Okabe, Ito: Color universal design, 2008).
const COLOURS: [&str; 8] =
    ["#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7", "#999999"];

/// Sizes in pixels.
const PANEL: (f64, f64) = (420.0, 300.0);
const MARGIN_LEFT: f64 = 60.0;
const MARGIN_RIGHT: f64 = 20.0;
const MARGIN_TOP: f64 = 40.0;
const MARGIN_BOTTOM: f64 = 60.0;
const LEGEND_ROW: f64 = 18.0;
/// Letters of a run's name that fit under an axis.
const NAME_LETTERS: usize = 12;

/// One quantity.
pub struct Panel {
    /// What it is.
    pub title: String,
    /// A value a run for each object; its number in the legend.
    pub lines: Vec<(usize, Vec<f64>)>,
}

/// Text as XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// A round number at least as large: 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|&top| top >= value * 0.999)
        .unwrap_or(value)
}

fn colour(name: usize) -> &'static str {
    COLOURS[name % COLOURS.len()]
}

/// The picture: `names` are the objects', `runs` the runs'.
pub fn svg(panels: &[Panel], names: &[String], runs: &[String]) -> String {
    let (width, height) = (PANEL.0, PANEL.1);
    let legend_top = height * panels.len().div_ceil(2) as f64;
    let (whole_width, whole_height) = (2.0 * width, legend_top + LEGEND_ROW * (names.len() as f64 + 1.0));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole_width:.0}\" height=\"{whole_height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        let (left, top) = ((at % 2) as f64 * width, (at / 2) as f64 * height);
        draw(&mut out, panel, runs, left, top);
    }
    for (at, name) in names.iter().enumerate() {
        let (y, colour) = (legend_top + LEGEND_ROW * (at as f64 + 0.5), colour(at));
        let (start, end, text) = (MARGIN_LEFT, MARGIN_LEFT + 24.0, MARGIN_LEFT + 32.0);
        let _ = writeln!(
            out,
            "<line x1=\"{start}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{text}\" y=\"{:.1}\">{}</text>",
            y + 4.0,
            escaped(name)
        );
    }
    out + "</svg>\n"
}

fn draw(out: &mut String, panel: &Panel, runs: &[String], left: f64, top: f64) {
    let (x0, x1) = (left + MARGIN_LEFT, left + PANEL.0 - MARGIN_RIGHT);
    let (y0, y1) = (top + PANEL.1 - MARGIN_BOTTOM, top + MARGIN_TOP);
    let largest = panel.lines.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
    let scale = round_up(largest);
    let x = |run: usize| match runs.len() {
        0 | 1 => f64::midpoint(x0, x1),
        count => x0 + (x1 - x0) * run as f64 / (count - 1) as f64,
    };
    let y = |value: f64| y0 - (y0 - y1) * value / scale;
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
        f64::midpoint(x0, x1),
        y1 - 14.0,
        escaped(&panel.title)
    );
    for step in 0..=4 {
        let value = scale * f64::from(step) / 4.0;
        let at = y(value);
        let _ = writeln!(
            out,
            "<line x1=\"{x0:.1}\" y1=\"{at:.1}\" x2=\"{x1:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            x0 - 6.0,
            at + 4.0
        );
    }
    for (run, name) in runs.iter().enumerate() {
        // The end of a path says more than its beginning.
        let letters = name.chars().count();
        let shown: String = name.chars().skip(letters.saturating_sub(NAME_LETTERS)).collect();
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(run),
            y0 + 18.0,
            escaped(&shown)
        );
    }
    for (name, values) in &panel.lines {
        let points: Vec<String> =
            values.iter().enumerate().map(|(run, &value)| format!("{:.1},{:.1}", x(run), y(value))).collect();
        let colour = colour(*name);
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for (run, &value) in values.iter().enumerate() {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(run),
                y(value)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        assert_eq!(
            [0.0, 0.03, 1.0, 1.2, 4.0, 7.0, 10.0].map(round_up),
            [1.0, 0.05, 1.0, 2.0, 5.0, 10.0, 10.0]
        );
        assert_eq!(round_up(f64::NAN), 1.0);
    }

    #[test]
    fn every_value_is_a_point_at_its_height() {
        let panel = Panel { title: "walk <reads>".into(), lines: vec![(0, vec![1.0, 2.0, 0.0])] };
        let picture =
            svg(&[panel], &["a & b".into()], &["1".into(), "2".into(), "/very/long/name/of/3.bus".into()]);
        // 200 pixels for 0 to 2, from y = 240 up; 340 pixels for three runs.
        for point in ["60.0,140.0", "230.0,40.0", "400.0,240.0"] {
            assert!(picture.contains(point), "{point} in {picture}");
        }
        assert!(picture.contains("walk &lt;reads&gt;") && picture.contains("a &amp; b"));
        assert!(picture.contains(">ame/of/3.bus<"), "{picture}");
        let count = |tag: &str| picture.matches(tag).count();
        assert_eq!((count("<circle"), count("<text"), count("</text>")), (3, 10, 10));
    }
}
