-- thread_activity: one row per thread, with its time in CUDA and NCCL calls and off CPU.
-- needs: threads, ops, off_cpu
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   tid               uint32   -      Thread.
--   comm              string   -      Last name seen.
--   calls_count       int64    count  Calls that no other call is around.
--   calls_ns          int64    ns     Time in them.
--   off_cpu_ns        int64    ns     Time off CPU, in calls or not.
--   runnable_ns       int64    ns     Part of it: could run, waited for a CPU.
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
