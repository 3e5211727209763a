-- metrics_off_cpu: one row per run and state in which threads were off CPU.
-- needs: off_cpu
-- columns:
--   run            string  -      Name of the run that the row comes from.
--   subject        string  -      State of the thread when it was switched out: preempted, throttled, sleeping, uninterruptible, stopped, idle or unknown.
--   off_cpu_count  int64   count  Number of finished intervals.
--   off_cpu_ns     int64   ns     Sum of their durations, over all threads.
-- metrics:
--   off_cpu_count  lower  1    count, 0 if absent
--   off_cpu_ns     lower  1ms  ns, 0 if absent
SELECT run, CAST(state AS VARCHAR) AS subject, count(*) AS off_cpu_count, sum(dur) AS off_cpu_ns
FROM off_cpu WHERE dur IS NOT NULL GROUP BY run, state
