-- op_time: one row per finished CUDA call, with the division of its duration. on_cpu, preempted, runnable, throttled, blocked, stopped and unknown sum to dur. Where the scheduler is not on record for the whole of a call, all of it is unknown, and the others are null.
-- needs: _calls
-- columns:
--   run                    string  -   Name of the run that the row comes from.
--   op                     string  -   Name of the function, without its version suffix.
--   class                  string  -   Class of the function, as in the view ops; null for an unknown function.
--   ts                     int64   ns  Time of entry (CLOCK_MONOTONIC).
--   dur                    int64   ns  Time from entry to return.
--   pid                    uint32  -   Process ID.
--   tid                    uint32  -   Thread ID.
--   on_cpu_ns              int64   ns  Running: the thread was on a CPU. Interrupts and time that a hypervisor stole are part of it, because they are not recorded.
--   preempted_ns           int64   ns  Preempted: the thread could have continued, and another task ran on its CPU.
--   runnable_ns            int64   ns  Runnable: the thread had been woken and waited for a CPU.
--   throttled_ns           int64   ns  Throttled: the control group of the thread had used up its CPU quota, and then the thread waited for a CPU.
--   blocked_ns             int64   ns  Blocked: the thread slept, interruptibly or not; the sum of the blocked_…_ns.
--   stopped_ns             int64   ns  Stopped by a signal, as the recorder does while it places probes.
--   unknown_ns             int64   ns  Off CPU for a reason that the source does not record; or the whole call, where the scheduler is not on record.
--   blocked_syscall        int64   -   System call (x86-64 number) of the longest single sleep.
--   blocked_ioctl_ns       int64   ns  Blocked in ioctl, through which the CUDA libraries call the kernel driver.
--   blocked_futex_ns       int64   ns  Blocked in futex: on a lock or condition variable.
--   blocked_page_fault_ns  int64   ns  Uninterruptible outside of system calls: a page fault.
--   blocked_disk_ns        int64   ns  Uninterruptible in read, write, sync or open: disk I/O.
--   blocked_sleep_ns       int64   ns  Blocked in a sleep that the thread asked for.
--   blocked_poll_ns        int64   ns  Blocked in poll, select or epoll.
--   blocked_other_ns       int64   ns  Blocked in any other system call.
--   child_op               string  -   Name of the longest call that it directly encloses.
--   child_ns               int64   ns  Time in the calls that it directly encloses; this is part of the times above, not added to them.
--   depth                  int64   -   Number of calls that enclose it on the same thread; 0 is a top-level call.
--   phase                  string  -   Innermost range of `marks` in which the call began; null if it began in none.
SELECT
    c.run, c.op, c.class, c.ts, c.dur, c.pid, c.tid,
    c.on_cpu_ns, c.preempted_ns, c.runnable_ns, c.throttled_ns, c.blocked_ns, c.stopped_ns, c.unknown_ns,
    c.blocked_syscall, c.blocked_ioctl_ns, c.blocked_futex_ns, c.blocked_page_fault_ns, c.blocked_disk_ns,
    c.blocked_sleep_ns, c.blocked_poll_ns, c.blocked_other_ns,
    c.child_op, c.child_ns, c.depth, c.phase
FROM _calls c
WHERE c.dur IS NOT NULL
