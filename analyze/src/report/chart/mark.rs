//! Gives an element of plotters what its styles cannot: a class of the style sheet, and a title.

use plotters::element::{Drawable, DynElement, IntoDynElement, PointCollection};
use plotters_backend::{BackendCoord, DrawingErrorKind};

use super::{backend::Svg, layout::Point};

/// An element with its class, which is its colour, and its title, which says what it is, with units.
pub(super) struct Mark<'a> {
    class: &'static str,
    title: String,
    element: DynElement<'a, Svg<'a>, Point>,
}

impl<'a> Mark<'a> {
    /// Creates a mark; its title may be empty.
    pub(super) fn new(
        class: &'static str,
        title: impl Into<String>,
        element: impl IntoDynElement<'a, Svg<'a>, Point>,
    ) -> Self {
        Self { class, title: title.into(), element: element.into_dyn() }
    }

    /// Creates a mark that is not seen, but describes the area of the element.
    pub(super) fn hover(title: String, element: impl IntoDynElement<'a, Svg<'a>, Point>) -> Self {
        Self::new("", title, element)
    }
}

impl<'b> PointCollection<'b, Point> for &'b Mark<'_> {
    type Point = &'b Point;
    type IntoIter = &'b Vec<Point>;

    fn point_iter(self) -> Self::IntoIter {
        self.element.point_iter()
    }
}

impl<'a> Drawable<Svg<'a>> for Mark<'a> {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        points: I,
        svg: &mut Svg<'a>,
        size: (u32, u32),
    ) -> Result<(), DrawingErrorKind<std::convert::Infallible>> {
        svg.begin(self.class, &self.title);
        let drawn = self.element.draw(points, svg, size);
        svg.end();
        drawn
    }
}
