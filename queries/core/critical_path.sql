-- critical_path: one row per link of the critical path of a marked range, across threads. The durations of a range's links sum to the duration of the range.
-- needs: _critical_path
-- columns:
--   run        string  -   Name of the run that the row comes from.
--   phase      string  -   Name of the range.
--   range_ts   int64   ns  Start time of the range (CLOCK_MONOTONIC).
--   ts         int64   ns  Start time (CLOCK_MONOTONIC).
--   dur        int64   ns  Duration.
--   depth      int64   -   Number of wakeups between the link and the range: 0 is the thread of the range, 1 the thread that woke it, and so on.
--   pid        uint32  -   Process ID of the thread whose time it is.
--   tid        uint32  -   Thread ID of the thread whose time it is.
--   op         string  -   Top-level call that the thread was in; null if it was in none.
--   state      string  -   State of the thread: on-cpu (running), preempted, runnable, throttled, blocked, stopped or unknown.
--   cause      string  -   Cause, as in slow_calls; null if the thread of the range ran.
--   task_pid   uint32  -   Process ID of the task that was on the CPU or ended the sleep; null if it is not recorded.
--   task_comm  string  -   Name of that task.
SELECT run, phase, range_ts, ts, dur, depth, pid, tid, op, state, cause, task_pid, task_comm
FROM _critical_path
