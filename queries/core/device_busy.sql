-- device_busy: one row per interval in which GPUs had work of a process without interruption: kernels, copies and memsets of all its streams, as recorded in an imported profile.
-- needs: events
-- columns:
--   run         string  -      Name of the run that the row comes from.
--   pid         uint32  -      Process ID; 0 if the source does not record whose work it is.
--   ts          int64   ns     Start time of the first work (CLOCK_MONOTONIC).
--   dur         int64   ns     Time until no work was left.
--   work_count  int64   count  Number of kernels, copies and memsets.
SELECT run, pid, min(ts) AS ts, max(until) - min(ts) AS dur, count(*) AS work_count
FROM (
    SELECT
        run, pid, ts, until,
        sum(CASE WHEN ts <= reached THEN 0 ELSE 1 END)
            OVER (PARTITION BY run, pid ORDER BY ts, until ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number
    FROM (
        SELECT
            run, pid, ts, ts + dur AS until,
            max(ts + dur) OVER (PARTITION BY run, pid ORDER BY ts, ts + dur ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                AS reached
        FROM events WHERE kind = 'device' AND op IN ('kernel', 'memcpy', 'memset') AND dur IS NOT NULL
    )
)
GROUP BY run, pid, number
