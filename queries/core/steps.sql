-- steps: one row per step of a process, such as an iteration of training or a decoded token, found in marks or in calls that recur regularly. The columns from host_ns to unknown_ns sum to dur_ns: what the wall time of the step was spent on, as in run_time. There is no row where no steps were found, nor for a step in which calls or its marks were lost.
-- needs: _steps
-- columns:
--   run                 string   -      Name of the run that the row comes from.
--   pid                 uint32   -      Process ID.
--   tid                 uint32   -      Thread that drives the GPU, which the account follows.
--   step                int64    -      Number of the step in its process, from 0.
--   found_by            string   -      How the steps were found: marks (ranges of one name), graph (launches of graphs) or sequence (calls of a function with the same number of launches between them).
--   name                string   -      Name of the ranges, with # for numbers that differ; or the function whose calls are the borders of steps.
--   ts                  int64    ns     Start of the step (CLOCK_MONOTONIC).
--   dur_ns              int64    ns     Time until the step ended; steps found in marks last until the next one begins.
--   is_warm_up          boolean  -      Whether the step is one of the first ones, which are slower than the steady state.
--   calls_count         int64    count  Number of top-level calls of the driving thread that began in the step.
--   launches_count      int64    count  Number of launches among them.
--   host_ns             int64    ns     Running outside of CUDA calls: Python, or other code.
--   launch_ns           int64    ns     In calls that launch kernels or graphs.
--   sync_ns             int64    ns     In synchronizing calls: the host waited for the GPU.
--   alloc_ns            int64    ns     In calls that allocate, free or map memory.
--   copy_ns             int64    ns     In copies and memsets.
--   nccl_ns             int64    ns     In NCCL calls.
--   module_ns           int64    ns     In calls that load code, create contexts or build graphs.
--   other_call_ns       int64    ns     In other CUDA calls.
--   other_thread_ns     int64    ns     Waiting for another thread, which ran, or had CPython's global interpreter lock.
--   waiting_for_cpu_ns  int64    ns     Preempted or runnable: another task had the CPU.
--   throttled_ns        int64    ns     Throttled: the control group had used up its CPU quota.
--   blocked_ns          int64    ns     Asleep outside of calls, and the record does not lead on to another thread: run_time says in what.
--   stopped_ns          int64    ns     Stopped by a signal.
--   unknown_ns          int64    ns     Not on record.
SELECT
    run, pid, tid, step, found_by, name, ts, dur_ns, is_warm_up, calls_count, launches_count,
    host_ns, launch_ns, sync_ns, alloc_ns, copy_ns, nccl_ns, module_ns, other_call_ns, other_thread_ns,
    waiting_for_cpu_ns, throttled_ns, blocked_ns, stopped_ns, unknown_ns
FROM _steps
