-- launch_rate: one row per process and tenth of a second in which it launched kernels or graphs.
-- needs: ops, _runs
-- columns:
--   run             string  -      Name of the run that the row comes from.
--   pid             uint32  -      Process ID.
--   ts              int64   ns     Start of the tenth of a second (CLOCK_MONOTONIC).
--   launches_count  int64   count  Number of top-level launches that began in it; null if launches of kernels were not probed, as with `--profile light`.
SELECT l.run, l.pid, l.ts, CASE WHEN r.probes_kernel_launches IS NOT FALSE THEN l.launches_count END AS launches_count
FROM (
    SELECT run, pid, ts - ts % 100000000 AS ts, count(*) AS launches_count
    FROM ops
    WHERE class = 'launch' AND depth = 0
    GROUP BY run, pid, ts - ts % 100000000
) l LEFT JOIN _runs r ON r.run = l.run
