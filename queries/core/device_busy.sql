-- device_busy: one row per time in which GPUs had work of a process without a pause: kernels, copies and fills of all its streams, as an imported profile has timed them.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   pid         uint32  -      Process; 0: the source does not tell whose work it is.
--   ts          int64   ns     Start of the first work.
--   dur         int64   ns     Until no work is left.
--   work_count  int64   count  Pieces of work.
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
