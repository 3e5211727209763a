-- memory_curve: one row per event of PyTorch's caching allocator that moves memory, with the sums after it, and one for what a snapshot's history began with: replayed from the allocator's events.
-- needs: _memory_curve
-- columns:
--   run                       string  -      Run the row comes from.
--   pid                       uint32  -      Process.
--   device                    int32   -      CUDA device.
--   ts                        int64   ns     When, CLOCK_MONOTONIC.
--   action                    string  -      alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, usage, or state (before the first event).
--   requested_bytes           int64   bytes  What active blocks were asked for with; null: the source reports usage only.
--   reserved_bytes            int64   bytes  Had from the driver.
--   allocated_bytes           int64   bytes  In blocks that are handed out.
--   active_bytes              int64   bytes  In those, and in blocks given back that other streams may still use; null: the source reports usage only.
--   inactive_split_bytes      int64   bytes  In free blocks of segments that are in use elsewhere, expandable ones aside; null: the source reports usage only.
--   releasable_bytes          int64   bytes  What empty_cache would give back to the driver.
--   private_releasable_bytes  int64   bytes  Unused segments of private pools, which keep them for their graphs.
--   unknown_bytes             int64   bytes  Not known to be in use or free: events are missing.
--   segments_count            int64   count  Segments, expandable ones aside.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, CAST(action AS VARCHAR) AS action, requested_bytes, reserved_bytes,
    allocated_bytes, active_bytes, inactive_split_bytes, releasable_bytes, private_releasable_bytes, unknown_bytes, segments_count
FROM _memory_curve
