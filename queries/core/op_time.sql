-- op_time: one row per finished CUDA call: where its time went. on_cpu, preempted, runnable, throttled, blocked, stopped and unknown sum to dur.
-- needs: _calls
-- columns:
--   run                    string  -   Run the row comes from.
--   op                     string  -   Function, without version suffix.
--   class                  string  -   What it is for; null for a function Inquest does not know.
--   ts                     int64   ns  Entry, CLOCK_MONOTONIC.
--   dur                    int64   ns  Entry to return.
--   pid                    uint32  -   Process.
--   tid                    uint32  -   Thread.
--   on_cpu_ns              int64   ns  The thread had a CPU. Interrupts and time stolen by a hypervisor are in it: they are not recorded.
--   preempted_ns           int64   ns  It could have run on, and another task had the CPU.
--   runnable_ns            int64   ns  It had been woken and waited for a CPU.
--   throttled_ns           int64   ns  It could have run on, and its control group had used up its CPU time; with the wait for a CPU after it got new.
--   blocked_ns             int64   ns  It waited for something else, asleep or uninterruptible: the sum of the blocked_…_ns.
--   stopped_ns             int64   ns  It was stopped by a signal, as the recorder does while it places probes.
--   unknown_ns             int64   ns  It was off CPU and the source does not say why.
--   blocked_syscall        int64   -   System call (x86-64) in which it was blocked longest at a stretch.
--   blocked_ioctl_ns       int64   ns  Blocked in ioctl: in the CUDA libraries, the driver in the kernel.
--   blocked_futex_ns       int64   ns  Blocked in futex: a lock or condition of another thread.
--   blocked_page_fault_ns  int64   ns  Uninterruptible outside of system calls: a page was brought in.
--   blocked_disk_ns        int64   ns  Uninterruptible in a read, write, sync or open.
--   blocked_sleep_ns       int64   ns  It asked to sleep.
--   blocked_poll_ns        int64   ns  Blocked in poll, select or epoll.
--   blocked_other_ns       int64   ns  Blocked in any other system call.
--   child_op               string  -   The direct nested call that took longest.
--   child_ns               int64   ns  Time in direct nested calls; part of the above, not beside it.
--   depth                  int64   -   How many calls are around it.
--   phase                  string  -   The innermost range of `marks` that it began in; null: none.
SELECT
    c.run, c.op, c.class, c.ts, c.dur, c.pid, c.tid,
    c.on_cpu_ns, c.preempted_ns, c.runnable_ns, c.throttled_ns, c.blocked_ns, c.stopped_ns, c.unknown_ns,
    c.blocked_syscall, c.blocked_ioctl_ns, c.blocked_futex_ns, c.blocked_page_fault_ns, c.blocked_disk_ns,
    c.blocked_sleep_ns, c.blocked_poll_ns, c.blocked_other_ns,
    c.child_op, c.child_ns, c.depth, c.phase
FROM _calls c
WHERE c.dur IS NOT NULL
