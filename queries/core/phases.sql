-- phases: one row per name of a range that the workload marked, with its duration and the calls in it.
-- needs: marks, op_time
-- columns:
--   run             string  -      Name of the run that the row comes from.
--   phase           string  -      Name of the ranges.
--   ranges_count    int64   count  Number of ranges of that name.
--   total_ns        int64   ns     Sum of the durations of the finished ranges.
--   calls_count     int64   count  Number of calls that began in these ranges and in no range inside them.
--   launches_count  int64   count  Number of launches among these calls.
--   calls_ns        int64   ns     Time in top-level calls.
--   scheduler_ns    int64   ns     Part of that time in which the thread was preempted or runnable and waited for a CPU; null if the scheduler is not on record for each of these calls.
--   blocked_ns      int64   ns     Part of that time in which the thread was blocked; null as scheduler_ns.
SELECT
    m.run, m.phase, m.ranges_count, m.total_ns,
    coalesce(c.calls_count, 0) AS calls_count, coalesce(c.launches_count, 0) AS launches_count,
    coalesce(c.calls_ns, 0) AS calls_ns, CASE WHEN c.run IS NULL THEN 0 ELSE c.scheduler_ns END AS scheduler_ns,
    CASE WHEN c.run IS NULL THEN 0 ELSE c.blocked_ns END AS blocked_ns
FROM (
    SELECT run, name AS phase, count(*) AS ranges_count, coalesce(sum(dur), 0) AS total_ns
    FROM marks WHERE op = 'range' GROUP BY run, name
) m
LEFT JOIN (
    SELECT
        run, phase, count(*) AS calls_count,
        sum(CASE WHEN class = 'launch' THEN 1 ELSE 0 END) AS launches_count,
        sum(CASE WHEN depth = 0 THEN dur ELSE 0 END) AS calls_ns,
        CASE WHEN count(*) = count(blocked_ns)
            THEN sum(CASE WHEN depth = 0 THEN preempted_ns + runnable_ns ELSE 0 END) END AS scheduler_ns,
        CASE WHEN count(*) = count(blocked_ns) THEN sum(CASE WHEN depth = 0 THEN blocked_ns ELSE 0 END) END AS blocked_ns
    FROM op_time WHERE phase IS NOT NULL GROUP BY run, phase
) c ON c.run = m.run AND c.phase = m.phase
