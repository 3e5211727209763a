-- run_queue_latency: one row per thread, with its run queue latency: the time in which it was runnable and waited for a CPU.
-- needs: off_cpu
-- columns:
--   run          string   -      Name of the run that the row comes from.
--   pid          uint32   -      Process ID.
--   tid          uint32   -      Thread ID.
--   comm         string   -      Last recorded name of the thread in these intervals.
--   waits_count  int64    count  Number of waits.
--   p50_ns       float64  ns     Median wait, interpolated.
--   p99_ns       float64  ns     99th percentile of the waits.
--   max_ns       int64    ns     Longest wait.
--   total_ns     int64    ns     Sum of the waits.
SELECT
    run, pid, tid, CAST(last_value(comm ORDER BY ts) AS VARCHAR) AS comm, count(*) AS waits_count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(runnable_ns AS DOUBLE)) AS p50_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(runnable_ns AS DOUBLE)) AS p99_ns,
    max(runnable_ns) AS max_ns, sum(runnable_ns) AS total_ns
FROM off_cpu WHERE runnable_ns > 0 GROUP BY run, pid, tid
