//! The processes that a demo records and hides: the workload, and the hog beside it.
//!
//! Both name themselves, because `analyze` takes what is called `capture` for the recorder.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    fs, hint, io,
    os::unix::{ffi::OsStrExt, process::parent_id},
    path::{Path, PathBuf},
    ptr,
    time::{Duration, Instant},
};

use clap::Subcommand;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use super::libraries::{DRIVER, RUNTIME};
use crate::{
    clock,
    error::{CaptureError, print},
};

/// Number of kernels of a step.
const KERNELS_COUNT: u64 = 16;
/// CPU time that the workload computes before each launch, as Python does, in nanoseconds.
const HOST_NS: i64 = 150_000;
/// Time that a step takes on a CPU of its own, in nanoseconds: the launches with what is computed before them.
const STEP_NS: u64 = 2_900_000;
/// Number of steps after which the workload waits for the device.
const SYNCHRONIZED_STEPS: u64 = 10;
/// Size of a step's copy to the device.
const BATCH_BYTES: usize = 256 << 10;
/// The stream of all work.
const STREAM: usize = 0x51;
/// The address of the first kernel's function.
const KERNEL: usize = 0x4000;
/// Number of distinct kernels.
const FUNCTIONS_COUNT: u64 = 4;
/// How long a hog computes at most, if nobody ends it.
const LONGEST_HOG: Duration = Duration::from_secs(3600);

/// A part of the demo.
#[derive(Subcommand)]
pub(crate) enum Part {
    /// Launch kernels of the stub libraries, and print how long that took in nanoseconds
    Workload {
        /// The CPU to run on
        #[arg(long)]
        cpu: usize,
        /// The folder of the libraries
        #[arg(long)]
        libraries: PathBuf,
        /// Number of steps
        #[arg(long)]
        steps: u64,
    },
    /// Compute until the process that started this one ends
    Hog {
        /// The CPU to run on
        #[arg(long)]
        cpu: usize,
    },
}

impl Part {
    /// Runs the part.
    ///
    /// # Errors
    /// If it cannot run on its CPU, or if the libraries cannot be loaded.
    pub(super) fn run(self) -> Result<(), CaptureError> {
        match self {
            Self::Workload { cpu, libraries, steps } => {
                begin("demo-workload", cpu)?;
                let time = workload(&libraries, steps)?;
                print(&format!("{}\n", time.as_nanos()))
            }
            Self::Hog { cpu } => {
                // Before anything else: whoever started this may end at any time.
                let parent = parent_id();
                begin("cpu-hog", cpu)?;
                hog(parent);
                Ok(())
            }
        }
    }
}

/// The number of steps of a workload that runs twice in this time: alone, and beside a hog that takes half of its CPU.
pub(super) fn steps_count(seconds: u32) -> u64 {
    let alone_ns = u64::from(seconds) * 1_000_000_000 / 3;
    (alone_ns / STEP_NS).max(1)
}

/// Names this process, and binds it to a CPU.
fn begin(name: &str, cpu: usize) -> Result<(), CaptureError> {
    let failed = |what: String| move |source: io::Error| CaptureError::Io { what, source };
    fs::write("/proc/self/comm", name).map_err(failed(format!("the process name {name}")))?;
    let mut cpus = CpuSet::new();
    cpus.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus))
        .map_err(|error| failed(format!("CPU {cpu}"))(error.into()))
}

/// Computes until the process with the ID `parent` has ended.
fn hog(parent: u32) {
    let start = Instant::now();
    while parent_id() == parent && start.elapsed() < LONGEST_HOG {
        compute(1_000_000);
    }
}

/// Computes for so much CPU time of this thread, in nanoseconds, however long it has to wait for the CPU.
fn compute(ns: i64) {
    let end_ns = clock::thread_cpu_ns() + ns;
    while clock::thread_cpu_ns() < end_ns {
        hint::spin_loop();
    }
}

/// A loaded library.
struct Library(*mut c_void);

impl Library {
    /// Loads a library so that libraries that are loaded later find its functions.
    fn open(path: &Path) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Io { what: path.display().to_string(), source };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
        #[expect(unsafe_code, reason = "the dynamic loader has no safe interface in the standard library")]
        // SAFETY: a C string; the libraries are those of this program and run nothing when they are loaded.
        let (handle, error) = unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            let error = if handle.is_null() { libc::dlerror() } else { ptr::null_mut() };
            (handle, (!error.is_null()).then(|| CStr::from_ptr(error).to_string_lossy().into_owned()))
        };
        if handle.is_null() {
            // A folder for temporary files may forbid programs.
            let hint = "if programs may not run from there, set TMPDIR to another folder";
            return Err(failed(io::Error::other(format!("{}; {hint}", error.unwrap_or_default()))));
        }
        Ok(Self(handle))
    }

    /// Finds a function, as the function pointer type `F`.
    fn function<F: Copy>(&self, name: &CStr) -> Result<F, CaptureError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        #[expect(unsafe_code, reason = "the dynamic loader has no safe interface in the standard library")]
        // SAFETY: the library is loaded and stays so, and the name is a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(CaptureError::MissingPart("function in the libraries of the demo"));
        }
        #[expect(unsafe_code, reason = "C functions of the stub libraries")]
        // SAFETY: it is as large as a pointer, and every caller names the signature that `stub/` defines.
        let function = unsafe { std::mem::transmute_copy(&address) };
        Ok(function)
    }
}

/// CUDA's `dim3`, by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// Launches kernels as a model does that makes one token after the other; returns how long the steps took.
fn workload(libraries: &Path, steps_count: u64) -> Result<Duration, CaptureError> {
    type CopyAsync = extern "C" fn(u64, *const c_void, usize, c_int, *mut c_void) -> c_int;
    type Launch = extern "C" fn(*mut c_void, Dim3, Dim3, *mut *mut c_void, usize, *mut c_void) -> c_int;
    const HOST_TO_DEVICE: c_int = 1;
    let _driver = Library::open(&libraries.join(DRIVER))?;
    let runtime = Library::open(&libraries.join(RUNTIME))?;
    let malloc: extern "C" fn(*mut u64, usize) -> c_int = runtime.function(c"cudaMalloc")?;
    let free: extern "C" fn(u64) -> c_int = runtime.function(c"cudaFree")?;
    let copy: CopyAsync = runtime.function(c"cudaMemcpyAsync")?;
    let launch: Launch = runtime.function(c"cudaLaunchKernel")?;
    let synchronize: extern "C" fn(*mut c_void) -> c_int = runtime.function(c"cudaStreamSynchronize")?;
    let (batch, stream) = (vec![0_u8; BATCH_BYTES], ptr::without_provenance_mut(STREAM));
    let (grid, block) = (Dim3 { x: 264, y: 1, z: 1 }, Dim3 { x: 256, y: 1, z: 1 });
    let mut address = 0;
    malloc(&raw mut address, BATCH_BYTES);
    let start = Instant::now();
    for step in 1..=steps_count {
        copy(address, batch.as_ptr().cast(), BATCH_BYTES, HOST_TO_DEVICE, stream);
        for number in 0..KERNELS_COUNT {
            compute(HOST_NS);
            let function = ptr::without_provenance_mut(KERNEL + (number % FUNCTIONS_COUNT) as usize);
            launch(function, grid, block, ptr::null_mut(), 0, stream);
        }
        if step % SYNCHRONIZED_STEPS == 0 {
            synchronize(stream);
        }
    }
    let time = start.elapsed();
    free(address);
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_takes_its_time_in_three_parts() {
        assert_eq!(steps_count(18), 2068);
        assert_eq!(steps_count(1), 114);
        assert_eq!(steps_count(0), 1);
    }

    #[test]
    fn the_workload_runs_on_the_embedded_libraries() {
        let folder = super::super::libraries::write().expect("a folder");
        let time = workload(folder.path(), 20).expect("a workload");
        assert!(time >= Duration::from_nanos(20 * STEP_NS * 9 / 10), "{time:?}");
        let missing = workload(&folder.path().join("none"), 1).expect_err("no library");
        assert!(missing.to_string().contains("libcuda.so"), "{missing}");
    }

    #[test]
    fn a_hog_ends_with_the_process_that_started_it() {
        let start = Instant::now();
        hog(parent_id().wrapping_add(1));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
