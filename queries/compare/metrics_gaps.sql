-- metrics_gaps: one row per run: the time of its threads between launches, and what it was made of. The parts sum to it.
-- needs: launch_gaps
-- columns:
--   run                 string  -      Run the row comes from.
--   gaps_count          int64   count  Times between two launches of a thread.
--   launch_gap_ns       int64   ns     Their lengths.
--   gap_host_ns         int64   ns     The thread ran outside of CUDA calls.
--   gap_sync_ns         int64   ns     In synchronising calls.
--   gap_alloc_ns        int64   ns     In calls that allocate, free or map memory.
--   gap_copy_ns         int64   ns     In copies and sets.
--   gap_nccl_ns         int64   ns     In NCCL calls.
--   gap_other_call_ns   int64   ns     In other CUDA calls.
--   gap_waiting_ns      int64   ns     Outside of calls: runnable, while another task had the CPU.
--   gap_throttled_ns    int64   ns     Outside of calls: its control group had used up its time.
--   gap_page_fault_ns   int64   ns     Outside of calls: a page was brought in.
--   gap_blocked_ns      int64   ns     Outside of calls: asleep for anything else.
--   gap_stopped_ns      int64   ns     Outside of calls: stopped by a signal.
--   gap_unknown_ns      int64   ns     Outside of calls: off CPU, and the source does not say why.
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
    sum(waiting_ns) AS gap_waiting_ns, sum(throttled_ns) AS gap_throttled_ns, sum(page_fault_ns) AS gap_page_fault_ns,
    sum(blocked_ns) AS gap_blocked_ns, sum(stopped_ns) AS gap_stopped_ns, sum(unknown_ns) AS gap_unknown_ns
FROM launch_gaps GROUP BY run
