-- sync_waits: one row per function that waits for the GPU, with the duration of the waits, the part that the host caused and, for profiled calls, the part in which the GPU was busy.
-- needs: sync_calls
-- columns:
--   run             string   -      Name of the run that the row comes from.
--   op              string   -      Name of the function.
--   calls_count     int64    count  Number of top-level calls.
--   total_ns        int64    ns     Sum of the durations of these calls.
--   p50_ns          float64  ns     Median duration, interpolated.
--   p99_ns          float64  ns     99th percentile of the durations.
--   on_cpu_ns       int64    ns     Running: the thread polled the GPU for completion, or did work of its own.
--   blocked_ns      int64    ns     Blocked: the thread slept until the GPU finished.
--   scheduler_ns    int64    ns     Runnable or preempted: the thread waited for a CPU, not for the GPU.
--   profiled_count  int64    count  Number of calls for which the activity of the GPU is known; the following columns cover these calls.
--   profiled_ns     int64    ns     Sum of the durations of the profiled calls, and of the next three columns; null if there are none.
--   device_busy_ns  int64    ns     Time in which a GPU had work of the process.
--   device_idle_ns  int64    ns     GPU idle: no GPU had work of the process.
--   return_ns       int64    ns     Time from the end of the last work to the return.
--   covered_count   int64    count  Number of calls during which the GPU was busy for the whole wait.
SELECT
    run, op, count(*) AS calls_count, sum(dur) AS total_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    sum(on_cpu_ns) AS on_cpu_ns, sum(blocked_ns) AS blocked_ns, sum(scheduler_ns) AS scheduler_ns,
    count(device_busy_ns) AS profiled_count, sum(CASE WHEN device_busy_ns IS NOT NULL THEN dur END) AS profiled_ns,
    sum(device_busy_ns) AS device_busy_ns, sum(device_idle_ns) AS device_idle_ns, sum(return_ns) AS return_ns,
    coalesce(sum(CASE WHEN is_covered THEN 1 ELSE 0 END), 0) AS covered_count
FROM sync_calls GROUP BY run, op
