-- sync_waits: one row per function that waits for the GPU, with for how long, how much of it was the host's own doing and, with device rows, how much the GPU's.
-- needs: sync_calls
-- columns:
--   run               string   -      Run the row comes from.
--   op                string   -      Function.
--   calls_count       int64    count  Calls that no other call is around.
--   total_ns          int64    ns     Time in them.
--   p50_ns            float64  ns     Median, interpolated.
--   p99_ns            float64  ns     99th percentile.
--   on_cpu_ns         int64    ns     The thread had a CPU: it looked whether the GPU is done, or did its own work.
--   blocked_ns        int64    ns     It slept until the GPU was done.
--   scheduler_ns      int64    ns     It could have run and waited for a CPU: no waiting for the GPU.
--   profiled_count    int64    count  Calls of which it is known what the GPU did meanwhile; what follows is of these.
--   profiled_ns       int64    ns     Time in them: the sum of the next three. Null: there are none.
--   device_busy_ns    int64    ns     A GPU had work of the process.
--   device_idle_ns    int64    ns     It had none, before the last work or at all.
--   return_ns         int64    ns     From the end of the last work until the return.
--   covered_count     int64    count  Calls whose wait work covers until its last end.
SELECT
    run, op, count(*) AS calls_count, sum(dur) AS total_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    sum(on_cpu_ns) AS on_cpu_ns, sum(blocked_ns) AS blocked_ns, sum(scheduler_ns) AS scheduler_ns,
    count(device_busy_ns) AS profiled_count, sum(CASE WHEN device_busy_ns IS NOT NULL THEN dur END) AS profiled_ns,
    sum(device_busy_ns) AS device_busy_ns, sum(device_idle_ns) AS device_idle_ns, sum(return_ns) AS return_ns,
    coalesce(sum(CASE WHEN is_covered THEN 1 ELSE 0 END), 0) AS covered_count
FROM sync_calls GROUP BY run, op
