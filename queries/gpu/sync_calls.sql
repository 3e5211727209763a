-- sync_calls: one row per call that waits for the GPU and that no other call is around, with what the GPU did meanwhile. The last three of the times sum to dur.
-- needs: events, op_time, device_busy
-- columns:
--   run             string   -   Run the row comes from.
--   op              string   -   Function.
--   ts              int64    ns  Entry, CLOCK_MONOTONIC.
--   dur             int64    ns  Entry to return.
--   pid             uint32   -   Process.
--   tid             uint32   -   Thread.
--   on_cpu_ns       int64    ns  The thread had a CPU: it looked whether the GPU is done, or did its own work.
--   blocked_ns      int64    ns  It slept until the GPU was done.
--   scheduler_ns    int64    ns  It could have run and waited for a CPU: no waiting for the GPU.
--   device_busy_ns  int64    ns  A GPU had work of the process, of any stream. Null here and in what follows: not known, for no profiler saw the call.
--   return_ns       int64    ns  From the end of the last such work until the return.
--   device_idle_ns  int64    ns  The rest: no GPU had work of the process, before the last work or at all.
--   is_covered      boolean  -   Work covers the whole wait until its last end, but for 5 µs, the error that an alignment may have, or a twentieth.
SELECT
    run, op, ts, dur, pid, tid, on_cpu_ns, blocked_ns, scheduler_ns, device_busy_ns, return_ns,
    dur - device_busy_ns - return_ns AS device_idle_ns,
    device_busy_ns > 0 AND dur - device_busy_ns - return_ns <= greatest(5000, dur / 20) AS is_covered
FROM (
    SELECT
        t.run, t.op, t.ts, t.dur, t.pid, t.tid, t.on_cpu_ns, t.blocked_ns,
        t.preempted_ns + t.runnable_ns AS scheduler_ns,
        CASE WHEN c.ts IS NOT NULL THEN coalesce(w.busy_ns, 0) END AS device_busy_ns,
        CASE WHEN c.ts IS NOT NULL THEN greatest(coalesce(t.ts + t.dur - w.until, 0), 0) END AS return_ns
    FROM (SELECT * FROM op_time WHERE class = 'sync' AND depth = 0) t
    LEFT JOIN (SELECT run, op, ts, pid, tid FROM events WHERE kind = 'call' AND correlation IS NOT NULL) c
        ON c.run = t.run AND c.op = t.op AND c.ts = t.ts AND c.pid = t.pid AND c.tid = t.tid
    LEFT JOIN (
        SELECT
            s.run, s.op, s.ts, s.pid, s.tid, max(b.ts + b.dur) AS until,
            sum(least(b.ts + b.dur, s.ts + s.dur) - greatest(b.ts, s.ts)) AS busy_ns
        FROM (SELECT * FROM op_time WHERE class = 'sync' AND depth = 0) s
        JOIN device_busy b ON b.run = s.run AND b.ts < s.ts + s.dur AND s.ts < b.ts + b.dur
        WHERE b.pid = s.pid OR b.pid = 0
        GROUP BY s.run, s.op, s.ts, s.pid, s.tid
    ) w ON w.run = t.run AND w.op = t.op AND w.ts = t.ts AND w.pid = t.pid AND w.tid = t.tid
)
