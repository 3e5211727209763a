-- slow_calls: one row per slow call, nested calls included, with the causes of its excess latency. A call is slow if it takes more than three times the baseline of its group.
-- needs: _slow_calls
-- columns:
--   run                    string   -      Name of the run that the row comes from.
--   op                     string   -      Name of the function.
--   ts                     int64    ns     Time of entry (CLOCK_MONOTONIC).
--   dur                    int64    ns     Time from entry to return.
--   pid                    uint32   -      Process ID.
--   tid                    uint32   -      Thread ID.
--   depth                  int64    -      Number of calls that enclose it on the same thread; 0 is a top-level call.
--   phase                  string   -      Innermost range of `marks` in which the call began; null if it began in none.
--   baseline_ns            float64  ns     Baseline: median own time of comparable calls, which is their duration without the time in which they were preempted, runnable, throttled or stopped.
--   excess_ns              float64  ns     Excess latency: duration above the baseline. The columns from scheduler_ns to unexplained_ns sum to it.
--   verdict                string   -      Cause with the largest part of the excess latency.
--   verdict_share_ratio    float64  ratio  Share of the excess latency that this cause has.
--   root_cause             string   -      Root cause: the verdict followed along the wakeup chain, to what delayed the thread that was waited for.
--   culprit_pid            uint32   -      Process ID of the task behind the root cause, which was on the CPU or was waited for; null if there is none, or if it is not recorded.
--   culprit_tid            uint32   -      Thread ID of that task.
--   culprit_comm           string   -      Name of that task.
--   scheduler_ns           float64  ns     Preempted or runnable: another task was on the CPU; in calls that do not synchronize also off CPU for a reason that the source does not record.
--   throttled_ns           float64  ns     Throttled: the control group had used up its CPU quota.
--   blocked_ioctl_ns       float64  ns     Blocked in ioctl (the kernel driver), above the baseline.
--   blocked_futex_ns       float64  ns     Blocked in futex (a lock or condition variable), above the baseline.
--   blocked_page_fault_ns  float64  ns     Blocked by a page fault, above the baseline.
--   blocked_disk_ns        float64  ns     Blocked by disk I/O, above the baseline.
--   blocked_sleep_ns       float64  ns     Blocked in a sleep that the thread asked for, above the baseline.
--   blocked_poll_ns        float64  ns     Blocked in poll, select or epoll, above the baseline.
--   blocked_other_ns       float64  ns     Blocked in any other system call, above the baseline.
--   gpu_wait_ns            float64  ns     Expected synchronization: a synchronizing call waited for the GPU.
--   size_ns                float64  ns     The call moved more bytes than the median call.
--   first_call_ns          float64  ns     The call was the first launch of its kernel.
--   nested_ns              float64  ns     A nested call of another class took longer than its baseline.
--   stopped_ns             float64  ns     Stopped by a signal, as recorders and debuggers do; chain_links has the task that continued it.
--   inconclusive_ns        float64  ns     The trace does not record what is needed to determine the cause: events were lost, or the scheduler was not recorded.
--   unexplained_ns         float64  ns     Cause unknown: none of these.
--   root                   string   -      Deprecated alias of root_cause; removed with format version 2.
SELECT
    run, op, ts, dur, pid, tid,
    depth, phase, baseline_ns, excess_ns, verdict, verdict_share_ratio,
    root AS root_cause, culprit_pid, culprit_tid, culprit_comm, scheduler_ns, throttled_ns,
    blocked_ioctl_ns, blocked_futex_ns, blocked_page_fault_ns, blocked_disk_ns, blocked_sleep_ns, blocked_poll_ns,
    blocked_other_ns, gpu_wait_ns, size_ns, first_call_ns, nested_ns, stopped_ns,
    inconclusive_ns, unexplained_ns,
    root
FROM _slow_calls
