-- launch_gaps: one row per interval of a thread between two consecutive kernel or graph launches. The columns from host_ns to unknown_ns sum to dur. There is no row where launches between the two may not be stored, nor in a run that was recorded without launches of kernels (`capture --profile light`).
-- needs: _launch_gaps
-- columns:
--   run            string  -   Name of the run that the row comes from.
--   pid            uint32  -   Process ID.
--   tid            uint32  -   Thread ID.
--   ts             int64   ns  Time of return of the first launch (CLOCK_MONOTONIC).
--   dur            int64   ns  Time until the next launch was entered. The GPU may have had queued work meanwhile.
--   next_op        string  -   Name of the function of the next launch.
--   phase          string  -   Innermost range of `marks` in which the next launch began; null if it began in none.
--   host_ns        int64   ns  Running outside of CUDA calls: Python, or other code.
--   sync_ns        int64   ns  In synchronizing calls: the host waited for the GPU, which was busy.
--   alloc_ns       int64   ns  In calls that allocate, free or map memory.
--   copy_ns        int64   ns  In copies and memsets.
--   nccl_ns        int64   ns  In NCCL calls.
--   other_call_ns  int64   ns  In other CUDA calls.
--   runnable_ns    int64   ns  Outside of calls, preempted or runnable: another task was on the CPU.
--   throttled_ns   int64   ns  Outside of calls, throttled: the control group had used up its CPU quota.
--   page_fault_ns  int64   ns  Outside of calls, blocked by a page fault.
--   blocked_ns     int64   ns  Outside of calls, blocked by anything else.
--   stopped_ns     int64   ns  Outside of calls, stopped by a signal.
--   unknown_ns     int64   ns  Outside of calls, off CPU for a reason that the source does not record; or all time outside of calls, where the scheduler is not on record; or all of the gap, where some calls are not on record. The other columns of such time are null.
--   waiting_ns     int64   ns  Deprecated alias of runnable_ns; removed with format version 2.
SELECT
    run, pid, tid, ts, dur, next_op, phase,
    host_ns, sync_ns, alloc_ns, copy_ns, nccl_ns, other_call_ns,
    waiting_ns AS runnable_ns, throttled_ns, page_fault_ns, blocked_ns, stopped_ns, unknown_ns,
    waiting_ns
FROM _launch_gaps
