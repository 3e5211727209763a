-- metrics_run_time: one row per run, one per part of the wall time of its process with the longest one, and one per name within a part. The parts' running_ns and start_up_ns sum to process_wall_ns.
-- needs: run_time
-- columns:
--   run                  string  -   Name of the run that the row comes from.
--   subject              string  -   Part of the wall time, as in the view run_time; null in the row about the whole.
--   stratum              string  -   Name within the part: the function of a call, the task that had the CPU, or another thread that the process waited for; # stands for numbers behind a separator. Null in the row about the whole part. Names with less than 1 ms have no row.
--   process_wall_ns      int64   ns  Wall time of the process with the longest one; of several, that with the lowest process ID.
--   process_start_up_ns  int64   ns  Part of it before the first launch; null if the first launch need not be on record.
--   process_calls_ns     int64   ns  Time in top-level calls after the first launch; all of it if the first launch need not be on record.
--   process_unknown_ns   int64   ns  Time in which the record does not say whether the thread had a CPU.
--   running_ns           int64   ns  Time of the part after the first launch, or all of it if the first launch need not be on record; null if process_unknown_ns is more than 0.1 % of the wall time.
--   start_up_ns          int64   ns  Time of the part before the first launch; null if either is not known.
-- metrics:
--   process_wall_ns      lower  1ms  ns
--   process_start_up_ns  lower  1ms  ns
--   process_calls_ns     lower  1ms  ns
--   process_unknown_ns   lower  1ms  ns
--   running_ns           lower  1ms  ns, 0 if absent
--   start_up_ns          lower  1ms  ns, 0 if absent
SELECT
    run, part AS subject, name AS stratum,
    CASE WHEN grouping(part) = 1 THEN max(wall_ns) END AS process_wall_ns,
    CASE WHEN grouping(part) = 1 THEN sum(before_ns) END AS process_start_up_ns,
    CASE WHEN grouping(part) = 1 THEN sum(in_calls_ns) END AS process_calls_ns,
    CASE WHEN grouping(part) = 1 THEN sum(unknown_ns) END AS process_unknown_ns,
    CASE WHEN grouping(part) = 0 THEN sum(after_ns) END AS running_ns,
    CASE WHEN grouping(part) = 0 THEN sum(before_ns) END AS start_up_ns
FROM (
    SELECT
        *, first_value(pid) OVER (PARTITION BY run ORDER BY wall_ns DESC, pid) AS longest_pid,
        sum(unknown_ns) OVER (PARTITION BY run, pid) AS open_ns
    FROM (
        SELECT
            run, pid, wall_ns, part, name,
            sum(CASE WHEN stage IS DISTINCT FROM 'start-up' THEN time_ns ELSE 0 END) AS after_ns,
            CASE WHEN count(stage) > 0 THEN sum(CASE WHEN stage = 'start-up' THEN time_ns ELSE 0 END) END AS before_ns,
            sum(CASE WHEN op IS NOT NULL AND stage IS DISTINCT FROM 'start-up' THEN time_ns ELSE 0 END) AS in_calls_ns,
            sum(CASE WHEN state = 'unknown' THEN time_ns ELSE 0 END) AS unknown_ns
        FROM (
            SELECT
                run, pid, wall_ns, stage, part, state, op, time_ns,
                CASE
                    WHEN part IN ('launch', 'sync', 'alloc', 'copy', 'nccl', 'module', 'other_call') THEN op
                    WHEN part = 'waiting_for_cpu' THEN regexp_replace(task_comm, '([^A-Za-z0-9])[0-9]+', '\1#', 'g')
                    WHEN thread_pid <> pid OR thread_tid <> tid THEN regexp_replace(thread_comm, '([^A-Za-z0-9])[0-9]+', '\1#', 'g')
                END AS name
            FROM run_time
        )
        GROUP BY run, pid, wall_ns, part, name
    )
)
WHERE pid = longest_pid
GROUP BY GROUPING SETS ((run), (run, part), (run, part, name))
HAVING grouping(part) = 1
    OR 1000 * max(open_ns) <= max(wall_ns)
    AND (grouping(name) = 1 OR name IS NOT NULL AND sum(after_ns) + coalesce(sum(before_ns), 0) >= 1000000)
