-- memory_ooms: one row per request that failed with an out-of-memory error in PyTorch's caching allocator, with the free memory at that time and what would have served the request.
-- needs: _memory_ooms
-- columns:
--   run                        string   -      Name of the run that the row comes from.
--   pid                        uint32   -      Process ID.
--   device                     int32    -      CUDA device ordinal.
--   ts                         int64    ns     Time of the event (CLOCK_MONOTONIC).
--   tid                        uint32   -      Thread ID.
--   requested_bytes            int64    bytes  Requested size.
--   block_bytes                int64    bytes  Size of the smallest block that would have served the request.
--   segment_bytes              int64    bytes  Size of the segment that the allocator requested from the driver; of no meaning for expandable segments.
--   device_free_bytes          int64    bytes  Free bytes of the device, as the driver reports.
--   is_limited                 boolean  -      Whether the device had room for the segment and a limit of the process prevented it (set_per_process_memory_fraction).
--   stream                     uint64   -      Stream handle; null is the default stream.
--   reserved_bytes             int64    bytes  Reserved bytes: all segments.
--   allocated_bytes            int64    bytes  Allocated bytes: blocks in use.
--   pending_free_bytes         int64    bytes  Bytes in freed blocks that other streams may still use (active_pending_free).
--   held_free_bytes            int64    bytes  Free bytes that live blocks in the same segment or page hold. Equals the inactive split bytes of PyTorch if no segment is expandable.
--   private_pool_unused_bytes  int64    bytes  Bytes in unused segments of private pools, which are retained for CUDA graphs.
--   pool_free_bytes            int64    bytes  Free bytes in the pool and stream of the request.
--   largest_free_bytes         int64    bytes  Size of the largest free block there.
--   other_stream_bytes         int64    bytes  Size of the largest free block of the same pool in another stream.
--   is_expandable              boolean  -      Whether segments were expandable.
--   expandable_helps           boolean  -      Whether expandable segments would have had room; null if they were enabled, or if it depends on where blocks would have been placed.
--   hole_addr                  uint64   -      Start of the range within one segment of the pool that would serve the request if the fewest bytes in it were freed; null if no segment is large enough.
--   hole_bytes                 int64    bytes  Size of that range.
--   hole_in_use_bytes          int64    bytes  Bytes in use in that range.
--   hole_in_use_count          int64    count  Number of blocks in use in that range.
--   segments_count             int64    count  Number of whole segments, those with the least in use for their size first, that would have to be released instead; null if all would not suffice, or if they are expandable.
--   segments_in_use_bytes      int64    bytes  Bytes in use in these segments.
--   segments_in_use_count      int64    count  Number of blocks in use in these segments.
--   pending_bytes              int64    bytes  Deprecated alias of pending_free_bytes; removed with format version 2.
--   pinned_bytes               int64    bytes  Deprecated alias of held_free_bytes; removed with format version 2.
--   private_bytes              int64    bytes  Deprecated alias of private_pool_unused_bytes; removed with format version 2.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, tid, requested_bytes, block_bytes, segment_bytes, device_free_bytes, is_limited, stream,
    reserved_bytes, allocated_bytes, pending_bytes AS pending_free_bytes, pinned_bytes AS held_free_bytes,
    private_bytes AS private_pool_unused_bytes, pool_free_bytes, largest_free_bytes, other_stream_bytes,
    is_expandable, expandable_helps, hole_addr, hole_bytes, hole_in_use_bytes, hole_in_use_count,
    segments_count, segments_in_use_bytes, segments_in_use_count,
    pending_bytes, pinned_bytes, private_bytes
FROM _memory_ooms
