//! Builds drawings as wide as their container. Horizontal positions are shares of the width, so that text
//! keeps the size of the page's text at any width, while marks stretch:
//!
//! ```text
//! name of a lane                 text: positioned in percent, sized in pixels
//! ████████   ██                  plot: a nested SVG, 1000 units wide, stretched; zooming changes its view
//! 0           1 s           2 s  ticks
//! ```
//! Every mark describes itself, with units, in its `<title>`. Colours come from classes of the style sheet;
//! they are also written as attributes, for files without a style sheet.

use analyze_run::text;

/// Classes of marks and their colours on white. The style sheet has the same colours, which a test compares.
const COLOURS: &[(&str, &str)] = &[
    ("scheduler", "#be4632"),
    ("throttled", "#d6785a"),
    ("blocked", "#8a4f9e"),
    ("page-fault", "#6a5aa8"),
    ("gpu-wait", "#3f8fa8"),
    ("size", "#2f7d6b"),
    ("first-call", "#c08a1e"),
    ("nested", "#7a6a4f"),
    ("allocation", "#9c8a63"),
    ("nccl", "#b0568f"),
    ("stopped", "#8d939b"),
    ("inconclusive", "#c9ccd1"),
    ("unexplained", "#5d636b"),
    ("on-cpu", "#4f7cac"),
    ("host", "#4f7cac"),
    ("in-calls", "#468c78"),
    ("in-use", "#1f5f85"),
    ("pending", "#7fa6c4"),
    ("pinned", "#d59a2a"),
    ("releasable", "#d6cdb4"),
    ("private", "#a67fb5"),
    ("not-known", "#a9adb3"),
    ("context", "#7a6a4f"),
    ("kept", "#93355f"),
    ("used", "#22252a"),
    ("oom", "#22252a"),
    ("busy", "#468c78"),
    ("clock", "#5d636b"),
    ("power", "#c08a1e"),
    ("regression", "#be4632"),
    ("pass", "#468c78"),
    ("grid", "#d9d6cd"),
];

/// Colour of a class.
pub(super) fn colour(class: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == class).map_or("#5d636b", |(_, colour)| colour)
}

/// All classes of marks, with their colours.
#[cfg(test)]
pub(super) fn colours() -> &'static [(&'static str, &'static str)] {
    COLOURS
}

/// Font size in pixels: that of small text on the page.
pub(super) const FONT: f64 = 13.6;
/// Height of a line of text, in pixels.
pub(super) const LINE: f64 = 18.0;
/// Width of a plot in its own units.
pub(super) const UNITS: f64 = 1000.0;
/// Width in pixels of a drawing in a file of its own, which is about that of a wide page.
const WIDTH: f64 = 944.0;

/// Escapes text for SVG.
pub(super) fn escaped(text: &str) -> String {
    text::harmless(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Formats a number with at most two decimals.
pub(super) fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Part of a text that is at its position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    /// The start.
    Start,
    /// The middle.
    Middle,
    /// The end.
    End,
}

impl Anchor {
    pub(super) fn attribute(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Middle => " text-anchor=\"middle\"",
            Self::End => " text-anchor=\"end\"",
        }
    }
}

/// Marks that zoom together.
#[derive(Default)]
pub(super) struct Plot {
    body: String,
}

impl Plot {
    /// Adds a bar between two shares of the width, with a tooltip. Its width is at least one unit, so that it
    /// stays visible.
    pub(super) fn bar(&mut self, class: &str, x: (f64, f64), y: (f64, f64), title: &str) {
        let (from, to) = (x.0.clamp(0.0, 1.0) * UNITS, x.1.clamp(0.0, 1.0) * UNITS);
        let width = (to - from).max(1.0);
        self.body += &format!(
            "<rect class=\"{class}\" fill=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</rect>",
            colour(class),
            short(from.min(UNITS - width)),
            short(y.0),
            short(width),
            short(y.1 - y.0),
            Self::title(title)
        );
    }

    /// Adds a surface between a base line and steps; each step holds from its position to the next.
    pub(super) fn steps(&mut self, class: &str, base: f64, steps: &[(f64, f64)], end: f64) {
        let (Some((first, _)), false) = (steps.first(), steps.iter().all(|(_, y)| *y == base)) else {
            return;
        };
        let mut path = format!("M{} {}", short(first * UNITS), short(base));
        let mut last = f64::NAN;
        for (x, y) in steps {
            if *y != last {
                path += &format!("H{}V{}", short(x * UNITS), short(*y));
            }
            last = *y;
        }
        path += &format!("H{}V{}Z", short(end * UNITS), short(base));
        self.body += &format!("<path class=\"{class}\" fill=\"{}\" d=\"{path}\"/>", colour(class));
    }

    /// Adds a horizontal line.
    pub(super) fn line(&mut self, class: &str, y: f64) {
        self.body += &format!(
            "<rect class=\"{class}\" fill=\"{}\" y=\"{}\" width=\"1000\" height=\"1\"/>",
            colour(class),
            short(y)
        );
    }

    /// Adds a tooltip to an area without a visible mark.
    pub(super) fn hover(&mut self, x: (f64, f64), y: (f64, f64), title: &str) {
        self.body += &format!(
            "<rect fill=\"transparent\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</rect>",
            short(x.0 * UNITS),
            short(y.0),
            short((x.1 - x.0) * UNITS),
            short(y.1 - y.0),
            Self::title(title)
        );
    }

    fn title(words: &str) -> String {
        if words.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(words)) }
    }
}

/// A drawing that is built from top to bottom.
pub(super) struct Drawing {
    body: String,
    /// Vertical position of the next item, in pixels.
    pub(super) y: f64,
}

impl Drawing {
    /// Creates an empty drawing.
    pub(super) fn new() -> Self {
        Self { body: String::new(), y: 0.0 }
    }

    /// Adds text to the current line. It does not move when the drawing is zoomed.
    pub(super) fn label(&mut self, x: f64, anchor: Anchor, words: &str) {
        self.body += &format!(
            "<text x=\"{}%\" y=\"{}\"{}>{}</text>",
            short(100.0 * x),
            short(self.y + 13.0),
            anchor.attribute(),
            escaped(words)
        );
    }

    /// Adds text within a bar, clipped at its end. Nothing is added if the text does not fit.
    pub(super) fn inside(&mut self, x: (f64, f64), y: f64, height: f64, words: &str) {
        let width = x.1 - x.0;
        // A letter takes about seven and a half pixels.
        if width * WIDTH < 7.5 * words.chars().count() as f64 + 8.0 {
            return;
        }
        self.body += &format!(
            "<svg class=\"inside\" data-x=\"{:.5}\" data-width=\"{width:.5}\" x=\"{}%\" y=\"{}\" width=\"{}%\" height=\"{}\"><text x=\"4\" y=\"{}\" fill=\"#fff\">{}</text></svg>",
            x.0,
            short(100.0 * x.0),
            short(y),
            short(100.0 * width),
            short(height),
            short(height / 2.0 + 5.0),
            escaped(words)
        );
    }

    /// Adds a plot of a height in pixels, and moves below it.
    pub(super) fn plot(&mut self, height: f64, plot: &Plot) {
        self.body += &format!(
            "<svg class=\"plot\" x=\"0\" y=\"{}\" width=\"100%\" height=\"{}\" viewBox=\"0 0 1000 {}\" preserveAspectRatio=\"none\">{}</svg>",
            short(self.y),
            short(height),
            short(height),
            plot.body
        );
        self.y += height;
    }

    /// Adds labels below positions of the plot above, from left to right.
    pub(super) fn ticks(&mut self, ticks: &[(f64, String)]) {
        for (x, words) in ticks {
            let anchor = match x {
                x if *x < 0.03 => Anchor::Start,
                x if *x > 0.95 => Anchor::End,
                _ => Anchor::Middle,
            };
            self.body += &format!(
                "<text class=\"tick\" data-x=\"{x:.5}\" x=\"{}%\" y=\"{}\"{}>{}</text>",
                short(100.0 * x),
                short(self.y + 15.0),
                anchor.attribute(),
                escaped(words)
            );
        }
        self.y += LINE + 4.0;
    }

    /// Returns the drawing as an SVG file. `name` is its accessible name; it must not come from a trace,
    /// because it is not escaped.
    pub(super) fn finish(self, name: &str) -> String {
        file(name, self.y, &self.body)
    }
}

/// Returns the content of an SVG file of this height in pixels. `name` is its accessible name; it must not
/// come from a trace, because it is not escaped.
pub(super) fn file(name: &str, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{name}\" width=\"{WIDTH}\" height=\"{}\" font-family=\"system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif\" font-size=\"{FONT}\" fill=\"#22252a\">{body}</svg>\n",
        short(height + 2.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_has_the_same_colours() {
        let css = include_str!("assets/report.css");
        for (class, colour) in colours() {
            assert!(css.contains(&format!("--{class}: {colour};")), "--{class}: {colour};");
            assert!(css.contains(&format!(".{class} {{ --mark: var(--{class}); }}")), ".{class}");
        }
    }
}
