-- memory_segments: one row per interval in which a segment of PyTorch's caching allocator, or a contiguous mapped range of an expandable one, kept its extent, replayed from the allocator's events.
-- needs: _memory_segments
-- columns:
--   run               string   -      Name of the run that the row comes from.
--   pid               uint32   -      Process ID.
--   device            int32    -      CUDA device ordinal.
--   ts                int64    ns     Start time of the extent (CLOCK_MONOTONIC); see is_left_censored.
--   dur               int64    ns     Duration; null if it lasted until the end of the run.
--   addr              uint64   -      Start address.
--   size_bytes        int64    bytes  Size.
--   is_expandable     boolean  -      Whether the segment is expandable.
--   is_small          boolean  -      Whether it belongs to the pool of blocks up to 1 MiB.
--   stream            uint64   -      Stream of the pool that it belongs to; null is the default stream.
--   pool_owner        uint64   -      First half of the private pool's ID; null is the default pool.
--   pool_id           uint64   -      Second half of the private pool's ID.
--   alloc_ts          int64    ns     Time at which its first byte was allocated (CLOCK_MONOTONIC); null if that was before the recording began.
--   tid               uint32   -      Thread ID of the thread that allocated it.
--   stack             uint32   -      Number of the call stack of that allocation, as in the view stacks.
--   is_left_censored  boolean  -      Whether the interval began before the recording: ts is then the start of the recording, and the true start is unknown.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, addr, size_bytes, is_expandable, is_small, stream, pool_owner, pool_id,
    alloc_ts, tid, stack, is_left_censored
FROM _memory_segments
