-- sync_waits: one row per function that waits for the GPU, with for how long, and how much of it was the host's own doing.
-- needs: op_time
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
SELECT
    run, op, count(*) AS calls_count, sum(dur) AS total_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    sum(on_cpu_ns) AS on_cpu_ns, sum(blocked_ns) AS blocked_ns, sum(preempted_ns + runnable_ns) AS scheduler_ns
FROM op_time WHERE class = 'sync' AND depth = 0 GROUP BY run, op
