-- metrics_waiting: one row per run and name of a task that had the CPU while threads of the run could have used it.
-- needs: events
-- columns:
--   run          string  -   Run the row comes from.
--   subject      string  -   Name of the task.
--   behind_ns    int64   ns  How long threads waited while it had their CPU; a time in which several waited counts for each.
-- metrics:
--   behind_ns  lower  1ms  ns, 0 if absent
SELECT o.run, CAST(r.comm AS VARCHAR) AS subject, sum(least(o.ts + o.dur, r.ts + r.dur) - greatest(o.ts + o.dur - o.runnable_ns, r.ts)) AS behind_ns
FROM (
    SELECT run, cpu, ts, dur, runnable_ns, ts + dur - runnable_ns AS from_ns, ts + dur AS to_ns
    FROM events WHERE kind = 'off_cpu' AND dur IS NOT NULL AND runnable_ns > 0
) o
JOIN (SELECT run, cpu, tid, comm, ts, dur, ts + dur AS to_ns FROM events WHERE kind = 'run' AND dur IS NOT NULL) r
    ON o.run = r.run AND o.cpu = r.cpu AND o.from_ns < r.to_ns AND r.ts < o.to_ns
WHERE r.tid <> 0 AND r.comm IS NOT NULL GROUP BY o.run, r.comm
