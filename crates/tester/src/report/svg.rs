//! Line charts over categories as inline SVG: no script, no font, nothing fetched.

use std::fmt::Write as _;

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it shows, for legend and tooltips.
    pub name: String,
    /// CSS class that gives it its colour and dash: `a`, `b`, `a floor`, ….
    pub class: &'static str,
    /// A value per category; `None` leaves a gap.
    pub values: Vec<Option<f64>>,
}

/// A line chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Shown above.
    pub title: String,
    /// What the values are, with unit.
    pub y_label: String,
    /// What the categories are.
    pub x_label: String,
    /// The categories, evenly spaced.
    pub categories: Vec<String>,
    /// The lines, the most important last (drawn on top).
    pub series: Vec<Series>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 52.0;

impl Chart {
    /// The chart as an `<svg>` element; colours come from the page's style sheet (`--ink`, `--grid`, classes of series).
    pub fn svg(&self) -> String {
        let mut s = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n",
            escape(&self.title),
            escape(&self.title)
        );
        let (top, step) = scale(self.series.iter().flat_map(|l| l.values.iter().flatten().copied()));
        let y = |v: f64| HEIGHT - BOTTOM - v / top * (HEIGHT - TOP - BOTTOM);
        let n = self.categories.len().max(1) as f64;
        let x = |i: usize| LEFT + (i as f64 + 0.5) / n * (WIDTH - LEFT - RIGHT);
        let mut tick = 0.0;
        while tick <= top * 1.0001 {
            let at = y(tick);
            let _ = writeln!(
                s,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                number(tick)
            );
            tick += step;
        }
        for (i, c) in self.categories.iter().enumerate() {
            let _ = writeln!(
                s,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(i),
                HEIGHT - BOTTOM + 20.0,
                escape(c)
            );
        }
        let _ = writeln!(
            s,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            escape(&self.x_label),
            (TOP + HEIGHT - BOTTOM) / 2.0,
            escape(&self.y_label)
        );
        for line in &self.series {
            self.line(&mut s, line, &x, &y);
        }
        s.push_str("</svg>\n");
        s
    }

    /// The legend: one entry per series, the most important first.
    pub fn legend(&self) -> String {
        let mut s = String::from("<p class=\"legend\">");
        for line in self.series.iter().rev() {
            let _ = write!(
                s,
                "<span><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">\
                 <line class=\"line {}\" x1=\"1\" y1=\"6\" x2=\"33\" y2=\"6\"/></svg>{}</span>",
                line.class,
                escape(&line.name)
            );
        }
        s.push_str("</p>\n");
        s
    }

    fn line(&self, s: &mut String, line: &Series, x: &dyn Fn(usize) -> f64, y: &dyn Fn(f64) -> f64) {
        let mut path = String::new();
        let mut pen_down = false;
        for (i, v) in line.values.iter().enumerate() {
            if let Some(v) = v.filter(|v| v.is_finite()) {
                let _ = write!(path, "{}{:.1} {:.1}", if pen_down { " L" } else { " M" }, x(i), y(v));
                pen_down = true;
            } else {
                pen_down = false;
            }
        }
        let _ = writeln!(s, "<path class=\"line {}\" d=\"{}\"/>", line.class, path.trim());
        for (i, v) in line.values.iter().enumerate() {
            if let (Some(v), Some(c)) = (v.filter(|v| v.is_finite()), self.categories.get(i)) {
                let _ = writeln!(
                    s,
                    "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}, {} B: {}</title></circle>",
                    line.class,
                    x(i),
                    y(v),
                    escape(&line.name),
                    escape(c),
                    number(v)
                );
            }
        }
    }
}

/// Top of the axis and distance of its ticks: 1, 2 or 5 times a power of ten, four to eight of them.
fn scale(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let max = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
    if max <= 0.0 {
        return (1.0, 0.25);
    }
    let raw = max / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw).unwrap_or(raw);
    ((max / step).ceil() * step, step)
}

/// A number with as many digits as help.
pub fn number(v: f64) -> String {
    match v.abs() {
        0.0 => "0".into(),
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => trim(format!("{v:.1}")),
        a if a >= 1.0 => trim(format!("{v:.2}")),
        _ => trim(format!("{v:.3}")),
    }
}

fn trim(s: String) -> String {
    s.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Text as HTML and XML want it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers_above_the_data() {
        assert_eq!(scale([9.3, 2.0].into_iter()), (10.0, 2.0));
        assert_eq!(scale([101.0].into_iter()), (150.0, 50.0));
        assert_eq!(scale([0.0, f64::NAN].into_iter()), (1.0, 0.25));
        assert_eq!((number(0.5), number(12.04), number(1234.5)), ("0.5".into(), "12".into(), "1234".into()));
    }

    #[test]
    fn every_value_is_drawn_inside_the_frame_and_gaps_stay_gaps() {
        let chart = Chart {
            title: "a <b>".into(),
            y_label: "Mpps".into(),
            x_label: "size".into(),
            categories: ["64", "128", "256"].map(String::from).into(),
            series: vec![Series {
                name: "x & y".into(),
                class: "a",
                values: vec![Some(1.0), None, Some(3.0)],
            }],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches(" L").count(), 0, "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("x &amp; y, 64 B: 1"));
        for cy in svg.split("cy=\"").skip(1).map(|t| t.split('"').next().unwrap().parse::<f64>().unwrap()) {
            assert!((TOP..=HEIGHT - BOTTOM).contains(&cy), "{cy}");
        }
        assert!(chart.legend().contains("x &amp; y"));
    }
}
