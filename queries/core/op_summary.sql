-- op_summary: one row per function and stratum: how often and how long. Censored calls are counted apart.
-- needs: ops
-- columns:
--   run             string  -      Run the row comes from.
--   op              string  -      Function.
--   layer           string  -      runtime, driver, nccl, or null.
--   direction       string  -      Copies: the direction.
--   size_class      int64   -      Binary logarithm of the size, rounded down.
--   first_call      boolean -      Launches: first call with a kernel.
--   calls_count     int64   count  Finished calls.
--   censored_count  int64   count  Calls still open at the end.
--   p50_ns          float64 ns     Median duration, interpolated.
--   p90_ns          float64 ns     90th percentile.
--   p99_ns          float64 ns     99th percentile.
--   max_ns          int64   ns     Longest.
--   total_ns        int64   ns     Sum of durations.
SELECT
    run, op, layer, direction, size_class, first_call,
    count(dur) AS calls_count,
    count(*) - count(dur) AS censored_count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p90_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    max(dur) AS max_ns,
    sum(dur) AS total_ns
FROM ops
GROUP BY run, op, layer, direction, size_class, first_call
