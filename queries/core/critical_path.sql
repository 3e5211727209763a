-- critical_path: one row per link of what a marked range's length is made of, across threads. The links of a range sum to its dur.
-- needs: _critical_path
-- columns:
--   run        string  -   Run the row comes from.
--   phase      string  -   Name of the range.
--   range_ts   int64   ns  Begin of the range, CLOCK_MONOTONIC.
--   ts         int64   ns  Begin of the link.
--   dur        int64   ns  Its length.
--   depth      int64   -   0: the range's own thread; 1: the thread that woke it; and so on.
--   pid        uint32  -   Process whose time it is.
--   tid        uint32  -   Thread whose time it is.
--   op         string  -   The outermost call that the thread was in; null: none.
--   state      string  -   on-cpu, preempted, runnable, throttled, blocked, stopped or unknown.
--   cause      string  -   As in slow_calls; null: the range's own thread ran.
--   task_pid   uint32  -   Process that had the CPU, or ended the sleep; null: not on record.
--   task_comm  string  -   Name of its thread.
SELECT run, phase, range_ts, ts, dur, depth, pid, tid, op, state, cause, task_pid, task_comm
FROM _critical_path
