-- memory_blocks: one row per interval in which a block of PyTorch's caching allocator kept its state and extent, replayed from the allocator's events.
-- needs: _memory_blocks
-- columns:
--   run               string   -      Name of the run that the row comes from.
--   pid               uint32   -      Process ID.
--   device            int32    -      CUDA device ordinal.
--   ts                int64    ns     Start time of the state (CLOCK_MONOTONIC); see is_left_censored.
--   dur               int64    ns     Duration; null if it lasted until the end of the run.
--   state             string   -      State as in torch.cuda.memory_snapshot: active_allocated, active_pending_free (freed, other streams may still use it), inactive, or unknown (events are missing, or the source does not record it).
--   addr              uint64   -      Start address.
--   size_bytes        int64    bytes  Size.
--   requested_bytes   int64    bytes  Requested size; null for an inactive block, or if the source does not record it.
--   segment_addr      uint64   -      Start address of its segment; null if it is unknown.
--   stream            uint64   -      Stream of the pool that it belongs to; null is the default stream.
--   pool_owner        uint64   -      First half of the private pool's ID; null is the default pool.
--   pool_id           uint64   -      Second half of the private pool's ID.
--   alloc_ts          int64    ns     Time of allocation (CLOCK_MONOTONIC); null for an inactive block, or if it was allocated before the recording began.
--   tid               uint32   -      Thread ID of the thread that allocated it.
--   stack             uint32   -      Number of the call stack of that allocation, as in the view stacks.
--   is_left_censored  boolean  -      Whether the interval began before the recording: ts is then the start of the recording, and the true start is unknown.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, CAST(state AS VARCHAR) AS state, addr, size_bytes, requested_bytes,
    segment_addr, stream, pool_owner, pool_id, alloc_ts, tid, stack, is_left_censored
FROM _memory_blocks
