-- metrics_waiting: one row per run and name of a task that was on the CPU while threads of the run were runnable.
-- needs: events
-- columns:
--   run        string  -   Name of the run that the row comes from.
--   subject    string  -   Name of the task.
--   behind_ns  int64   ns  Time for which threads waited while this task was on their CPU; time in which several threads waited counts once for each.
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
