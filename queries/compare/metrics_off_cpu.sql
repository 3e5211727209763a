-- metrics_off_cpu: one row per run and state at switch-out of threads that did not run.
-- needs: off_cpu
-- columns:
--   run            string  -      Run the row comes from.
--   subject        string  -      preempted, throttled, sleeping, uninterruptible, stopped, idle, or unknown.
--   off_cpu_count  int64   count  Finished intervals.
--   off_cpu_ns     int64   ns     Their lengths, over all threads.
-- metrics:
--   off_cpu_count  lower  1    count, 0 if absent
--   off_cpu_ns     lower  1ms  ns, 0 if absent
SELECT run, CAST(state AS VARCHAR) AS subject, count(*) AS off_cpu_count, sum(dur) AS off_cpu_ns
FROM off_cpu WHERE dur IS NOT NULL GROUP BY run, state
