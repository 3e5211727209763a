//! Backend of plotters that writes accessible SVG: elements with the class of their mark and a `<title>`,
//! and text at the page's size.
//!
//! ```text
//! lines, areas, dots   in a nested SVG, 1000 units wide, stretched to the width of the page
//! text                 above it: placed in percent of the width, never stretched
//! ```
//! plotters counts in whole numbers, so one of its units is 1/[`FINE`] of a unit of the drawing: of a
//! thousandth of the width horizontally, of a pixel vertically. Widths of strokes are in pixels at any width
//! and zoom; a circle is a round dot, whatever its fill.

use std::convert::Infallible;

use plotters::{
    coord::Shift,
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    text_anchor::{HPos, VPos},
};

use super::text_width::{NARROW, text_width};
use crate::report::svg::{Anchor, LINE, UNITS, colour, escaped, file, short};

/// Number of plotters' units in a unit of the drawing.
pub(super) const FINE: f64 = 100.0;

/// Failure to draw a chart, which the size of its areas causes at most: writing to memory does not fail.
pub(super) type Failure = DrawingAreaErrorKind<Infallible>;
type Result<T> = std::result::Result<T, DrawingErrorKind<Infallible>>;

/// An area of a chart.
pub(super) type Area<'a> = DrawingArea<Svg<'a>, Shift>;

/// Converts pixels, or thousandths of the width, to plotters' units.
pub(super) fn fine(length: f64) -> i32 {
    (length * FINE).round() as i32
}

/// A shape of a mark: data of a path, and the width of its stroke in pixels; `None` if it is filled.
struct Shape {
    data: String,
    stroke: Option<f64>,
}

/// A mark that is being drawn: its class, its title and its shapes.
struct Open {
    class: &'static str,
    title: String,
    shapes: Vec<Shape>,
}

/// What has been drawn.
#[derive(Default)]
struct Sheet {
    marks: String,
    text: String,
    open: Option<Open>,
}

/// Writes SVG elements to a sheet.
pub(super) struct Svg<'a> {
    sheet: &'a mut Sheet,
    height: f64,
}

/// Draws a chart of this height in pixels and returns it as an SVG file. `name` is its accessible name; it
/// must not come from a trace, because it is not escaped.
pub(super) fn draw(
    name: &str,
    height: f64,
    chart: impl FnOnce(&Area<'_>) -> std::result::Result<(), Failure>,
) -> String {
    let mut sheet = Sheet::default();
    if let Err(error) = chart(&Svg { sheet: &mut sheet, height }.into_drawing_area()) {
        // A figure has no other place for it, and the rest of the report is good.
        let words = escaped(&format!("internal error: this chart was not drawn in full: {error}"));
        sheet.text += &format!("<text x=\"0\" y=\"{LINE}\">{words}</text>");
    }
    let shown = short(height);
    let plot = format!(
        "<svg class=\"plot\" x=\"0\" y=\"0\" width=\"100%\" height=\"{shown}\" viewBox=\"0 0 {UNITS} {shown}\" preserveAspectRatio=\"none\">{}</svg>",
        sheet.marks
    );
    file(name, height, &(plot + &sheet.text))
}

/// Returns the data of a path through these points.
fn path(points: impl IntoIterator<Item = BackendCoord>) -> String {
    let number = |value: i32| short(f64::from(value) / FINE);
    let (mut data, mut last) = (String::new(), None);
    for (x, y) in points {
        match last {
            None => data += &format!("M{} {}", number(x), number(y)),
            Some(last) if last == (x, y) => {}
            Some((_, before)) if before == y => data += &format!("H{}", number(x)),
            Some((before, _)) if before == x => data += &format!("V{}", number(y)),
            Some(_) => data += &format!("L{} {}", number(x), number(y)),
        }
        last = Some((x, y));
    }
    data
}

impl Open {
    /// Writes the mark: one element, or a group if its shapes differ in their strokes.
    fn finish(self) -> String {
        let Self { class, title, mut shapes } = self;
        shapes.dedup_by(|next, shape| {
            let is_same = next.stroke == shape.stroke;
            if is_same {
                shape.data += &next.data;
            }
            is_same
        });
        let title = match title.as_str() {
            "" => String::new(),
            title => format!("<title>{}</title>", escaped(title)),
        };
        let colours = |stroke: Option<f64>| match (class, stroke) {
            ("", _) => "fill=\"transparent\"".to_owned(),
            (class, None) => format!("class=\"{class}\" fill=\"{}\"", colour(class)),
            (class, Some(_)) => format!(
                "class=\"{class} stroke\" fill=\"none\" stroke=\"{}\" stroke-linecap=\"round\"",
                colour(class)
            ),
        };
        let shape = |shape: &Shape| {
            let stroke = shape.stroke.map_or_else(String::new, |width| {
                format!(" stroke-width=\"{}\" vector-effect=\"non-scaling-stroke\"", short(width))
            });
            format!("d=\"{}\"{stroke}", shape.data)
        };
        match shapes.as_slice() {
            [] => String::new(),
            [one] => format!("<path {} {}>{title}</path>", colours(one.stroke), shape(one)),
            several => {
                let paths: String = several.iter().map(|one| format!("<path {}/>", shape(one))).collect();
                format!("<g {}>{title}{paths}</g>", colours(several[0].stroke))
            }
        }
    }
}

impl Svg<'_> {
    /// Begins a mark, which the shapes up to [`Self::end`] belong to. Without a class it is not seen, but can
    /// be pointed at.
    pub(super) fn begin(&mut self, class: &'static str, title: &str) {
        self.sheet.open = Some(Open { class, title: title.to_owned(), shapes: Vec::new() });
    }

    /// Ends the mark.
    pub(super) fn end(&mut self) {
        if let Some(open) = self.sheet.open.take() {
            self.sheet.marks += &open.finish();
        }
    }

    /// Adds a shape to the current mark; shapes that belong to none are lines of the grid.
    fn add(&mut self, style: &impl BackendStyle, data: String, stroke: Option<f64>) -> Result<()> {
        if style.color().alpha > 0.0 {
            let shape = Shape { data, stroke };
            match &mut self.sheet.open {
                Some(open) => open.shapes.push(shape),
                None => {
                    let open = Open { class: "grid", title: String::new(), shapes: vec![shape] };
                    self.sheet.marks += &open.finish();
                }
            }
        }
        Ok(())
    }
}

impl DrawingBackend for Svg<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        ((UNITS * FINE) as u32, (self.height * FINE).round() as u32)
    }

    fn ensure_prepared(&mut self) -> Result<()> {
        Ok(())
    }

    fn present(&mut self) -> Result<()> {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Result<()> {
        self.draw_rect((x, y), (x + 1, y + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Result<()> {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<()> {
        let data = path([(left, top), (right, top), (right, bottom), (left, bottom)]) + "Z";
        self.add(style, data, (!fill).then(|| f64::from(style.stroke_width())))
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        points: I,
        style: &S,
    ) -> Result<()> {
        self.add(style, path(points), Some(f64::from(style.stroke_width())))
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        centre: BackendCoord,
        radius: u32,
        style: &S,
        _: bool,
    ) -> Result<()> {
        // A line without length and with round ends is round at any width of the page.
        self.add(style, path([centre]) + "h0", Some(2.0 * f64::from(radius) / FINE))
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        points: I,
        style: &S,
    ) -> Result<()> {
        self.add(style, path(points) + "Z", None)
    }

    /// Adds text. The family of its font is its class; of ticks, which zooming moves, the place is kept.
    fn draw_text<T: BackendTextStyle>(&mut self, text: &str, style: &T, (x, y): BackendCoord) -> Result<()> {
        let (family, place) = (style.family(), f64::from(x) / FINE / UNITS);
        let class = family.as_str();
        let half = text_width(text) / 2.0 / NARROW;
        let anchor = match style.anchor().h_pos {
            HPos::Center if place < half => Anchor::Start,
            HPos::Center if place > 1.0 - half => Anchor::End,
            HPos::Center => Anchor::Middle,
            HPos::Left => Anchor::Start,
            HPos::Right => Anchor::End,
        };
        let below = match style.anchor().v_pos {
            VPos::Top => 13.0,
            VPos::Center => 5.0,
            VPos::Bottom => -3.0,
        };
        let moves = if class == "tick" { format!(" data-x=\"{place:.5}\"") } else { String::new() };
        self.sheet.text += &format!(
            "<text class=\"{class}\"{moves} x=\"{}%\" y=\"{}\"{}>{}</text>",
            short(100.0 * place),
            short(f64::from(y) / FINE + below),
            anchor.attribute(),
            escaped(text)
        );
        Ok(())
    }

    fn estimate_text_size<T: BackendTextStyle>(&self, text: &str, _: &T) -> Result<(u32, u32)> {
        let width = text_width(text) / NARROW * UNITS;
        Ok(((width * FINE) as u32, (LINE * FINE) as u32))
    }
}

#[cfg(test)]
mod tests {
    use plotters::element::{Circle, PathElement};

    use super::*;
    use crate::report::chart::{
        axis::Axis,
        layout::{chart, stroke},
        mark::Mark,
    };

    #[test]
    fn marks_have_classes_and_escaped_titles() {
        let svg = draw("a name", 100.0, |area| {
            let axis = Axis::linear(0.0..1.0, Vec::new());
            let mut chart = chart(area, (axis.clone(), axis), false)?;
            let line = PathElement::new(vec![(0.0, 0.0), (1.0, 0.0)], stroke(2));
            chart.draw_series([Mark::new("pass", "<b> & \"5 ms\"", line)])?;
            chart.draw_series([Mark::new("host", "a run: 1 s", Circle::new((0.0, 1.0), 300, stroke(1)))])?;
            Ok(())
        });
        assert!(svg.contains("<title>&lt;b&gt; &amp; &quot;5 ms&quot;</title>"), "{svg}");
        assert!(svg.contains("class=\"pass stroke\"") && svg.contains("d=\"M0 99.99H999.99\""), "{svg}");
        assert!(svg.contains("stroke-width=\"6\"") && svg.contains("d=\"M0 0h0\""), "{svg}");
    }
}
