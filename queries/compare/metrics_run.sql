-- metrics_run: one row per run: figures of the whole of it, for comparisons of runs.
-- needs: ops
-- columns:
--   run                string  -      Run the row comes from.
--   wall_ns            int64   ns     From the first call's entry to the last one's return.
--   calls_ns           int64   ns     Time in calls that no other is around and that do not wait for the GPU by purpose.
--   sync_ns            int64   ns     Time in synchronising calls that no other is around.
--   alloc_calls_count  int64   count  Calls to the driver or runtime that allocate, free or map memory, and that no other is around.
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
