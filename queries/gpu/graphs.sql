-- graphs: one row per process and CUDA graph function (capture, instantiation, update, launch, destruction), with its calls and durations.
-- needs: ops
-- columns:
--   run           string  -      Name of the run that the row comes from.
--   op            string  -      Name of the function.
--   pid           uint32  -      Process ID.
--   calls_count   int64   count  Number of top-level calls.
--   failed_count  int64   count  Number of these calls that returned an error.
--   total_ns      int64   ns     Sum of the durations of these calls.
--   max_ns        int64   ns     Longest duration.
--   first_ts      int64   -      Time of entry of the first call, in ns (CLOCK_MONOTONIC).
--   last_ts       int64   -      Time of entry of the last call, in ns (CLOCK_MONOTONIC).
SELECT
    run, op, pid, count(*) AS calls_count, sum(CASE WHEN ret <> 0 THEN 1 ELSE 0 END) AS failed_count,
    coalesce(sum(dur), 0) AS total_ns, max(dur) AS max_ns, min(ts) AS first_ts, max(ts) AS last_ts
FROM ops WHERE (class = 'graph' OR op IN ('cudaGraphLaunch', 'cuGraphLaunch')) AND depth = 0 GROUP BY run, op, pid
