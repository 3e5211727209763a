-- marks: one row per phase or moment that the workload named itself, through the socket of `capture --marks` or NVTX.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   name        string  -      The name.
--   op          string  -      range (a span) or point (a moment).
--   ts          int64   ns     Beginning, CLOCK_MONOTONIC.
--   dur         int64   ns     Length of a range; null: a point, or a range that was open at the end of the run.
--   pid         uint32  -      Process that named it.
--   tid         uint32  -      Thread that named it; through the socket, the process.
SELECT run, CAST(detail AS VARCHAR) AS name, CAST(op AS VARCHAR) AS op, ts, dur, pid, tid
FROM events WHERE kind = 'mark'
