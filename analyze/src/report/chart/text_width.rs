//! Estimates the width of text, without a font: sans-serif fonts differ by less than a tenth in it.

/// Width in pixels of the narrowest page, a telephone's, on which text has to fit.
pub(in crate::report) const NARROW: f64 = 360.0;

/// Widths of letters at the size of the page's small text, in pixels.
const WIDTHS: [(&str, f64); 4] = [
    ("ijl|!'.,:;I", 3.7),
    ("frt()[]{}-/\\ \"*", 4.9),
    ("mwMW%@", 11.8),
    ("ABCDEFGHJKLNOPQRSTUVXYZ&<>=+→–", 9.0),
];
/// Width of any other letter or digit.
const OTHER: f64 = 7.7;

/// Estimates the width of a text in pixels.
pub(in crate::report) fn text_width(text: &str) -> f64 {
    let width = |c| WIDTHS.iter().find(|(letters, _)| letters.contains(c)).map_or(OTHER, |(_, width)| *width);
    text.chars().map(width).sum()
}
