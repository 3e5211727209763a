-- slow_calls: one row per slow call, nested ones too: more than three times what calls of its kind usually take; with its causes.
-- needs: _slow_calls
-- columns:
--   run                    string   -      Run the row comes from.
--   op                     string   -      Function.
--   ts                     int64    ns     Entry, CLOCK_MONOTONIC.
--   dur                    int64    ns     Entry to return.
--   pid                    uint32   -      Process.
--   tid                    uint32   -      Thread.
--   depth                  int64    -      How many calls are around it.
--   phase                  string   -      The innermost range of `marks` that it began in; null: none.
--   baseline_ns            float64  ns     What calls of its kind usually take: median without what the scheduler took.
--   excess_ns              float64  ns     Above that; the parts below sum to it.
--   verdict                string   -      The cause with the largest part.
--   verdict_share_ratio    float64  ratio  That part's share of the excess.
--   root                   string   -      The verdict, followed along the chain: what kept the thread that was waited for.
--   culprit_pid            uint32   -      Process at the root: it had the CPU, or was waited for; null: none, or not on record.
--   culprit_tid            uint32   -      Its thread.
--   culprit_comm           string   -      Name of that thread.
--   scheduler_ns           float64  ns     Runnable, while another task had the CPU.
--   throttled_ns           float64  ns     Runnable, while its control group had used up its CPU time.
--   blocked_ioctl_ns       float64  ns     Asleep in the driver, above the usual.
--   blocked_futex_ns       float64  ns     Asleep for a lock or condition, above the usual.
--   blocked_page_fault_ns  float64  ns     A page was brought in, above the usual.
--   blocked_disk_ns        float64  ns     Asleep for a file, above the usual.
--   blocked_sleep_ns       float64  ns     It asked to sleep, above the usual.
--   blocked_poll_ns        float64  ns     Asleep for an event, above the usual.
--   blocked_other_ns       float64  ns     Asleep in another system call, above the usual.
--   gpu_wait_ns            float64  ns     A synchronising call waited for the GPU.
--   size_ns                float64  ns     It moved more bytes than the usual call.
--   first_call_ns          float64  ns     First launch of its kernel.
--   nested_ns              float64  ns     A nested call of another class took longer than usual.
--   stopped_ns             float64  ns     Stopped by a signal, as recorders and debuggers do; who let it go on is in chain_links.
--   inconclusive_ns        float64  ns     The trace does not record what is needed to tell.
--   unexplained_ns         float64  ns     None of these.
SELECT
    run, op, ts, dur, pid, tid,
    depth, phase, baseline_ns, excess_ns, verdict, verdict_share_ratio,
    root, culprit_pid, culprit_tid, culprit_comm, scheduler_ns, throttled_ns,
    blocked_ioctl_ns, blocked_futex_ns, blocked_page_fault_ns, blocked_disk_ns, blocked_sleep_ns, blocked_poll_ns,
    blocked_other_ns, gpu_wait_ns, size_ns, first_call_ns, nested_ns, stopped_ns,
    inconclusive_ns, unexplained_ns
FROM _slow_calls
