-- chain_links: one row per link of the chain behind a slow call with off-CPU time. The links of a call sum to its dur.
-- needs: _chain_links
-- columns:
--   run        string   -      Run the row comes from.
--   op         string   -      Function of the slow call.
--   call_ts    int64    ns     Entry of the slow call, CLOCK_MONOTONIC.
--   call_tid   uint32   -      Thread of the slow call.
--   ts         int64    ns     Begin of the link.
--   dur        int64    ns     Its length. The links of a call follow each other from its entry to its return.
--   depth      int64    -      0: the call's own thread; 1: the thread that woke it; and so on.
--   pid        uint32   -      Process whose time it is.
--   tid        uint32   -      Thread whose time it is.
--   state      string   -      on-cpu, preempted, runnable, throttled, blocked, stopped or unknown.
--   cause      string   -      As in slow_calls; null: the call's own thread ran, or the source does not say why it was off CPU (state unknown).
--   cpu        uint32   -      CPU that was waited for, or left.
--   syscall    int64    -      System call (x86-64) that it slept in.
--   task_pid   uint32   -      Process that had the CPU, or ended the sleep, or was waited for and ran; null: not on record.
--   task_tid   uint32   -      Its thread.
--   task_comm  string   -      Name of that thread.
--   call_pid   uint32   -      Process of the slow call.
--   call_depth int64    -      Calls around the slow call: with call_pid, call_tid and call_ts, no other slow call has it.
SELECT
    run, op, call_ts, call_tid, ts, dur, depth, pid,
    tid, state, cause, cpu, syscall, task_pid, task_tid, task_comm, call_pid, call_depth
FROM _chain_links
