-- off_cpu: one row per interval in which a traced thread was off CPU.
-- needs: events
-- columns:
--   run          string  -   Name of the run that the row comes from.
--   ts           int64   ns  Time at which the thread was switched out (CLOCK_MONOTONIC).
--   dur          int64   ns  Time until the thread ran again; null if it was still off CPU at the end of the run.
--   pid          uint32  -   Process ID.
--   tid          uint32  -   Thread ID.
--   comm         string  -   Name of the thread.
--   state        string  -   State of the thread when it was switched out: preempted, throttled, sleeping, uninterruptible, stopped, idle or unknown.
--   blocked_ns   int64   ns  First part of dur, in which the thread was blocked; 0 if it was preempted or throttled, null if it is not recorded.
--   runnable_ns  int64   ns  Last part of dur, in which the thread waited for a CPU (run queue latency); null if it is not recorded.
--   cpu          uint32  -   CPU that the thread waited for, or left.
--   syscall      int32   -   System call (x86-64 number) that the thread was in; null if it was in none.
--   waker_pid    uint32  -   Process ID of the task that woke the thread; 0 is an interrupt, null if it never slept or the waker is not recorded.
--   waker_tid    uint32  -   Thread ID of the waker.
--   waker_comm   string  -   Name of the waker.
--   next_pid     uint32  -   Process ID of the task that was switched in.
--   next_tid     uint32  -   Thread ID of the task that was switched in; 0 is the idle task.
--   next_comm    string  -   Name of the task that was switched in.
SELECT
    run, ts, dur, pid, tid, comm, op AS state,
    dur - runnable_ns AS blocked_ns, runnable_ns,
    cpu, syscall, waker_pid, waker_tid, waker_comm, next_pid, next_tid, next_comm
FROM events
WHERE kind = 'off_cpu'
