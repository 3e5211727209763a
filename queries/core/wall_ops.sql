-- wall_ops: one row per call of all runs whose wall-clock time is known, on the wall clock of each host. Times of one host compare within wall_error_ns; the order of calls of two hosts is certain if they are further apart than the sum of their utc_error_ns.
-- needs: ops, runs
-- columns:
--   run            string  -      Name of the run that the row comes from.
--   host           string  -      Name of the recording host.
--   wall_ns        int64   ns     Unix time of entry.
--   wall_error_ns  int64   ns     Error bound of wall_ns against the host's own clock; null if it is unknown.
--   utc_error_ns   int64   ns     Error bound of wall_ns against UTC; null if the clock is not synchronized, or if it is not recorded.
--   op             string  -      Name of the function.
--   class          string  -      Class of the function, as in the view ops; null for an unknown function.
--   ts             int64   ns     Time of entry (CLOCK_MONOTONIC of its host).
--   dur            int64   ns     Time from entry to return; null if the call was still open at the end of the run.
--   pid            uint32  -      Process ID.
--   tid            uint32  -      Thread ID.
--   size_bytes     int64   bytes  Number of bytes that the call allocates, copies, sets or exchanges.
--   depth          int64   -      Number of calls that enclose it on the same thread; 0 is a top-level call.
--   phase          string  -      Innermost range of `marks` in which the call began; null if it began in none.
SELECT
    o.run, r.host, o.ts + r.wall_offset_ns AS wall_ns, r.wall_error_ns, r.utc_error_ns, o.op, o.class, o.ts, o.dur, o.pid, o.tid,
    o.size_bytes, o.depth, o.phase
FROM ops o JOIN runs r ON r.run = o.run
WHERE r.wall_offset_ns IS NOT NULL
