-- sync_overlap: one row per thread and function that waits for the GPU, with the work of the thread that could have gone on during the waits. A wait is a synchronizing call or a copy to the host; those without a launch of the process between them are one wait.
-- needs: _sync_overlap
-- columns:
--   run            string  -      Name of the run that the row comes from.
--   pid            uint32  -      Process ID.
--   tid            uint32  -      Thread that waits.
--   op             string  -      Function of the longest call of the wait.
--   waits_count    int64   count  Number of waits.
--   waited_ns      int64   ns     Sum of their durations.
--   least_ns       int64   ns     Sum, over the waits, of the shorter of the wait and of the time that the thread then ran on a CPU until the process launched again. If the wait is for the stream of all launches, the GPU had nothing to do in that time.
--   most_ns        int64   ns     The sum, with the time that the thread ran or launched until its next wait in place of that until the next launch.
--   unknown_count  int64   count  Number of waits after which the scheduler is not on record; they add nothing to least_ns.
SELECT run, pid, tid, op, waits_count, waited_ns, least_ns, most_ns, unknown_count
FROM _sync_overlap
