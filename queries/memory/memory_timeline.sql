-- memory_timeline: one row per event of PyTorch's caching allocator that changes memory, with the totals after it, replayed from the allocator's events. The state that a snapshot's history began with has a row, too.
-- needs: _memory_curve
-- alias: memory_curve
-- columns:
--   run                        string  -      Name of the run that the row comes from.
--   pid                        uint32  -      Process ID.
--   device                     int32   -      CUDA device ordinal.
--   ts                         int64   ns     Time of the event (CLOCK_MONOTONIC).
--   action                     string  -      Event: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, usage, or state (before the first event).
--   requested_bytes            int64   bytes  Requested bytes of the active blocks; null if the source reports usage only, or no blocks.
--   reserved_bytes             int64   bytes  Reserved bytes: all segments; null if the source reports blocks, but no segments.
--   allocated_bytes            int64   bytes  Allocated bytes: blocks in use; null if the source reports no blocks, but calls of the driver alone (`capture --profile light`).
--   active_bytes               int64   bytes  Active bytes: allocated blocks, and freed blocks that other streams may still use; null as requested_bytes.
--   inactive_split_bytes       int64   bytes  Inactive split bytes: free blocks in segments that are partly in use, without expandable segments; null as requested_bytes.
--   reclaimable_bytes          int64   bytes  Bytes that `torch.cuda.empty_cache()` would release; null as reserved_bytes or allocated_bytes.
--   private_pool_unused_bytes  int64   bytes  Bytes in unused segments of private pools, which are retained for CUDA graphs; null as reclaimable_bytes.
--   unknown_bytes              int64   bytes  Bytes whose state is unknown because events are missing or not recorded.
--   segments_count             int64   count  Number of segments, without expandable ones; null as reserved_bytes.
--   releasable_bytes           int64   bytes  Deprecated alias of reclaimable_bytes; removed with format version 2.
--   private_releasable_bytes   int64   bytes  Deprecated alias of private_pool_unused_bytes; removed with format version 2.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, CAST(action AS VARCHAR) AS action, requested_bytes, reserved_bytes,
    allocated_bytes, active_bytes, inactive_split_bytes, releasable_bytes AS reclaimable_bytes,
    private_releasable_bytes AS private_pool_unused_bytes, unknown_bytes, segments_count,
    releasable_bytes, private_releasable_bytes
FROM _memory_curve
