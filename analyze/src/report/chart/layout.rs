//! What all charts share: panels below one another, a grid, labels, and steps.

use plotters::{
    chart::{ChartBuilder, ChartContext, LabelAreaPosition},
    coord::cartesian::Cartesian2d,
    element::{PathElement, Rectangle},
    style::{
        BLACK, Color, FontDesc, FontFamily, FontStyle, ShapeStyle, TRANSPARENT, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    axis::Axis,
    backend::{Area, FINE, Failure, Svg, fine},
    mark::Mark,
    text_width::{NARROW, text_width},
};
use crate::report::svg::{FONT, LINE, UNITS};

/// A chart with two axes.
pub(super) type Chart<'a, 'b> = ChartContext<'a, Svg<'b>, Cartesian2d<Axis, Axis>>;
/// A point of a chart.
pub(super) type Point = (f64, f64);

/// Height of the labels below a chart, in pixels.
pub(super) const TICKS: f64 = LINE + 4.0;

/// Style of a line of this width in pixels. Its colour is that of the mark's class.
pub(super) fn stroke(width: u32) -> ShapeStyle {
    BLACK.stroke_width(width)
}

/// Style of an area. Its colour is that of the mark's class.
pub(super) fn filled() -> ShapeStyle {
    BLACK.filled()
}

/// Style of text of a class of the style sheet.
fn text(class: &str) -> TextStyle<'_> {
    FontDesc::new(FontFamily::Name(class), FONT * FINE, FontStyle::Normal).into()
}

/// Shortens a text to a width in pixels.
fn shortened(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if text_width(&short) + text_width("…") > width {
            short.pop();
            break;
        }
    }
    short + "…"
}

/// Writes a line of text at both ends of an area, from this height in pixels on. The left one is shortened so
/// that both fit on a narrow page.
pub(super) fn caption(area: &Area<'_>, y: f64, left: &str, right: &str) -> Result<(), Failure> {
    let at = |side| text("level").pos(Pos::new(side, VPos::Top));
    let left = shortened(left, NARROW - text_width(right) - 8.0);
    area.draw_text(&left, &at(HPos::Left), (0, fine(y)))?;
    match right {
        "" => Ok(()),
        right => area.draw_text(right, &at(HPos::Right), (fine(UNITS), fine(y))),
    }
}

/// Creates a chart in an area; `has_ticks` leaves room for labels below it.
pub(super) fn chart<'a, 'b>(
    area: &Area<'b>,
    (x, y): (Axis, Axis),
    has_ticks: bool,
) -> Result<Chart<'a, 'b>, Failure> {
    ChartBuilder::on(area)
        .x_label_area_size(if has_ticks { fine(TICKS) } else { 0 })
        // Labels of heights are within the plot: a negative size says so.
        .set_label_area_size(LabelAreaPosition::Left, -fine(UNITS / 4.0))
        .build_cartesian_2d(x, y)
}

/// Draws horizontal lines of the grid, and the labels of both axes.
pub(super) fn grid(chart: &mut Chart<'_, '_>) -> Result<(), Failure> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(stroke(1))
        .axis_style(TRANSPARENT)
        .x_label_style(text("tick"))
        .y_label_style(text("level"))
        .set_tick_mark_size(LabelAreaPosition::Bottom, fine(1.0))
        .set_tick_mark_size(LabelAreaPosition::Left, -1)
        .y_label_offset(-fine(8.0))
        .draw()
}

/// Draws vertical lines of the grid at the ticks.
pub(super) fn verticals(chart: &mut Chart<'_, '_>, x: &Axis, (low, high): Point) -> Result<(), Failure> {
    let line = |at: f64| Mark::new("grid", "", PathElement::new(vec![(at, low), (at, high)], stroke(1)));
    chart.draw_series(x.ticks().map(line)).map(|_| ())
}

/// Turns values, each of which holds until the next, into the points of a line; the last holds until `end`.
pub(super) fn steps(values: impl IntoIterator<Item = Point>, end: f64) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for (x, y) in values {
        match points.last() {
            Some((_, before)) if *before == y => continue,
            Some((_, before)) => points.push((x, *before)),
            None => {}
        }
        points.push((x, y));
    }
    if let Some((_, last)) = points.last().copied() {
        points.push((end, last));
    }
    points
}

/// Creates the areas that say what is there, each from its time to the next and over the whole height.
pub(super) fn hovers<'a>(
    titles: impl IntoIterator<Item = ((f64, f64), String)>,
    (low, high): Point,
) -> Vec<Mark<'a>> {
    let area = |(from, to)| Rectangle::new([(from, high), (to, low)], filled());
    titles.into_iter().map(|(span, title)| Mark::hover(title, area(span))).collect()
}
