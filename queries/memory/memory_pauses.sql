-- memory_pauses: one row per time that a library gave back memory and kept its addresses (pause), or mapped memory there again (resume).
-- needs: _memory_pauses
-- columns:
--   run            string  -      Run the row comes from.
--   pid            uint32  -      Process.
--   tid            uint32  -      Thread.
--   ts             int64   ns     Beginning of the first call, CLOCK_MONOTONIC.
--   dur            int64   ns     To the end of the last.
--   action         string  -      pause or resume.
--   library        string  -      Library that did it.
--   size_bytes     int64   bytes  Unmapped, or mapped again at the same addresses.
--   calls_count    int64   count  Calls that unmapped or mapped.
--   call_p50_ns    int64   ns     Median of their times (the lower one).
--   call_max_ns    int64   ns     The longest.
--   before_bytes   int64   bytes  What the process had from the driver just before.
--   after_bytes    int64   bytes  And after: what a pause leaves is not its to give back.
--   missing_bytes  int64   bytes  resume: still away, their addresses kept.
--   missing_count  int64   count  In how many pieces.
SELECT
    CAST(run AS VARCHAR) AS run, pid, tid, ts, dur, CAST(action AS VARCHAR) AS action, CAST(library AS VARCHAR) AS library, size_bytes,
    calls_count, call_p50_ns, call_max_ns, before_bytes, after_bytes, missing_bytes, missing_count
FROM _memory_pauses
