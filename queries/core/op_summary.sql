-- op_summary: one row per function and group of comparable calls (size class, direction, first call), with the number of calls and their durations. Calls that were open at the end of the run are counted apart.
-- needs: ops
-- columns:
--   run             string   -      Name of the run that the row comes from.
--   op              string   -      Name of the function.
--   layer           string   -      API of the function: runtime, driver or nccl; null for an unknown function.
--   direction       string   -      Direction of copies; null for other functions.
--   size_class      int64    -      Size class: the binary logarithm of the size, rounded down.
--   first_call      boolean  -      Whether these are launches that were the first call with their kernel.
--   calls_count     int64    count  Number of finished calls.
--   censored_count  int64    count  Number of calls that were still open at the end of the run.
--   p50_ns          float64  ns     Median duration, interpolated.
--   p90_ns          float64  ns     90th percentile of the durations.
--   p99_ns          float64  ns     99th percentile of the durations.
--   max_ns          int64    ns     Longest duration.
--   total_ns        int64    ns     Sum of the durations.
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
