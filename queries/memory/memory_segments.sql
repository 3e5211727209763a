-- memory_segments: one row per segment of PyTorch's caching allocator, or contiguous mapped range of an expandable one, and extent it had: replayed from the allocator's events.
-- needs: _memory_segments
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   device            int32    -      CUDA device.
--   ts                int64    ns     Since when it had this extent, CLOCK_MONOTONIC; see is_left_censored.
--   dur               int64    ns     How long; null: still so at the end of the run.
--   addr              uint64   -      Its address.
--   size_bytes        int64    bytes  Its size.
--   is_expandable     boolean  -      It grows in place.
--   is_small          boolean  -      It is of the pool for blocks up to 1 MiB.
--   stream            uint64   -      Stream that it belongs to; null: the default one.
--   pool_owner        uint64   -      First half of its private pool's id; null: the default pool.
--   pool_id           uint64   -      Second half.
--   alloc_ts          int64    ns     When its first byte came; null: before the recorded span.
--   tid               uint32   -      Thread that asked for it.
--   stack             uint32   -      Number of the call stack of that (view stacks).
--   is_left_censored  boolean  -      It was so already when the recorded span began, which is its ts: since when is not known.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, addr, size_bytes, is_expandable, is_small, stream, pool_owner, pool_id,
    alloc_ts, tid, stack, is_left_censored
FROM _memory_segments
