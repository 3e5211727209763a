-- thread_activity: one row per thread, with its time in CUDA and NCCL calls and its time off CPU.
-- needs: threads, ops, off_cpu
-- columns:
--   run          string  -      Name of the run that the row comes from.
--   pid          uint32  -      Process ID.
--   tid          uint32  -      Thread ID.
--   comm         string  -      Last recorded name of the thread.
--   calls_count  int64   count  Number of top-level calls.
--   calls_ns     int64   ns     Sum of the durations of these calls.
--   off_cpu_ns   int64   ns     Time off CPU, inside and outside of calls.
--   runnable_ns  int64   ns     Part of that time in which the thread was runnable and waited for a CPU.
SELECT
    t.run, t.pid, t.tid, t.comm, coalesce(c.calls_count, 0) AS calls_count, coalesce(c.calls_ns, 0) AS calls_ns,
    coalesce(o.off_cpu_ns, 0) AS off_cpu_ns, coalesce(o.runnable_ns, 0) AS runnable_ns
FROM threads t
LEFT JOIN (
    SELECT run, pid, tid, count(*) AS calls_count, sum(dur) AS calls_ns FROM ops WHERE depth = 0 GROUP BY run, pid, tid
) c ON c.run = t.run AND c.pid = t.pid AND c.tid = t.tid
LEFT JOIN (
    SELECT run, pid, tid, sum(dur) AS off_cpu_ns, sum(runnable_ns) AS runnable_ns FROM off_cpu GROUP BY run, pid, tid
) o ON o.run = t.run AND o.pid = t.pid AND o.tid = t.tid
