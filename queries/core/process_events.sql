-- process_events: one row per event in the life of a traced process.
-- needs: events
-- columns:
--   run          string  -   Name of the run that the row comes from.
--   ts           int64   ns  Time of the event (CLOCK_MONOTONIC).
--   op           string  -   Kind of event: fork, exec, exit (of a thread), library, major_fault or oom_kill.
--   pid          uint32  -   Process ID; for a fork, that of the child.
--   tid          uint32  -   Thread ID.
--   comm         string  -   Name of the thread at that time.
--   addr         uint64  -   Address whose page came from disk, for major_fault; else null.
--   detail       string  -   Command line for exec, path for library; else null.
--   exit_status  int32   -   Exit status, for exit: that of the process if it ends, negative for the number of the signal that killed it; null if it is not recorded.
SELECT
    run, ts, CAST(op AS VARCHAR) AS op, pid, tid, CAST(comm AS VARCHAR) AS comm, addr, CAST(detail AS VARCHAR) AS detail,
    CASE WHEN op = 'exit' THEN ret END AS exit_status
FROM events WHERE kind = 'process'
