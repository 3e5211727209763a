//! Colours of a terminal.

/// The colours, or none.
#[derive(Clone, Copy)]
pub(super) struct Palette {
    /// True if the terminal shows colours.
    pub is_coloured: bool,
}

/// Ends a marked word. Like the marks that begin one it is an invisible character without width, so that tables
/// are arranged as if it were not there.
const END: char = '\u{e0001}';
/// Mark of the colour 0.
const FIRST: u32 = 0xe0100;

/// Index of the colour for a class of the style sheet in the terminal's palette of 256: the nearest one to
/// its meaning.
fn colour(class: &str) -> u8 {
    match class {
        "scheduler" | "bad" => 167,
        "blocked" | "page-fault" | "private" => 97,
        "gpu-wait" => 66,
        "size" | "good" | "in-calls" | "busy" => 36,
        "first-call" | "pinned" => 136,
        "nested" | "allocation" => 101,
        "host" | "on-cpu" => 67,
        "in-use" => 24,
        "nccl" => 133,
        "throttled" => 173,
        _ => 239,
    }
}

impl Palette {
    /// Shows text in the colour of a class; an empty class has none.
    pub(super) fn painted(self, text: &str, class: &str) -> String {
        match self.is_coloured && !class.is_empty() {
            true => format!("\x1b[38;5;{}m{text}\x1b[0m", colour(class)),
            false => text.to_owned(),
        }
    }

    /// Shows text in bold.
    pub(super) fn bold(self, text: &str) -> String {
        if self.is_coloured { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Marks every word of a text for [`Palette::painted_marks`].
    pub(super) fn marked(self, text: &str, class: &str) -> String {
        let mark = char::from_u32(FIRST + u32::from(colour(class))).filter(|_| self.is_coloured);
        let Some(mark) = mark.filter(|_| !class.is_empty()) else { return text.to_owned() };
        text.split(' ').map(|word| format!("{mark}{word}{END}")).collect::<Vec<_>>().join(" ")
    }

    /// Shows marked words in their colours.
    pub(super) fn painted_marks(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match u32::from(c).checked_sub(FIRST).and_then(|colour| u8::try_from(colour).ok()) {
                Some(colour) => out += &format!("\x1b[38;5;{colour}m"),
                None if c == END => out += "\x1b[0m",
                None => out.push(c),
            }
        }
        out
    }
}
