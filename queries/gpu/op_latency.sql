-- op_latency: one row per stratum of a function's finished calls, with its quantiles.
-- needs: ops
-- params:
--   op                string  cudaLaunchKernel  Function; % stands for any characters.
--   min_ns            ns      0ns               Shorter calls are left out.
-- columns:
--   run               string   -      Run the row comes from.
--   op                string   -      Function.
--   direction         string   -      Copies: the direction.
--   size_class        int64    -      Binary logarithm of the size, rounded down.
--   first_call        boolean  -      Launches: the first with a kernel.
--   is_nested         boolean  -      Another call is around it.
--   calls_count       int64    count  Calls.
--   p50_ns            float64  ns     Median, interpolated.
--   p90_ns            float64  ns     90th percentile.
--   p99_ns            float64  ns     99th percentile.
--   p999_ns           float64  ns     99.9th percentile.
--   max_ns            int64    ns     The longest.
SELECT
    run, op, direction, size_class, first_call, depth > 0 AS is_nested, count(*) AS calls_count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p90_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    percentile_cont(0.999) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p999_ns, max(dur) AS max_ns
FROM ops WHERE op LIKE $op AND dur >= $min_ns
GROUP BY run, op, direction, size_class, first_call, depth > 0
