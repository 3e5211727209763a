-- off_cpu_causes: one row per process, state and system call in which threads were off CPU, with for how long.
-- needs: off_cpu
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   state             string   -      At switch-out: preempted, throttled, sleeping, uninterruptible, stopped, idle, or unknown.
--   syscall           int32    -      System call (x86-64) that they were in; null: none.
--   intervals_count   int64    count  Intervals; those open at the end have no length.
--   total_ns          int64    ns     Their lengths.
--   runnable_ns       int64    ns     Part of it: could run, waited for a CPU.
--   max_ns            int64    ns     The longest.
SELECT
    run, pid, state, syscall, count(*) AS intervals_count, coalesce(sum(dur), 0) AS total_ns,
    coalesce(sum(runnable_ns), 0) AS runnable_ns, max(dur) AS max_ns
FROM off_cpu GROUP BY run, pid, state, syscall
