//! The calls: the same mix in every scenario, by a random generator of fixed seed, and one record for each.

use std::{
    collections::HashSet,
    ffi::{c_int, c_uint, c_void},
    ptr::{null, null_mut},
    sync::atomic::{AtomicU32, Ordering},
};

use cuda_stub::{
    Dim3, function, load, now_ns,
    order::{self, Order},
    scenario::{Injection, Scenario, label},
    truth::Call,
};

use crate::{
    Run,
    books::Books,
    pin,
    setup::{self, Setup},
};

/// Computing of every call.
const BASE_NS: u64 = 60_000;
/// Bytes copied in a nanosecond.
const BYTES_PER_NS: u64 = 10;
const FIRST_NS: u64 = 1_000_000;
const MODULE_NS: u64 = 1_000_000;
/// Calls between which a hog is called at all, on average.
const BELL_PERMILLE: u64 = 20;

const GRID: Dim3 = Dim3 { x: 64, y: 2, z: 1 };
const BLOCK: Dim3 = Dim3 { x: 256, y: 1, z: 1 };

type RuntimeLaunch = extern "C" fn(u64, Dim3, Dim3, *mut *mut c_void, usize, *mut c_void) -> c_int;
type DriverLaunch = extern "C" fn(
    u64,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// xorshift: a fixed seed gives the same calls every time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 0 to `limit` − 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    RuntimeCopy,
    DriverCopy,
    RuntimeLaunch,
    DriverLaunch,
    Synchronize,
    Malloc,
    Free,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::RuntimeCopy => "cudaMemcpy",
            Self::DriverCopy => "cuMemcpyHtoD",
            Self::RuntimeLaunch => "cudaLaunchKernel",
            Self::DriverLaunch => "cuLaunchKernel",
            Self::Synchronize => "cudaStreamSynchronize",
            Self::Malloc => "cudaMalloc",
            Self::Free => "cudaFree",
        }
    }

    fn may_have(self, injection: Injection) -> bool {
        match injection {
            Injection::None => false,
            Injection::Module => self == Self::RuntimeLaunch,
            Injection::Gpu => self == Self::Synchronize,
            Injection::Convoy | Injection::Disk | Injection::PageFault | Injection::Ioctl => {
                self != Self::Synchronize
            }
        }
    }
}

/// The libraries' functions.
struct Functions {
    next: extern "C" fn(*mut Order),
    next_module: extern "C" fn(*mut Order),
    runtime_copy: extern "C" fn(u64, *const c_void, usize, c_int) -> c_int,
    driver_copy: extern "C" fn(u64, *const c_void, usize) -> c_int,
    runtime_launch: RuntimeLaunch,
    driver_launch: DriverLaunch,
    synchronize: extern "C" fn(*mut c_void) -> c_int,
    malloc: extern "C" fn(*mut u64, usize) -> c_int,
    free: extern "C" fn(u64) -> c_int,
}

impl Functions {
    fn find() -> Self {
        Self {
            next: function("stub_next"),
            next_module: function("stub_next_module"),
            runtime_copy: function("cudaMemcpy"),
            driver_copy: function("cuMemcpyHtoD_v2"),
            runtime_launch: function("cudaLaunchKernel"),
            driver_launch: function("cuLaunchKernel"),
            synchronize: function("cudaStreamSynchronize"),
            malloc: function("cudaMalloc"),
            free: function("cudaFree"),
        }
    }
}

struct Maker<'a> {
    scenario: &'a Scenario,
    functions: Functions,
    random: Random,
    rounds_per_ms: u64,
    books: Books,
    setup: Setup,
    bell: Option<&'static AtomicU32>,
    blocks: Vec<u64>,
    launched: HashSet<u64>,
    tid: i32,
}

/// Makes all calls of a scenario.
pub(crate) fn make(scenario: &Scenario, run: &Run) -> Vec<Call> {
    for name in ["libcuda.so", "libcudart.so"] {
        load(&run.libraries, name);
    }
    setup::sleepers(scenario.sleepers_count);
    let rounds_per_ms = function::<extern "C" fn() -> u64>("stub_rounds_per_ms")();
    let setup = Setup::new(scenario.injection, run, rounds_per_ms);
    pin(run.cpu);
    let mut maker = Maker {
        scenario,
        functions: Functions::find(),
        random: Random::new(0x1234_5678_9abc_def1),
        rounds_per_ms,
        books: Books::open(run.cpu_stat.as_deref()),
        setup,
        bell: run.bell.as_deref().map(setup::bell),
        blocks: Vec::new(),
        launched: HashSet::new(),
        // SAFETY: no preconditions.
        tid: unsafe { libc::gettid() },
    };
    let mut made = Vec::with_capacity(run.calls);
    for _ in 0..run.calls {
        let call = maker.one();
        made.push(call);
    }
    made
}

impl Maker<'_> {
    fn permille(&mut self, share: u64) -> bool {
        self.random.below(1000) < share
    }

    fn choose(&mut self) -> Op {
        match self.random.below(100) {
            0..20 => Op::RuntimeCopy,
            20..40 => Op::DriverCopy,
            40..65 => Op::RuntimeLaunch,
            65..80 => Op::DriverLaunch,
            80..90 => Op::Synchronize,
            _ if self.blocks.is_empty() || self.permille(500) => Op::Malloc,
            _ => Op::Free,
        }
    }

    /// What the call is about, and what that costs.
    fn plan(&mut self, op: Op) -> Call {
        let mut call = Call { op: op.name().to_owned(), tid: self.tid, ..Call::default() };
        match op {
            Op::RuntimeCopy | Op::DriverCopy => {
                let large = self.permille(self.scenario.large_permille);
                let unit_bytes = if large { 4 << 20 } else { 4 << 10 };
                let pages = if large { self.random.below(4) } else { self.random.below(16) };
                call.size_bytes = (1 + pages) * unit_bytes;
                call.size_ns = call.size_bytes / BYTES_PER_NS;
            }
            Op::RuntimeLaunch | Op::DriverLaunch => {
                // The same handle on both layers would be two first launches, or one.
                let layer = if op == Op::RuntimeLaunch { 0x4000 } else { 0x9000 };
                call.func = layer + self.random.below(self.scenario.kernels_count);
                call.first_ns = if self.launched.insert(call.func) { FIRST_NS } else { 0 };
            }
            Op::Malloc => call.size_bytes = (1 + self.random.below(16)) << 20,
            Op::Synchronize | Op::Free => {}
        }
        let plain = call.first_ns == 0 && call.size_ns < BASE_NS;
        if plain && op.may_have(self.scenario.injection) && self.permille(self.scenario.injected_permille) {
            call.injected = Some(String::new());
            call.nested_ns = if self.scenario.injection == Injection::Module { MODULE_NS } else { 0 };
        }
        call.work_ns = BASE_NS + call.size_ns + call.first_ns + call.nested_ns;
        call
    }

    fn rounds(&self, ns: u64) -> u64 {
        ns * self.rounds_per_ms / 1_000_000
    }

    fn one(&mut self) -> Call {
        let op = self.choose();
        let mut call = self.plan(op);
        let mut order = Order::work(self.rounds(call.work_ns - call.nested_ns));
        let mut module = Order::work(self.rounds(call.nested_ns));
        if call.nested_ns > 0 {
            (self.functions.next_module)(&raw mut module);
            call.injected = Some(label::NESTED.to_owned());
        } else if call.injected.is_some() {
            let (fault, label) = self.setup.fault(&mut self.random);
            order.fault = fault;
            call.injected = Some(label.to_owned());
        }
        // A hog is called oftener before a large copy: it stands near the slow call and is innocent.
        if let Some(bell) = self.bell
            && (call.size_ns > BASE_NS || self.permille(BELL_PERMILLE))
        {
            bell.fetch_add(1, Ordering::Release);
            order::futex_wake(bell);
        }
        let block = if op == Op::Free { self.blocks.pop().unwrap_or(0) } else { 0 };
        let mut allocated = 0;
        (self.functions.next)(&raw mut order);

        let before = self.books.read();
        call.before_ns = now_ns();
        let answer = self.make(op, &call, block, &mut allocated);
        call.after_ns = now_ns();
        self.books.read().since(before, &mut call);

        assert_eq!(answer, 0, "{}", call.op);
        if op == Op::Malloc {
            self.blocks.push(allocated);
        }
        call.fault_ns = order.took_ns;
        if call.injected.is_some() {
            self.setup.holder_s_books(&mut call);
        }
        call
    }

    fn make(&self, op: Op, call: &Call, block: u64, allocated: &mut u64) -> c_int {
        let (size, func) = (call.size_bytes as usize, call.func);
        match op {
            Op::RuntimeCopy => (self.functions.runtime_copy)(0x2000, null(), size, 1),
            Op::DriverCopy => (self.functions.driver_copy)(0x2000, null(), size),
            Op::RuntimeLaunch => {
                (self.functions.runtime_launch)(func, GRID, BLOCK, null_mut(), 0, null_mut())
            }
            Op::DriverLaunch => {
                let launch = self.functions.driver_launch;
                launch(func, GRID.x, GRID.y, 1, BLOCK.x, 1, 1, 0, null_mut(), null_mut(), null_mut())
            }
            Op::Synchronize => (self.functions.synchronize)(0x53 as *mut c_void),
            Op::Malloc => (self.functions.malloc)(allocated, size),
            Op::Free => (self.functions.free)(block),
        }
    }
}
