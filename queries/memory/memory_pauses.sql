-- memory_pauses: one row per time that a library unmapped memory and kept its addresses reserved (pause), or mapped memory there again (resume). When the thread releases other memory in between, as empty_cache() does, a new row begins.
-- needs: _memory_pauses
-- columns:
--   run             string  -      Name of the run that the row comes from.
--   pid             uint32  -      Process ID.
--   tid             uint32  -      Thread ID.
--   ts              int64   ns     Start time of the first call (CLOCK_MONOTONIC).
--   dur             int64   ns     Time until the end of the last call.
--   action          string  -      Action: pause or resume.
--   library         string  -      Name of the library.
--   size_bytes      int64   bytes  Bytes unmapped, or mapped again at the same addresses.
--   calls_count     int64   count  Number of calls that unmapped or mapped memory.
--   call_p50_ns     int64   ns     Median duration of these calls (the lower of the middle two).
--   call_max_ns     int64   ns     Longest duration of these calls.
--   before_bytes    int64   bytes  Device memory of the process just before.
--   after_bytes     int64   bytes  Device memory of the process just after; what remains after a pause is not the library's to release.
--   unmapped_bytes  int64   bytes  Bytes that are still unmapped after a resume, with their addresses reserved.
--   unmapped_count  int64   count  Number of ranges that are still unmapped after a resume.
--   missing_bytes   int64   bytes  Deprecated alias of unmapped_bytes; removed with format version 2.
--   missing_count   int64   count  Deprecated alias of unmapped_count; removed with format version 2.
SELECT
    CAST(run AS VARCHAR) AS run, pid, tid, ts, dur, CAST(action AS VARCHAR) AS action, CAST(library AS VARCHAR) AS library, size_bytes,
    calls_count, call_p50_ns, call_max_ns, before_bytes, after_bytes, missing_bytes AS unmapped_bytes, missing_count AS unmapped_count,
    missing_bytes, missing_count
FROM _memory_pauses
