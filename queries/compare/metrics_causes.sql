-- metrics_causes: one row per run and function with slow calls that no other is around: what they lost above the usual, by cause.
-- needs: slow_calls
-- measured with: wall_ns
-- columns:
--   run                    string   -      Run the row comes from.
--   subject                string   -      Function.
--   slow_count             int64    count  Slow calls.
--   excess_ns              float64  ns     Above what calls of their kind usually take; the parts below sum to it.
--   lost_scheduler_ns      float64  ns     Runnable, while another task had the CPU.
--   lost_throttled_ns      float64  ns     Their control group had used up its CPU time.
--   lost_blocked_ns        float64  ns     Asleep for anything, above the usual.
--   lost_gpu_wait_ns       float64  ns     Synchronising calls waited for the GPU.
--   lost_size_ns           float64  ns     They moved more bytes than the usual call.
--   lost_first_call_ns     float64  ns     First launches of their kernels.
--   lost_nested_ns         float64  ns     Nested calls of another class took longer than usual.
--   lost_stopped_ns        float64  ns     Stopped by a signal.
--   lost_inconclusive_ns   float64  ns     The trace does not record what is needed to tell.
--   lost_unexplained_ns    float64  ns     None of these.
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
