-- metrics_gaps: one row per run: the time of its threads between launches, divided by what they did. The columns from gap_host_ns to gap_unknown_ns sum to launch_gap_ns.
-- needs: launch_gaps
-- columns:
--   run                string  -      Name of the run that the row comes from.
--   gaps_count         int64   count  Number of intervals between two consecutive launches of a thread.
--   launch_gap_ns      int64   ns     Sum of the durations of these intervals.
--   gap_host_ns        int64   ns     Running outside of CUDA calls.
--   gap_sync_ns        int64   ns     In synchronizing calls.
--   gap_alloc_ns       int64   ns     In calls that allocate, free or map memory.
--   gap_copy_ns        int64   ns     In copies and memsets.
--   gap_nccl_ns        int64   ns     In NCCL calls.
--   gap_other_call_ns  int64   ns     In other CUDA calls.
--   gap_waiting_ns     int64   ns     Outside of calls, preempted or runnable: another task was on the CPU.
--   gap_throttled_ns   int64   ns     Outside of calls, throttled: the control group had used up its CPU quota.
--   gap_page_fault_ns  int64   ns     Outside of calls, blocked by a page fault.
--   gap_blocked_ns     int64   ns     Outside of calls, blocked by anything else.
--   gap_stopped_ns     int64   ns     Outside of calls, stopped by a signal.
--   gap_unknown_ns     int64   ns     Outside of calls, off CPU for a reason that the source does not record.
-- metrics:
--   gaps_count         lower  1    count, 0 if absent
--   launch_gap_ns      lower  1ms  ns, 0 if absent
--   gap_host_ns        lower  1ms  ns, 0 if absent
--   gap_sync_ns        lower  1ms  ns, 0 if absent
--   gap_alloc_ns       lower  1ms  ns, 0 if absent
--   gap_copy_ns        lower  1ms  ns, 0 if absent
--   gap_nccl_ns        lower  1ms  ns, 0 if absent
--   gap_other_call_ns  lower  1ms  ns, 0 if absent
--   gap_waiting_ns     lower  1ms  ns, 0 if absent
--   gap_throttled_ns   lower  1ms  ns, 0 if absent
--   gap_page_fault_ns  lower  1ms  ns, 0 if absent
--   gap_blocked_ns     lower  1ms  ns, 0 if absent
--   gap_stopped_ns     lower  1ms  ns, 0 if absent
--   gap_unknown_ns     lower  1ms  ns, 0 if absent
SELECT
    run, count(*) AS gaps_count, sum(dur) AS launch_gap_ns, sum(host_ns) AS gap_host_ns, sum(sync_ns) AS gap_sync_ns,
    sum(alloc_ns) AS gap_alloc_ns, sum(copy_ns) AS gap_copy_ns, sum(nccl_ns) AS gap_nccl_ns, sum(other_call_ns) AS gap_other_call_ns,
    sum(runnable_ns) AS gap_waiting_ns, sum(throttled_ns) AS gap_throttled_ns, sum(page_fault_ns) AS gap_page_fault_ns,
    sum(blocked_ns) AS gap_blocked_ns, sum(stopped_ns) AS gap_stopped_ns, sum(unknown_ns) AS gap_unknown_ns
FROM launch_gaps GROUP BY run
