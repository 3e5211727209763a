-- thread_activity: one row per thread, with its time in CUDA and NCCL calls and its time off CPU.
-- needs: threads, ops, off_cpu
-- columns:
--   run          string  -      Name of the run that the row comes from.
--   pid          uint32  -      Process ID.
--   tid          uint32  -      Thread ID.
--   comm         string  -      Last recorded name of the thread.
--   calls_count  int64   count  Number of top-level calls; null if the run has no calls of any thread.
--   calls_ns     int64   ns     Sum of the durations of these calls; null as calls_count.
--   off_cpu_ns   int64   ns     Time off CPU, inside and outside of calls; null if the scheduler is not on record for any thread of the process.
--   runnable_ns  int64   ns     Part of that time in which the thread was runnable and waited for a CPU; null as off_cpu_ns, or if the source does not tell.
SELECT
    t.run, t.pid, t.tid, t.comm,
    CASE WHEN called.run IS NOT NULL THEN coalesce(c.calls_count, 0) END AS calls_count,
    CASE WHEN called.run IS NOT NULL THEN coalesce(c.calls_ns, 0) END AS calls_ns,
    CASE WHEN watched.run IS NOT NULL THEN coalesce(o.off_cpu_ns, 0) END AS off_cpu_ns,
    CASE WHEN watched.run IS NOT NULL AND o.run IS NULL THEN 0 ELSE o.runnable_ns END AS runnable_ns
FROM threads t
LEFT JOIN (SELECT DISTINCT run FROM ops) called ON called.run = t.run
LEFT JOIN (SELECT DISTINCT run, pid FROM off_cpu) watched ON watched.run = t.run AND watched.pid = t.pid
LEFT JOIN (
    SELECT run, pid, tid, count(*) AS calls_count, sum(dur) AS calls_ns FROM ops WHERE depth = 0 GROUP BY run, pid, tid
) c ON c.run = t.run AND c.pid = t.pid AND c.tid = t.tid
LEFT JOIN (
    SELECT run, pid, tid, sum(dur) AS off_cpu_ns, sum(runnable_ns) AS runnable_ns FROM off_cpu GROUP BY run, pid, tid
) o ON o.run = t.run AND o.pid = t.pid AND o.tid = t.tid
