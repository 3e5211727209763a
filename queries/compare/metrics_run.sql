-- metrics_run: one row per run: totals of the whole run, for comparisons of runs.
-- needs: ops
-- columns:
--   run                string  -      Name of the run that the row comes from.
--   wall_ns            int64   ns     Wall time from the entry of the first call to the return of the last, among calls of the probed functions.
--   calls_ns           int64   ns     Time in top-level calls that are not synchronizing calls; of the probed functions only: with `--profile light`, launches of kernels are not in it.
--   sync_ns            int64   ns     Time in top-level synchronizing calls.
--   alloc_calls_count  int64   count  Number of top-level calls of the driver or runtime API that allocate, free or map memory.
-- metrics:
--   wall_ns            lower  1ms  ns, 0 if absent
--   calls_ns           lower  1ms  ns, 0 if absent
--   sync_ns            lower  1ms  ns, 0 if absent
--   alloc_calls_count  lower  1    count, 0 if absent
SELECT
    run, max(ts + dur) - min(ts) AS wall_ns,
    coalesce(sum(CASE WHEN depth = 0 AND class IS DISTINCT FROM 'sync' THEN dur END), 0) AS calls_ns,
    coalesce(sum(CASE WHEN depth = 0 AND class = 'sync' THEN dur END), 0) AS sync_ns,
    sum(CASE WHEN depth = 0 AND class IN ('alloc', 'free', 'map') THEN 1 ELSE 0 END) AS alloc_calls_count
FROM ops GROUP BY run
