//! What can go wrong at a system call.

use std::{fmt, time::Duration};

use rustix::io::Errno;

use crate::call::{Call, Kind};

/// What goes wrong at a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error.
    Fail(Errno),
    /// The disk is full from this call on: a write is cut short, and each later one fails.
    Full,
    /// The call reads or writes half of the bytes.
    Short,
    /// The call is done after this time.
    Delay(Duration),
    /// The program is killed before the call, with all that it has started.
    Kill,
    /// The machine loses its power before the call.
    PowerCut(PowerCut),
}

/// What a power cut takes of what did not reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Whether a file keeps its length, with zeros in place of the bytes that are gone; otherwise it is as long as it was when
    /// it was last synced.
    pub keeps_length: bool,
    /// Whether names go, too, that were made since their folder was last synced.
    pub takes_names: bool,
}

impl PowerCut {
    /// Every one.
    pub const ALL: [Self; 4] = [
        Self { keeps_length: false, takes_names: false },
        Self { keeps_length: true, takes_names: false },
        Self { keeps_length: false, takes_names: true },
        Self { keeps_length: true, takes_names: true },
    ];
}

/// How late a call comes on a slow disk.
const SLOW: Duration = Duration::from_millis(20);

impl Fault {
    /// Every fault that a kind of call can have.
    pub fn all(kind: Kind) -> Vec<Self> {
        let errors: &[Errno] = match kind {
            Kind::Open => &[Errno::IO, Errno::MFILE, Errno::INTR],
            Kind::Create | Kind::CreateUnnamed => &[Errno::IO, Errno::NOSPC, Errno::MFILE, Errno::INTR],
            Kind::CreateFolder => &[Errno::IO, Errno::NOSPC],
            Kind::Read => &[Errno::IO, Errno::INTR],
            Kind::Write => &[Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::INTR],
            Kind::Sync => &[Errno::IO, Errno::NOSPC, Errno::INTR],
            Kind::Link | Kind::Rename => &[Errno::IO, Errno::NOSPC],
            Kind::Remove => &[Errno::IO],
            Kind::Lock => &[Errno::NOLCK],
        };
        let mut faults: Vec<Self> = errors.iter().copied().map(Self::Fail).collect();
        if matches!(kind, Kind::Read | Kind::Write) {
            faults.push(Self::Short);
        }
        if kind == Kind::Write {
            faults.push(Self::Full);
        }
        if matches!(kind, Kind::Write | Kind::Sync) {
            faults.push(Self::Delay(SLOW));
        }
        // A kill before a call that changes nothing is one before the next call.
        if kind.changes() {
            faults.push(Self::Kill);
            faults.extend(PowerCut::ALL.map(Self::PowerCut));
        }
        faults
    }

    /// Whether a call of a kind can have it, however late it comes.
    pub fn suits(self, kind: Kind) -> bool {
        let is_late = |fault: &Self| matches!(fault, Self::Delay(_));
        Self::all(kind).iter().any(|fault| *fault == self || is_late(fault) && is_late(&self))
    }

    /// Whether the program ends by it.
    pub fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::PowerCut(_))
    }

    /// Whether a program does its work all the same: it goes on with what remains, or makes the call again.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::Fail(Errno::INTR | Errno::NOLCK) | Self::Short | Self::Delay(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(errno) => write!(f, "{errno}"),
            Self::Full => write!(f, "the disk is full from here on"),
            Self::Short => write!(f, "half of the bytes"),
            Self::Delay(time) => write!(f, "{} ms late", time.as_millis()),
            Self::Kill => write!(f, "killed before it"),
            Self::PowerCut(PowerCut { keeps_length, takes_names }) => {
                let content = if *keeps_length { "zeros" } else { "nothing" };
                let names = if *takes_names { "without new names" } else { "with new names" };
                write!(f, "power cut before it ({content} in place of what was not synced, {names})")
            }
        }
    }
}

/// What the file system can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystem {
    /// What Linux's own can: files without names, renaming that replaces nothing, locks.
    #[default]
    Local,
    /// Like NFS: locks only.
    Network,
    /// Like a simple one of FUSE: none of it.
    Simple,
}

impl FileSystem {
    /// The error with which it refuses a call that it cannot do.
    pub(crate) fn refusal(self, call: &Call) -> Option<Errno> {
        match (self, call.kind) {
            (Self::Local, _) => None,
            (_, Kind::CreateUnnamed) => Some(Errno::OPNOTSUPP),
            (_, Kind::Rename) if call.has_flags => Some(Errno::INVAL),
            (Self::Simple, Kind::Lock) => Some(Errno::NOLCK),
            _ => None,
        }
    }

    /// Whether what a killed process leaves can be told from what a living one is writing.
    pub fn has_locks(self) -> bool {
        self != Self::Simple
    }
}

/// When a fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the call with this number among those on files of the folder, from 1.
    Call(usize),
    /// So much time after the program was started.
    After(Duration),
    /// When it has ended; only a power cut can come then.
    End,
}

/// What happens to a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What the folder's file system can do.
    pub file_system: FileSystem,
    /// The fault, if there is one.
    pub fault: Option<(When, Fault)>,
}
