-- off_cpu_causes: one row per process, state and system call in which threads were off CPU, with the time off CPU.
-- needs: off_cpu
-- columns:
--   run              string  -      Name of the run that the row comes from.
--   pid              uint32  -      Process ID.
--   state            string  -      State of the thread when it was switched out: preempted, throttled, sleeping, uninterruptible, stopped, idle or unknown.
--   syscall          int32   -      System call (x86-64 number) that the threads were in; null if they were in none.
--   intervals_count  int64   count  Number of intervals, including those open at the end of the run, which have no duration.
--   total_ns         int64   ns     Sum of the durations.
--   runnable_ns      int64   ns     Part of that time in which the threads were runnable and waited for a CPU; null if no interval tells.
--   max_ns           int64   ns     Longest duration.
SELECT
    run, pid, state, syscall, count(*) AS intervals_count, coalesce(sum(dur), 0) AS total_ns,
    sum(runnable_ns) AS runnable_ns, max(dur) AS max_ns
FROM off_cpu GROUP BY run, pid, state, syscall
