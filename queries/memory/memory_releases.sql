-- memory_releases: one row per wish to give memory back to the driver and allocator that it met: what went, and why the rest stayed. before_bytes - given_back_bytes = after_bytes if no other thread changed it meanwhile; after_bytes = in_use + pinned + private + releasable + unknown.
-- needs: _memory_releases
-- columns:
--   run                  string   -      Run the row comes from.
--   pid                  uint32   -      Process.
--   device               int32    -      CUDA device.
--   ts                   int64    ns     When it began, CLOCK_MONOTONIC.
--   dur                  int64    ns     Until the last segment was gone.
--   tid                  uint32   -      Thread.
--   cause                string   -      empty_cache, or make_room (for a request that found none).
--   before_bytes         int64    bytes  Had from the driver, before.
--   given_back_bytes     int64    bytes  Given back.
--   segments_count       int64    count  Segments, or stretches of expandable ones, that went.
--   after_bytes          int64    bytes  Had from the driver, after.
--   in_use_bytes         int64    bytes  Of that: in use, or given back and still in use by other streams.
--   pinned_bytes         int64    bytes  Of that: free, kept by what is in use beside it.
--   private_bytes        int64    bytes  Of that: unused segments of private pools, kept for their graphs.
--   releasable_bytes     int64    bytes  Of that: what could have been given back and was not.
--   unknown_bytes        int64    bytes  Of that: not known, events are missing.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, tid, CAST(cause AS VARCHAR) AS cause, before_bytes, given_back_bytes, segments_count,
    after_bytes, in_use_bytes, pinned_bytes, private_bytes, releasable_bytes, unknown_bytes
FROM _memory_releases
