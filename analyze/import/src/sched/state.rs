//! The state in which a thread left its CPU, parsed from the kernel's letters or its number.

use crate::hex::from_hex;

/// State of the thread that leaves, as `sched_switch` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The thread was runnable: it could have run on.
    Runnable,
    /// The thread sleeps, and a signal can wake it.
    Sleeping,
    /// The thread sleeps, and a signal cannot wake it.
    Uninterruptible,
    /// The thread was stopped, by a signal or a debugger.
    Stopped,
    /// The thread sleeps uninterruptibly and does not count as load.
    Idle,
    /// The kernel reported a state that has no name here.
    Unknown,
    /// The thread has ended and never comes back.
    Dead,
}

impl State {
    /// Parses letters such as `S`, `R+` and `D|N`, or a number. Returns `None` if the text is neither.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let number = match text.strip_prefix("0x") {
            Some(hex) => from_hex(hex).and_then(|number| i64::try_from(number).ok()),
            None => text.parse().ok(),
        };
        if let Some(number) = number {
            return Some(Self::of_number(number));
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphabetic() || b"|+".contains(&byte)) {
            return None;
        }
        let has = |letters: &[char]| text.contains(letters);
        Some(match () {
            // A thread that is preempted on its way to sleep is runnable, too.
            () if has(&['R', '+']) => Self::Runnable,
            () if has(&['X', 'x', 'Z']) => Self::Dead,
            () if has(&['T', 't']) => Self::Stopped,
            () if has(&['I']) || (has(&['D']) && has(&['N'])) => Self::Idle,
            () if has(&['D']) => Self::Uninterruptible,
            () if has(&['S']) => Self::Sleeping,
            () => Self::Unknown,
        })
    }

    /// Decodes the number in `prev_state`. The low byte has the states that kernels since 4.14 report, and a
    /// bit above it says that the thread was runnable.
    pub(crate) fn of_number(state: i64) -> Self {
        match state & 0xff {
            0 => Self::Runnable,
            state if state & 0x30 != 0 => Self::Dead,
            state if state & 0x0c != 0 => Self::Stopped,
            state if state & 0x80 != 0 => Self::Idle,
            state if state & 0x02 != 0 => Self::Uninterruptible,
            state if state & 0x01 != 0 => Self::Sleeping,
            _ => Self::Unknown,
        }
    }

    /// Returns the name of the state in off-CPU rows. A dead thread has no such row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Runnable => "preempted",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "uninterruptible",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Unknown | Self::Dead => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_numbers_of_several_kernels() {
        for (text, state) in [
            ("R", State::Runnable),
            ("R+", State::Runnable),
            ("S", State::Sleeping),
            ("D", State::Uninterruptible),
            ("D|K", State::Uninterruptible),
            ("D|N", State::Idle),
            ("I", State::Idle),
            ("T", State::Stopped),
            ("t", State::Stopped),
            ("X", State::Dead),
            ("Z", State::Dead),
            ("x", State::Dead),
            ("P", State::Unknown),
            ("0", State::Runnable),
            ("256", State::Runnable),
            ("0x1", State::Sleeping),
            ("2", State::Uninterruptible),
            ("128", State::Idle),
            ("16", State::Dead),
            ("64", State::Unknown),
        ] {
            assert_eq!(State::of_text(text), Some(state), "{text}");
        }
        for text in ["", "?", "==>", "S S", "0x", "0x+1", "0x-1"] {
            assert_eq!(State::of_text(text), None, "{text}");
        }
    }
}
