//! Runs a program under a plan: one thread starts it, another answers its system calls.
//!
//! ```text
//!  thread of the program                          answering thread
//!  installs the filter ── listener ────────────►  waits for calls
//!  starts the program                             not on a file of the folder: goes on
//!        └─ openat, write, fsync, linkat … ─────► counted; at the planned one, the fault
//!  waits for its end                              no process is left: the trial is over
//! ```
//! A sync is answered, not done: what it would make durable is noted in `disk`, and nothing waits for a real disk.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::{fs::FileExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process_group, pidfd_getfd, pidfd_open},
};

use crate::{
    call::{self, Call, Kind},
    disk::Disk,
    error::FaultError,
    fault::{Fault, Plan, When},
    listener::{Answer, Event, Listener, Waiting},
};

/// The time after which a program is one that hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest time between two looks at the clock.
const PERIOD: Duration = Duration::from_millis(100);

/// How a program ended, and what it did to the folder.
#[derive(Debug)]
pub struct Trial {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Its calls on files of the folder, in order.
    pub calls: Vec<Call>,
    /// Whether the planned fault came.
    pub is_hit: bool,
    /// Index of the call that it came at, if it was planned for one.
    pub hit: Option<usize>,
    /// Whether it was killed because it did not end.
    pub is_hung: bool,
}

/// Answers the calls of one program.
struct Answers<'a> {
    listener: Listener,
    plan: &'a Plan,
    folder: PathBuf,
    disk: Disk,
    calls: Vec<Call>,
    /// The process id of the program; 0 before it was started.
    child: &'a AtomicU32,
    start: Instant,
    is_hit: bool,
    hit: Option<usize>,
    is_full: bool,
    /// Whether it was killed: none of its calls is done any more.
    is_dead: bool,
    /// Calls that wait for their time.
    delayed: Vec<(Instant, Waiting, Call)>,
}

/// The open file behind a descriptor of another process, with the same place in it.
fn duplicate(process: u32, descriptor: i32) -> io::Result<File> {
    let pid = Pid::from_raw(process as i32).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process.as_fd(), descriptor, PidfdGetfdFlags::empty())?.into())
}

/// Does a call on half of its bytes, and returns their number; `None` if it has none to leave out.
fn cut_short(waiting: &Waiting, call: &Call) -> io::Result<Option<i64>> {
    let (Some(buffer), Some(descriptor)) = (call.buffer, call.descriptor) else { return Ok(None) };
    let half = buffer.length / 2;
    let Some(process) = call::child(waiting.tid).filter(|_| half > 0) else { return Ok(None) };
    let mut file = duplicate(process, descriptor)?;
    let memory = File::options().read(true).write(true).open(format!("/proc/{}/mem", waiting.tid))?;
    let mut bytes = vec![0; half];
    let count = match call.kind {
        Kind::Write => {
            memory.read_exact_at(&mut bytes, buffer.address)?;
            match buffer.offset {
                Some(offset) => file.write_at(&bytes, offset)?,
                None => file.write(&bytes)?,
            }
        }
        _ => {
            let count = match buffer.offset {
                Some(offset) => file.read_at(&mut bytes, offset)?,
                None => io::Read::read(&mut file, &mut bytes)?,
            };
            memory.write_all_at(&bytes[..count], buffer.address)?;
            count
        }
    };
    Ok(Some(count as i64))
}

impl Answers<'_> {
    /// Lets a call be done.
    fn allow(&mut self, waiting: &Waiting, call: &Call) -> io::Result<()> {
        self.disk.note(call, waiting.tid);
        let answer = if call.kind == Kind::Sync { Answer::Return(0) } else { Answer::Continue };
        self.listener.answer(waiting, answer)
    }

    /// Lets half of a call be done, or all of it if it has no half.
    fn halve(&mut self, waiting: &Waiting, call: &Call) -> io::Result<()> {
        match cut_short(waiting, call)? {
            Some(count) => self.listener.answer(waiting, Answer::Return(count)),
            None => self.allow(waiting, call),
        }
    }

    fn kill(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.load(Ordering::Acquire) as i32) {
            self.is_dead = true;
            // Who has ended by itself meanwhile is not there any more.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn answer(&mut self, waiting: Waiting) -> io::Result<()> {
        let call = Call::of(&waiting).filter(|call| call.path.starts_with(&self.folder));
        let process = call.as_ref().and_then(|_| call::child(waiting.tid));
        let (Some(call), Some(process)) = (call, process) else {
            return self.listener.answer(&waiting, Answer::Continue);
        };
        self.child.store(process, Ordering::Release);
        if self.is_dead {
            return Ok(());
        }
        if let Some(errno) = self.plan.file_system.refusal(&call) {
            return self.listener.answer(&waiting, Answer::Fail(errno));
        }
        self.calls.push(call.clone());
        let planned = match self.plan.fault {
            // Threads make their calls in another order each time: the fault waits for a call that can have it.
            Some((When::Call(number), fault))
                if !self.is_hit && number <= self.calls.len() && fault.suits(call.kind) =>
            {
                self.hit = Some(self.calls.len() - 1);
                fault
            }
            _ if self.is_full && needs_room(call.kind) => Fault::Fail(Errno::NOSPC),
            _ => return self.allow(&waiting, &call),
        };
        self.is_hit = true;
        match planned {
            Fault::Fail(errno) => self.listener.answer(&waiting, Answer::Fail(errno)),
            Fault::Full => {
                self.is_full = true;
                match cut_short(&waiting, &call)? {
                    Some(count) => self.listener.answer(&waiting, Answer::Return(count)),
                    None => self.listener.answer(&waiting, Answer::Fail(Errno::NOSPC)),
                }
            }
            Fault::Short => self.halve(&waiting, &call),
            Fault::Delay(time) => {
                self.delayed.push((Instant::now() + time, waiting, call));
                Ok(())
            }
            Fault::Kill | Fault::PowerCut(_) => {
                self.kill();
                Ok(())
            }
        }
    }

    /// Does what is due.
    fn look_at_the_clock(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.delayed).into_iter().partition(|(at, ..)| *at <= now);
        self.delayed = waiting;
        for (_, waiting, call) in due {
            self.allow(&waiting, &call)?;
        }
        if let Some((When::After(time), fault)) = self.plan.fault
            && fault.kills()
            && !self.is_dead
            && now >= self.start + time
        {
            self.kill();
            self.is_hit = self.is_dead;
        }
        Ok(())
    }

    /// How long nothing is due.
    fn leisure(&self) -> Duration {
        let planned = match self.plan.fault {
            Some((When::After(time), _)) if !self.is_dead => Some(self.start + time),
            _ => None,
        };
        let next = self.delayed.iter().map(|(at, ..)| *at).chain(planned).min();
        next.map_or(PERIOD, |at| at.saturating_duration_since(Instant::now()).min(PERIOD))
    }
}

/// Whether a call fails where the disk is full.
fn needs_room(kind: Kind) -> bool {
    matches!(kind, Kind::Write | Kind::Create | Kind::CreateUnnamed | Kind::CreateFolder)
}

/// Installs the filter, starts the program and waits for its end.
fn start(command: &mut Command, child: &AtomicU32, to: mpsc::Sender<Listener>) -> io::Result<Output> {
    // Nobody takes it only if this process is ending.
    let _ = to.send(Listener::install(call::numbers())?);
    let spawned = command.spawn()?;
    child.store(spawned.id(), Ordering::Release);
    spawned.wait_with_output()
}

fn joined(program: ScopedJoinHandle<'_, io::Result<Output>>) -> io::Result<Output> {
    program.join().unwrap_or_else(|_| Err(io::Error::other("the thread that started it panicked")))
}

/// Runs a program, whose files are in `folder`, under a plan.
///
/// # Errors
/// If this machine cannot do it: it needs Linux 5.19 or later on x86-64.
pub fn run(command: &mut Command, folder: &Path, plan: &Plan) -> Result<Trial, FaultError> {
    let io = |what: &'static str| FaultError::test(what);
    let folder = folder.canonicalize().map_err(io("the folder"))?;
    let disk = Disk::new(&folder).map_err(io("the folder"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = AtomicU32::new(0);
    thread::scope(|scope| {
        let (to, from) = mpsc::channel();
        let program = scope.spawn(|| start(command, &child, to));
        let Ok(listener) = from.recv() else {
            let error = joined(program).err().unwrap_or_else(|| io::Error::other("it has no listener"));
            return Err(io("a filter of system calls, for which Linux 5.19 is needed")(error));
        };
        let start = Instant::now();
        let mut answers = Answers {
            listener,
            plan,
            folder,
            disk,
            calls: Vec::new(),
            child: &child,
            start,
            is_hit: false,
            hit: None,
            is_full: false,
            is_dead: false,
            delayed: Vec::new(),
        };
        let mut is_hung = false;
        loop {
            let event = answers.listener.next(answers.leisure());
            match event.map_err(io("waiting for a system call"))? {
                Event::Call(waiting) => answers.answer(waiting).map_err(io("answering a system call"))?,
                Event::Nothing if program.is_finished() => break,
                Event::Nothing => {}
                Event::Ended => break,
            }
            answers.look_at_the_clock().map_err(io("answering a system call"))?;
            if start.elapsed() > LIMIT && !is_hung {
                is_hung = true;
                answers.kill();
            }
        }
        let output = joined(program).map_err(io("starting the program"))?;
        if let Some((when, Fault::PowerCut(cut))) = plan.fault
            && (answers.is_hit || when == When::End)
        {
            answers.is_hit = true;
            answers.disk.cut_power(cut).map_err(io("what a power cut leaves"))?;
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Trial {
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            calls: answers.calls,
            is_hit: answers.is_hit,
            hit: answers.hit,
            is_hung,
        })
    })
}
