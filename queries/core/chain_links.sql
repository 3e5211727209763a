-- chain_links: one row per link of the wakeup chain of a slow call with off-CPU time. The durations of a call's links sum to the duration of the call.
-- needs: _chain_links
-- columns:
--   run         string  -   Name of the run that the row comes from.
--   op          string  -   Name of the slow call's function.
--   call_ts     int64   ns  Time of entry of the slow call (CLOCK_MONOTONIC).
--   call_tid    uint32  -   Thread ID of the slow call.
--   ts          int64   ns  Start time (CLOCK_MONOTONIC).
--   dur         int64   ns  Duration; the links of a call follow each other without gaps from its entry to its return.
--   depth       int64   -   Number of wakeups between the link and the call: 0 is the calling thread, 1 the thread that woke it, and so on.
--   pid         uint32  -   Process ID of the thread whose time it is.
--   tid         uint32  -   Thread ID of the thread whose time it is.
--   state       string  -   State of the thread: on-cpu (running), preempted, runnable, throttled, blocked, stopped or unknown.
--   cause       string  -   Cause, as in slow_calls; null if the calling thread ran.
--   cpu         uint32  -   CPU that the thread waited for, or left.
--   syscall     int64   -   System call (x86-64 number) in which the thread slept.
--   task_pid    uint32  -   Process ID of the task that was on the CPU, ended the sleep, or was waited for and ran; null if it is not recorded.
--   task_tid    uint32  -   Thread ID of that task.
--   task_comm   string  -   Name of that task.
--   call_pid    uint32  -   Process ID of the slow call.
--   call_depth  int64   -   Number of calls that enclose the slow call; with call_pid, call_tid and call_ts it identifies the call.
SELECT
    run, op, call_ts, call_tid, ts, dur, depth, pid,
    tid, state, cause, cpu, syscall, task_pid, task_tid, task_comm, call_pid, call_depth
FROM _chain_links
