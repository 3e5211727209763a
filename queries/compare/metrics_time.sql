-- metrics_time: one row per run and function: the division of the time of its top-level calls. The columns sum to that time.
-- needs: op_time
-- columns:
--   run                    string  -   Name of the run that the row comes from.
--   subject                string  -   Name of the function.
--   on_cpu_ns              int64   ns  Running: the thread was on a CPU.
--   preempted_ns           int64   ns  Preempted: the thread could have continued, and another task ran on its CPU.
--   runnable_ns            int64   ns  Runnable: the thread had been woken and waited for a CPU.
--   throttled_ns           int64   ns  Throttled: the control group of the thread had used up its CPU quota.
--   blocked_ioctl_ns       int64   ns  Blocked in ioctl: in the kernel driver.
--   blocked_futex_ns       int64   ns  Blocked in futex: on a lock or condition variable.
--   blocked_page_fault_ns  int64   ns  Blocked by a page fault.
--   blocked_disk_ns        int64   ns  Blocked by disk I/O.
--   blocked_sleep_ns       int64   ns  Blocked in a sleep that the thread asked for.
--   blocked_poll_ns        int64   ns  Blocked in poll, select or epoll.
--   blocked_other_ns       int64   ns  Blocked in any other system call.
--   stopped_ns             int64   ns  Stopped by a signal.
--   unknown_ns             int64   ns  Off CPU for a reason that the source does not record.
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
