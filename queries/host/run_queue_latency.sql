-- run_queue_latency: one row per thread, with how long it could run and waited for a CPU.
-- needs: off_cpu
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   tid               uint32   -      Thread.
--   comm              string   -      Last of its names in these intervals.
--   waits_count       int64    count  Times that it waited.
--   p50_ns            float64  ns     Median wait, interpolated.
--   p99_ns            float64  ns     99th percentile.
--   max_ns            int64    ns     Longest.
--   total_ns          int64    ns     Sum.
SELECT
    run, pid, tid, CAST(last_value(comm ORDER BY ts) AS VARCHAR) AS comm, count(*) AS waits_count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(runnable_ns AS DOUBLE)) AS p50_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(runnable_ns AS DOUBLE)) AS p99_ns,
    max(runnable_ns) AS max_ns, sum(runnable_ns) AS total_ns
FROM off_cpu WHERE runnable_ns > 0 GROUP BY run, pid, tid
