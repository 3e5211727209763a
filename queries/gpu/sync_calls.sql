-- sync_calls: one row per top-level call that waits for the GPU, with the activity of the GPU meanwhile. device_busy_ns, return_ns and device_idle_ns sum to dur.
-- needs: events, op_time, device_busy
-- columns:
--   run             string   -   Name of the run that the row comes from.
--   op              string   -   Name of the function.
--   ts              int64    ns  Time of entry (CLOCK_MONOTONIC).
--   dur             int64    ns  Time from entry to return.
--   pid             uint32   -   Process ID.
--   tid             uint32   -   Thread ID.
--   on_cpu_ns       int64    ns  Running: the thread polled the GPU for completion, or did work of its own.
--   blocked_ns      int64    ns  Blocked: the thread slept until the GPU finished.
--   scheduler_ns    int64    ns  Runnable or preempted: the thread waited for a CPU, not for the GPU.
--   device_busy_ns  int64    ns  Time in which a GPU had work of the process, on any stream. This and the following columns are null if no profiler recorded the call.
--   return_ns       int64    ns  Time from the end of the last such work to the return.
--   device_idle_ns  int64    ns  GPU idle: the remaining time, in which no GPU had work of the process.
--   is_covered      boolean  -   Whether the GPU was busy during the whole wait until the end of its last work. Idle time of up to 5 µs (the possible error of an alignment) or a twentieth of dur is tolerated.
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
