-- memory_blocks: one row per block of PyTorch's caching allocator and state it was in, with the time for which it was: replayed from the allocator's events.
-- needs: _memory_blocks
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   device            int32    -      CUDA device.
--   ts                int64    ns     Since when it was in this state, with this extent, CLOCK_MONOTONIC; see is_left_censored.
--   dur               int64    ns     How long; null: still so at the end of the run.
--   state             string   -      active_allocated, active_pending_free (given back, other streams may use it), inactive (free), or unknown (events are missing, or the source does not tell).
--   addr              uint64   -      Its address.
--   size_bytes        int64    bytes  Its size.
--   requested_bytes   int64    bytes  What was asked for; null: free, or not told by the source.
--   segment_addr      uint64   -      The segment it lies in; null: not known.
--   stream            uint64   -      Stream that it belongs to; null: the default one.
--   pool_owner        uint64   -      First half of its private pool's id; null: the default pool.
--   pool_id           uint64   -      Second half.
--   alloc_ts          int64    ns     When it was handed out; null: free, or before the recorded span.
--   tid               uint32   -      Thread that it was handed out to.
--   stack             uint32   -      Number of the call stack of that (view stacks).
--   is_left_censored  boolean  -      It was so already when the recorded span began, which is its ts: since when is not known.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, CAST(state AS VARCHAR) AS state, addr, size_bytes, requested_bytes,
    segment_addr, stream, pool_owner, pool_id, alloc_ts, tid, stack, is_left_censored
FROM _memory_blocks
