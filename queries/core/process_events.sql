-- process_events: one row per event in the life of a traced process.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   ts          int64   ns     When, CLOCK_MONOTONIC.
--   op          string  -      fork, exec, exit (of a thread), library, major_fault, oom_kill.
--   pid         uint32  -      Process; of a fork, the child.
--   tid         uint32  -      Thread.
--   comm        string  -      Its name then.
--   addr        uint64  -      major_fault: the address whose page came from disk.
--   detail      string  -      exec: command line. library: path.
SELECT run, ts, CAST(op AS VARCHAR) AS op, pid, tid, CAST(comm AS VARCHAR) AS comm, addr, CAST(detail AS VARCHAR) AS detail
FROM events WHERE kind = 'process'
