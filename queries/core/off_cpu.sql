-- off_cpu: one row per interval in which a traced thread did not run.
-- needs: events
-- columns:
--   run          string  -   Run the row comes from.
--   ts           int64   ns  Switched out, CLOCK_MONOTONIC.
--   dur          int64   ns  Until it ran again; null: still off CPU at the end of the run.
--   pid          uint32  -   Process.
--   tid          uint32  -   Thread.
--   comm         string  -   Thread name.
--   state        string  -   At switch-out: preempted, throttled, sleeping, uninterruptible, stopped, idle, or unknown.
--   blocked_ns   int64   ns  First part: waiting for something; 0 if preempted or throttled; null if not recorded.
--   runnable_ns  int64   ns  Last part: could run, waited for a CPU; null if not recorded.
--   cpu          uint32  -   CPU it waited for, or left.
--   syscall      int32   -   System call (x86-64) it was in; null: none.
--   waker_pid    uint32  -   Process that woke it; 0: an interrupt; null: never asleep, or not recorded.
--   waker_tid    uint32  -   Thread that woke it.
--   waker_comm   string  -   Name of that thread.
--   next_pid     uint32  -   Process that got the CPU.
--   next_tid     uint32  -   Thread that got the CPU; 0 is idle.
--   next_comm    string  -   Name of that thread.
SELECT
    run, ts, dur, pid, tid, comm, op AS state,
    dur - runnable_ns AS blocked_ns, runnable_ns,
    cpu, syscall, waker_pid, waker_tid, waker_comm, next_pid, next_tid, next_comm
FROM events
WHERE kind = 'off_cpu'
