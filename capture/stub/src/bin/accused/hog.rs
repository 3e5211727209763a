//! A process that takes a CPU away from other tasks: all the time, in bursts, or when it is called.

use std::{io::Write, path::PathBuf, sync::atomic::Ordering, time::Duration};

use clap::Args;
use cuda_stub::{
    now_ns, order,
    scenario::{HOG_COMM, HOG_READY},
};

use crate::{die_with_parent, pin, setup};

/// Real-time priority of a hog that is called.
const CALLED_PRIORITY: i32 = 1;

#[derive(Args)]
pub(crate) struct Hog {
    /// CPU to run on
    #[arg(long)]
    cpu: usize,
    /// Nice value; a lower one takes more of the CPU
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    nice: i32,
    /// Microseconds of computing before each rest
    #[arg(long, default_value_t = 1000)]
    burn_us: u64,
    /// Microseconds of each rest
    #[arg(long, default_value_t = 0)]
    rest_us: u64,
    /// Compute only when called through this shared file, at real-time priority
    #[arg(long)]
    bell: Option<PathBuf>,
}

impl Hog {
    pub(crate) fn run(self) -> ! {
        die_with_parent();
        pin(self.cpu);
        let comm = std::ffi::CString::new(HOG_COMM).expect("no NUL");
        let parameter = libc::sched_param { sched_priority: CALLED_PRIORITY };
        // SAFETY: a valid string and a valid parameter.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, comm.as_ptr());
            assert_eq!(libc::setpriority(libc::PRIO_PROCESS, 0, self.nice), 0, "priority {}", self.nice);
            if self.bell.is_some() {
                let set = libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter);
                assert_eq!(set, 0, "real-time priority");
            }
        }
        let bell = self.bell.as_ref().map(|path| setup::bell(path));
        println!("{HOG_READY}");
        std::io::stdout().flush().expect("say so");
        let mut answered = 0;
        loop {
            if let Some(bell) = bell {
                while bell.load(Ordering::Acquire) == answered {
                    order::futex_wait(bell, answered);
                }
                answered = bell.load(Ordering::Acquire);
            }
            let end_ns = now_ns() + self.burn_us * 1000;
            while now_ns() < end_ns {
                order::burn(100);
            }
            if self.rest_us > 0 {
                std::thread::sleep(Duration::from_micros(self.rest_us));
            }
        }
    }
}
