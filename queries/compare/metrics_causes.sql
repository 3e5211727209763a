-- metrics_causes: one row per run and function with slow top-level calls: their excess latency, divided by cause.
-- needs: slow_calls
-- measured with: wall_ns
-- columns:
--   run                   string   -      Name of the run that the row comes from.
--   subject               string   -      Name of the function.
--   slow_count            int64    count  Number of slow calls.
--   excess_ns             float64  ns     Excess latency: duration above the baseline of the group. The following columns sum to it.
--   lost_scheduler_ns     float64  ns     Excess latency while preempted or runnable: another task was on the CPU.
--   lost_throttled_ns     float64  ns     Excess latency while the control group had used up its CPU quota.
--   lost_blocked_ns       float64  ns     Excess latency while blocked, above the baseline.
--   lost_gpu_wait_ns      float64  ns     Excess latency of expected synchronization: synchronizing calls waited for the GPU.
--   lost_size_ns          float64  ns     Excess latency of calls that moved more bytes than the median call.
--   lost_first_call_ns    float64  ns     Excess latency of first launches of their kernels.
--   lost_nested_ns        float64  ns     Excess latency of nested calls of another class.
--   lost_stopped_ns       float64  ns     Excess latency while stopped by a signal.
--   lost_inconclusive_ns  float64  ns     Excess latency for which the trace does not record what is needed to determine the cause.
--   lost_unexplained_ns   float64  ns     Excess latency whose cause is unknown: none of these.
-- metrics:
--   slow_count            lower  1    count, 0 if absent
--   excess_ns             lower  1ms  ns, 0 if absent
--   lost_scheduler_ns     lower  1ms  ns, 0 if absent
--   lost_throttled_ns     lower  1ms  ns, 0 if absent
--   lost_blocked_ns       lower  1ms  ns, 0 if absent
--   lost_gpu_wait_ns      lower  1ms  ns, 0 if absent
--   lost_size_ns          lower  1ms  ns, 0 if absent
--   lost_first_call_ns    lower  1ms  ns, 0 if absent
--   lost_nested_ns        lower  1ms  ns, 0 if absent
--   lost_stopped_ns       lower  1ms  ns, 0 if absent
--   lost_inconclusive_ns  lower  1ms  ns, 0 if absent
--   lost_unexplained_ns   lower  1ms  ns, 0 if absent
SELECT
    run, op AS subject, count(*) AS slow_count, sum(excess_ns) AS excess_ns, sum(scheduler_ns) AS lost_scheduler_ns,
    sum(throttled_ns) AS lost_throttled_ns,
    sum(blocked_ioctl_ns + blocked_futex_ns + blocked_page_fault_ns + blocked_disk_ns + blocked_sleep_ns + blocked_poll_ns + blocked_other_ns) AS lost_blocked_ns,
    sum(gpu_wait_ns) AS lost_gpu_wait_ns, sum(size_ns) AS lost_size_ns, sum(first_call_ns) AS lost_first_call_ns,
    sum(nested_ns) AS lost_nested_ns, sum(stopped_ns) AS lost_stopped_ns, sum(inconclusive_ns) AS lost_inconclusive_ns,
    sum(unexplained_ns) AS lost_unexplained_ns
FROM slow_calls WHERE depth = 0 GROUP BY run, op
