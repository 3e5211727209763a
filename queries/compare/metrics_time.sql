-- metrics_time: one row per run and function: what the time of its calls that no other is around was made of. The parts sum to that time.
-- needs: op_time
-- columns:
--   run                    string  -   Run the row comes from.
--   subject                string  -   Function.
--   on_cpu_ns              int64   ns  The thread had a CPU.
--   preempted_ns           int64   ns  It could have run on, and another task had the CPU.
--   runnable_ns            int64   ns  It had been woken and waited for a CPU.
--   throttled_ns           int64   ns  Its control group had used up its CPU time.
--   blocked_ioctl_ns       int64   ns  Asleep in the driver.
--   blocked_futex_ns       int64   ns  Asleep for a lock or condition.
--   blocked_page_fault_ns  int64   ns  A page was brought in.
--   blocked_disk_ns        int64   ns  Asleep for a file.
--   blocked_sleep_ns       int64   ns  It asked to sleep.
--   blocked_poll_ns        int64   ns  Asleep for an event.
--   blocked_other_ns       int64   ns  Asleep in another system call.
--   stopped_ns             int64   ns  Stopped by a signal.
--   unknown_ns             int64   ns  Off CPU, and the source does not say why.
-- metrics:
--   on_cpu_ns              lower  1ms  ns, 0 if absent
--   preempted_ns           lower  1ms  ns, 0 if absent
--   runnable_ns            lower  1ms  ns, 0 if absent
--   throttled_ns           lower  1ms  ns, 0 if absent
--   blocked_ioctl_ns       lower  1ms  ns, 0 if absent
--   blocked_futex_ns       lower  1ms  ns, 0 if absent
--   blocked_page_fault_ns  lower  1ms  ns, 0 if absent
--   blocked_disk_ns        lower  1ms  ns, 0 if absent
--   blocked_sleep_ns       lower  1ms  ns, 0 if absent
--   blocked_poll_ns        lower  1ms  ns, 0 if absent
--   blocked_other_ns       lower  1ms  ns, 0 if absent
--   stopped_ns             lower  1ms  ns, 0 if absent
--   unknown_ns             lower  1ms  ns, 0 if absent
SELECT
    run, op AS subject, sum(on_cpu_ns) AS on_cpu_ns, sum(preempted_ns) AS preempted_ns, sum(runnable_ns) AS runnable_ns,
    sum(throttled_ns) AS throttled_ns, sum(blocked_ioctl_ns) AS blocked_ioctl_ns, sum(blocked_futex_ns) AS blocked_futex_ns,
    sum(blocked_page_fault_ns) AS blocked_page_fault_ns, sum(blocked_disk_ns) AS blocked_disk_ns,
    sum(blocked_sleep_ns) AS blocked_sleep_ns, sum(blocked_poll_ns) AS blocked_poll_ns, sum(blocked_other_ns) AS blocked_other_ns,
    sum(stopped_ns) AS stopped_ns, sum(unknown_ns) AS unknown_ns
FROM op_time WHERE depth = 0 GROUP BY run, op
