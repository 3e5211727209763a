-- metrics_calls: one row per run and function: number and durations of its calls, for comparisons of runs.
-- needs: ops
-- columns:
--   run          string   -      Name of the run that the row comes from.
--   subject      string   -      Name of the function; one that was not probed has no row, as launches of kernels with `--profile light`.
--   calls_count  int64    count  Number of finished calls.
--   calls_ns     int64    ns     Sum of the durations of the finished calls.
--   p50_ns       float64  ns     Median duration, interpolated.
--   p90_ns       float64  ns     90th percentile of the durations.
--   p99_ns       float64  ns     99th percentile of the durations.
--   p999_ns      float64  ns     99.9th percentile of the durations.
-- metrics:
--   calls_count  lower  1      count, 0 if absent
--   calls_ns     lower  1ms    ns, 0 if absent
--   p50_ns       lower  200ns  ns, from 10 calls
--   p90_ns       lower  200ns  ns, from 50 calls
--   p99_ns       lower  200ns  ns, from 500 calls
--   p999_ns      lower  200ns  ns, from 5000 calls
SELECT
    run, op AS subject, count(*) AS calls_count, sum(dur) AS calls_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p90_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_ns,
    percentile_cont(0.999) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p999_ns
FROM ops WHERE dur IS NOT NULL GROUP BY run, op
