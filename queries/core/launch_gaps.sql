-- launch_gaps: one row per time of a thread between a kernel or graph launch and its next one. The parts after dur sum to it.
-- needs: _launch_gaps
-- columns:
--   run            string  -   Run the row comes from.
--   pid            uint32  -   Process.
--   tid            uint32  -   Thread.
--   ts             int64   ns  Return of the launch before, CLOCK_MONOTONIC.
--   dur            int64   ns  Until the next one is entered. Work may have been queued on the GPU meanwhile.
--   next_op        string  -   The launch that ends it.
--   phase          string  -   The innermost range of `marks` that the next launch began in; null: none.
--   host_ns        int64   ns  The thread ran outside of CUDA calls: Python, or other code.
--   sync_ns        int64   ns  In synchronising calls: the host waited for the GPU, which had work.
--   alloc_ns       int64   ns  In calls that allocate, free or map memory.
--   copy_ns        int64   ns  In copies and sets.
--   nccl_ns        int64   ns  In NCCL calls.
--   other_call_ns  int64   ns  In other CUDA calls.
--   waiting_ns     int64   ns  Outside of calls: runnable, while another task had the CPU.
--   throttled_ns   int64   ns  Outside of calls: runnable, while its control group had used up its time.
--   page_fault_ns  int64   ns  Outside of calls: a page was brought in.
--   blocked_ns     int64   ns  Outside of calls: asleep for anything else.
--   stopped_ns     int64   ns  Outside of calls: stopped by a signal.
--   unknown_ns     int64   ns  Outside of calls: off CPU, and the source does not say why.
SELECT
    run, pid, tid, ts, dur, next_op, phase,
    host_ns, sync_ns, alloc_ns, copy_ns, nccl_ns, other_call_ns,
    waiting_ns, throttled_ns, page_fault_ns, blocked_ns, stopped_ns, unknown_ns
FROM _launch_gaps
