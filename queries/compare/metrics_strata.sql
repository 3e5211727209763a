-- metrics_strata: one row per run, function and stratum, where a function has strata: tells a change of mix from a change within it.
-- needs: ops
-- columns:
--   run          string   -      Run the row comes from.
--   subject      string   -      Function.
--   stratum      string   -      Direction, binary logarithm of the size, first call with a kernel: those that apply.
--   calls_count  int64    count  Finished calls.
--   calls_ns     int64    ns     Sum of their durations.
--   p50_ns       float64  ns     Median, interpolated.
-- metrics:
--   calls_count  lower  1      count, 0 if absent
--   calls_ns     lower  1ms    ns, 0 if absent
--   p50_ns       lower  200ns  ns, from 10 calls
SELECT run, subject, stratum, count(*) AS calls_count, sum(dur) AS calls_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns
FROM (
    SELECT run, op AS subject, dur,
        concat_ws(', ', direction, '2^' || size_class || ' bytes', CASE WHEN class = 'launch' THEN CASE WHEN first_call THEN 'first call' ELSE 'repeated' END END) AS stratum
    FROM ops WHERE dur IS NOT NULL
) WHERE stratum <> '' GROUP BY run, subject, stratum
