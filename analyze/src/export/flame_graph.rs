//! Flame graphs: each frame lies on its caller, and its width is the sum over itself and all frames above it.
//!
//! ```text
//!         ┌ c ┐
//! ┌── b ──┴───┤ ┌ d ┐      a;b 3   a;b;c 2   a;d 2   e 1
//! ├──── a ──────┴───┼ e ┐
//! └──────── all ────────┘
//! ```

use std::io::{self, Write};

use askama::Template;
use trace_schema::{Bytes, Nanos};

use super::folded::{Folded, What};
use analyze_run::text::harmless;

/// Height of a frame and of a line of text, in pixels.
const ROW: usize = 17;
/// Height of the title above the frames, in pixels.
const HEAD: usize = 34;
/// Smallest share of the whole at which a frame is drawn. Narrower frames are counted instead.
const NARROWEST_RATIO: f64 = 1e-5;

/// A frame. `begin` and `sum` are its left end and its width, in the unit of the sums.
#[derive(Debug, PartialEq, Eq)]
struct Frame<'a> {
    name: &'a str,
    depth: usize,
    begin: u64,
    sum: u64,
}

/// Returns the frames of all stacks; the lowest one spans all of them.
fn frames<'a>(stacks: impl Iterator<Item = (&'a str, u64)>) -> Vec<Frame<'a>> {
    let mut stacks: Vec<(Vec<&str>, u64)> =
        stacks.map(|(stack, sum)| (stack.split(';').collect(), sum)).collect();
    // The order is by frames: in an order by text, a name with the same prefix could come between a function
    // and its callees.
    stacks.sort_unstable();
    let mut frames = Vec::new();
    let mut open: Vec<(&str, u64)> = vec![("all", 0)];
    let mut at = 0_u64;
    for (stack, sum) in &stacks {
        let common = open.iter().skip(1).zip(stack).take_while(|((open, _), name)| open == *name).count();
        close(&mut open, common + 1, at, &mut frames);
        open.extend(stack.iter().skip(common).map(|name| (*name, at)));
        at = at.saturating_add(*sum);
    }
    close(&mut open, 0, at, &mut frames);
    frames
}

/// Ends all open frames except the lowest `kept`.
fn close<'a>(open: &mut Vec<(&'a str, u64)>, kept: usize, at: u64, frames: &mut Vec<Frame<'a>>) {
    while open.len() > kept {
        let Some((name, begin)) = open.pop() else { break };
        frames.push(Frame { name, depth: open.len(), begin, sum: at - begin });
    }
}

/// A frame as the template draws it. `left` and `width` are in percent of the figure, `top` in pixels.
struct Drawn {
    name: String,
    shown: String,
    left: f64,
    width: f64,
    top: usize,
    hue: u64,
}

#[derive(Template)]
#[template(path = "flame_graph.svg", escape = "html")]
struct Figure {
    title: String,
    height: usize,
    /// Notes, each with its vertical position in pixels.
    notes: Vec<(usize, String)>,
    frames: Vec<Drawn>,
}

/// Hue of a name, within the range of hues of the quantity.
fn hue(what: What, name: &str) -> u64 {
    let hash = name.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let (from, range) = match what {
        What::OnCpuCalls => (5, 45),
        What::OffCpu => (195, 40),
        What::AllocatedBytes | What::PinnedBytes => (90, 50),
    };
    from + hash % range
}

/// Draws the sums of a run as SVG. `notes` say what must be known to read them.
pub fn write(
    folded: &Folded,
    what: What,
    run: &str,
    mut notes: Vec<String>,
    out: &mut impl Write,
) -> io::Result<()> {
    let all = folded.sum();
    let ratio = |value: u64| value as f64 / all.max(1) as f64;
    let (mut frames, narrow): (Vec<Frame<'_>>, Vec<Frame<'_>>) =
        frames(folded.stacks()).into_iter().partition(|frame| ratio(frame.sum) >= NARROWEST_RATIO);
    frames.sort_unstable_by_key(|frame| (frame.depth, frame.begin));
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or_default();
    if !narrow.is_empty() {
        notes.push(format!(
            "{} frames narrower than {NARROWEST_RATIO} of the whole are not drawn",
            narrow.len()
        ));
    }
    let head = HEAD + notes.len() * ROW;
    let amount = |sum: u64| {
        let sum = i64::try_from(sum).unwrap_or(i64::MAX);
        match what {
            What::OnCpuCalls | What::OffCpu => Nanos(sum).to_string(),
            What::AllocatedBytes | What::PinnedBytes => Bytes(sum).to_string(),
        }
    };
    let drawn = |frame: &Frame<'_>| Drawn {
        name: frame.name.to_owned(),
        shown: format!("{} ({:.2} %)", amount(frame.sum), 100.0 * ratio(frame.sum)),
        left: 100.0 * ratio(frame.begin),
        width: 100.0 * ratio(frame.sum),
        top: head + (rows - 1 - frame.depth) * ROW,
        hue: hue(what, frame.name),
    };
    let figure = Figure {
        title: format!("{}: {}", harmless(run), what.name()),
        height: head + rows * ROW + 4,
        frames: frames.iter().map(drawn).collect(),
        notes: notes
            .into_iter()
            .enumerate()
            .map(|(line, note)| (HEAD + line * ROW, harmless(&note)))
            .collect(),
    };
    out.write_all(figure.render().map_err(io::Error::other)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_lie_on_their_callers() {
        let found = frames([("a", 1), ("a b;c", 4), ("a;b", 3), ("a;b;c", 2), ("a;d", 2)].into_iter());
        let frame = |name, depth, begin, sum| Frame { name, depth, begin, sum };
        let expected = [
            frame("c", 3, 4, 2),
            frame("b", 2, 1, 5),
            frame("d", 2, 6, 2),
            frame("a", 1, 0, 8),
            frame("c", 2, 8, 4),
            frame("a b", 1, 8, 4),
            frame("all", 0, 0, 12),
        ];
        assert_eq!(found, expected);
        assert_eq!(frames(std::iter::empty()), [frame("all", 0, 0, 0)]);
    }

    #[test]
    fn names_are_escaped() {
        let mut folded = Folded::default();
        folded.add(["<script>"].into_iter(), 1);
        let mut svg = Vec::new();
        write(&folded, What::OffCpu, "a&b", vec!["<lost>".to_owned()], &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        for text in ["<script>:", "a&b", "<lost>"] {
            assert!(!svg.contains(text), "{svg}");
        }
        assert!(svg.contains("script&") && svg.contains("lost&"), "{svg}");
    }
}
