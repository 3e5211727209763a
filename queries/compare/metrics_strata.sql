-- metrics_strata: one row per run, function and group of comparable calls, for functions that have such groups: it tells a change of the mix of calls from a change within a group.
-- needs: ops
-- columns:
--   run          string   -      Name of the run that the row comes from.
--   subject      string   -      Name of the function.
--   stratum      string   -      Group: direction, binary logarithm of the size, and first call with a kernel, as far as they apply.
--   calls_count  int64    count  Number of finished calls.
--   calls_ns     int64    ns     Sum of the durations of the finished calls.
--   p50_ns       float64  ns     Median duration, interpolated.
-- metrics:
--   calls_count  lower  1      count, 0 if absent
--   calls_ns     lower  1ms    ns, 0 if absent
--   p50_ns       lower  200ns  ns, from 10 calls
SELECT run, subject, stratum, calls_count, calls_ns, p50_ns
FROM (
    SELECT
        run, subject, count(*) AS calls_count, sum(dur) AS calls_ns,
        concat_ws(', ', direction, '2^' || size_class || ' bytes', CASE WHEN is_first THEN 'first call' WHEN NOT is_first THEN 'repeated' END) AS stratum,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns
    FROM (
        SELECT run, op AS subject, dur, direction, size_class, CASE WHEN class = 'launch' THEN first_call END AS is_first
        FROM ops WHERE dur IS NOT NULL
    ) GROUP BY run, subject, direction, size_class, is_first
) WHERE stratum <> ''
