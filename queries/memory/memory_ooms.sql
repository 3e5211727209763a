-- memory_ooms: one row per request that PyTorch's caching allocator could not serve, with what was free at that moment and what would have made room.
-- needs: _memory_ooms
-- columns:
--   run                  string   -      Run the row comes from.
--   pid                  uint32   -      Process.
--   device               int32    -      CUDA device.
--   ts                   int64    ns     When, CLOCK_MONOTONIC.
--   tid                  uint32   -      Thread.
--   requested_bytes      int64    bytes  What was asked for.
--   block_bytes          int64    bytes  The smallest block that would have served it.
--   segment_bytes        int64    bytes  The segment that the allocator wanted from the driver, but for expandable ones.
--   device_free_bytes    int64    bytes  Free on the device, says the driver.
--   is_limited           boolean  -      The device had room for the segment: a limit of the process forbade it (set_per_process_memory_fraction).
--   stream               uint64   -      Stream; null: the default one.
--   reserved_bytes       int64    bytes  Had from the driver.
--   allocated_bytes      int64    bytes  In blocks handed out.
--   pending_bytes        int64    bytes  Given back, still in use by other streams.
--   pinned_bytes         int64    bytes  Free, kept from the driver by what is in use beside it.
--   private_bytes        int64    bytes  Unused segments of private pools.
--   pool_free_bytes      int64    bytes  Free in the pool and stream of the request.
--   largest_free_bytes   int64    bytes  The largest free block there.
--   other_stream_bytes   int64    bytes  The largest free block of the same pool in another stream.
--   is_expandable        boolean  -      Segments were expandable.
--   expandable_helps     boolean  -      Expandable segments would have had room; null: they were on, or it depends on where blocks would have lain.
--   hole_addr            uint64   -      Where blocks in use, in one segment of the pool, stood in the way at least cost; null: no segment is large enough.
--   hole_bytes           int64    bytes  The room that there would have been without them.
--   hole_in_use_bytes    int64    bytes  What they have.
--   hole_in_use_count    int64    count  How many they are.
--   segments_count       int64    count  Whole segments, those with least in use for their size, that would have had to go instead; null: all would not do, or they are expandable.
--   segments_in_use_bytes  int64    bytes  In use in them.
--   segments_in_use_count  int64    count  In how many blocks.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, tid, requested_bytes, block_bytes, segment_bytes, device_free_bytes, is_limited, stream,
    reserved_bytes, allocated_bytes, pending_bytes, pinned_bytes, private_bytes, pool_free_bytes, largest_free_bytes, other_stream_bytes,
    is_expandable, expandable_helps, hole_addr, hole_bytes, hole_in_use_bytes, hole_in_use_count,
    segments_count, segments_in_use_bytes, segments_in_use_count
FROM _memory_ooms
