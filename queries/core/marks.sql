-- marks: one row per range or moment that the workload named itself, through the socket of `capture --marks` or NVTX.
-- needs: events
-- columns:
--   run   string  -   Name of the run that the row comes from.
--   name  string  -   Name of the range or moment.
--   op    string  -   Kind of mark: range or point.
--   ts    int64   ns  Start time (CLOCK_MONOTONIC).
--   dur   int64   ns  Duration of a range; null for a point, or for a range that was open at the end of the run.
--   pid   uint32  -   Process ID of the process that set the mark.
--   tid   uint32  -   Thread ID of the thread that set the mark; the process ID if the mark came through the socket.
SELECT run, CAST(detail AS VARCHAR) AS name, CAST(op AS VARCHAR) AS op, ts, dur, pid, tid
FROM events WHERE kind = 'mark'
