-- run_time: one row per process that made CUDA calls, and thing that its wall time was spent on. The time_ns of a process sum to its wall_ns: time that several threads spent at once counts once.
-- needs: _run_time
-- columns:
--   run              string  -      Name of the run that the row comes from.
--   pid              uint32  -      Process ID.
--   tid              uint32  -      Thread that drives the GPU, which the account follows: the one with most launches, or with most calls if none are on record.
--   wall_ts          int64   ns     Start of the process, or of the recording if that is later (CLOCK_MONOTONIC).
--   wall_ns          int64   ns     Time until the process ended, or the recording if that is earlier.
--   stage            string  -      start-up (before the first launch of the process), running, or compiling: a pause between two launches in which the process, or a process that it started, started a compiler; recompiling: such a pause after the first one, if there are more than three; host-pause: a stretch of host code after the first launch that takes at least 10 ms and ten times as long as 99 in 100 gaps between calls of its thread. Null outside of pauses if the first launch need not be on record.
--   part             string  -      What the time was spent on. On CPU outside of calls: host, other_thread (a thread that the driving thread waited for, and that launches nothing itself), or gil (the thread that had CPython's global interpreter lock, which a thread on the path waited for until a timer ended its sleep after 5 ms). In calls: launch, sync, alloc, copy, nccl, module, other_call. Kept from running: waiting_for_cpu, throttled, stopped. Asleep outside of calls: futex, ioctl, page_fault, disk, sleep, poll, blocked. Else unknown.
--   state            string  -      State of the thread: on-cpu (running), preempted, runnable, throttled, blocked, stopped or unknown.
--   op               string  -      Top-level call that the thread was in, or that the driving thread waited in; null if it was in none.
--   thread_pid       uint32  -      Process ID of the thread whose time it is.
--   thread_tid       uint32  -      That thread: the driving thread, or one that it waited for, directly or through others.
--   thread_comm      string  -      Name of that thread.
--   task_pid         uint32  -      Process ID of the task that had the CPU or ended the sleep; null if it is not recorded.
--   task_comm        string  -      Name of that task.
--   time_ns          int64   ns     Time spent.
--   intervals_count  int64   count  Number of intervals.
--   gpu_busy_ns      int64   ns     Part of the time in which GPUs had work of the process; null if no profile of the GPU is on record.
--   gpu_idle_ns      int64   ns     Part in which they had none; what is missing to time_ns lies outside of the profile.
--   depth            int64   -      Number of wakeups between the driving thread and this one: 0 is the driving thread, 1 a thread that woke it, 2 one further away.
--   waited_in        string  -      What the driving thread slept in while it waited for this thread: futex, poll, sleep, ioctl, disk, page-fault or other; null if the time is its own.
--   syscall          string  -      System call that the thread slept in; null if it did not sleep, or slept in none.
--   waits_count      int64   count  Number of sleeps of the driving thread that the time is of; 0 if it was on CPU or waited for one.
--   longest_ns       int64   ns     Largest part of the time that is of one such sleep, or of one interval.
SELECT
    run, pid, tid, wall_ts, wall_ns, stage, part, state, op, thread_pid, thread_tid, thread_comm, task_pid, task_comm,
    time_ns, intervals_count, gpu_busy_ns, gpu_idle_ns, depth, waited_in, syscall, waits_count, longest_ns
FROM _run_time
