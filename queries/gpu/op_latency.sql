-- op_latency: one row per function and group of comparable calls (size class, direction, first call, nested or not), with the quantiles of the finished calls.
-- needs: ops
-- params:
--   op                string  cudaLaunchKernel  Function; % stands for any characters.
--   min_ns            ns      0ns               Shorter calls are left out.
-- columns:
--   run          string   -      Name of the run that the row comes from.
--   op           string   -      Name of the function.
--   direction    string   -      Direction of copies; null for other functions.
--   size_class   int64    -      Size class: the binary logarithm of the size, rounded down.
--   first_call   boolean  -      Whether these are launches that were the first call with their kernel.
--   is_nested    boolean  -      Whether another call encloses these calls.
--   calls_count  int64    count  Number of calls.
--   p50_ns       float64  ns     Median duration, interpolated.
--   p90_ns       float64  ns     90th percentile of the durations.
--   p99_ns       float64  ns     99th percentile of the durations.
--   p999_ns      float64  ns     99.9th percentile of the durations.
--   max_ns       int64    ns     Longest duration.
SELECT
    run, op, direction, size_class, first_call, depth > 0 AS is_nested, count(*) AS calls_count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p90_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    percentile_cont(0.999) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p999_ns, max(dur) AS max_ns
FROM ops WHERE op LIKE $op AND dur >= $min_ns
GROUP BY run, op, direction, size_class, first_call, depth > 0
