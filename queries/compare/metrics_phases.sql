-- metrics_phases: one row per run and name of a range that the workload marked. Numbers in names are replaced by #, so that "step 1" and "step 2" have one row.
-- needs: marks
-- columns:
--   run           string   -      Name of the run that the row comes from.
--   subject       string   -      Name of the ranges, with # for numbers.
--   calls_count   int64    count  Number of finished ranges.
--   phase_ns      int64    ns     Sum of their durations.
--   phase_p50_ns  float64  ns     Median duration of the ranges, interpolated.
--   phase_p90_ns  float64  ns     90th percentile of the durations.
-- metrics:
--   calls_count   lower  1      count, 0 if absent
--   phase_ns      lower  1ms    ns, 0 if absent
--   phase_p50_ns  lower  200ns  ns, from 10 calls
--   phase_p90_ns  lower  200ns  ns, from 50 calls
SELECT
    run, subject, count(*) AS calls_count, sum(dur) AS phase_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS phase_p50_ns,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS phase_p90_ns
FROM (SELECT run, regexp_replace(name, '[0-9]+', '#', 'g') AS subject, dur FROM marks WHERE op = 'range' AND dur IS NOT NULL)
GROUP BY run, subject
