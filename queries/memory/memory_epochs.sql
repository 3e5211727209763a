-- memory_epochs: one row per epoch and allocator of PyTorch, with what it held at the epoch's end; row 0 is the beginning of the first. Epochs are those of `leaks`: marks, or equal numbers of allocations.
-- needs: _memory_epochs
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   device            int32    -      CUDA device.
--   epoch             int64    -      Its number.
--   ts                int64    ns     Its end, CLOCK_MONOTONIC.
--   is_warm_up        boolean  -      It is not judged.
--   live_bytes        int64    bytes  Handed out at its end.
--   pending_bytes     int64    bytes  Given back then, but other streams may use it.
--   reserved_bytes    int64    bytes  Had from the driver.
--   releasable_bytes  int64    bytes  Free, in segments that nothing uses.
--   pinned_bytes      int64    bytes  Free, in segments that are in use.
--   unknown_bytes     int64    bytes  Not known to be in use or free: events are missing.
--   survived_count    int64    count  Blocks that were handed out in this epoch and are so at the end of the last one.
--   survived_bytes    int64    bytes  Their bytes; over all epochs they sum to what is live at the end of the last.
SELECT
    run, pid, device, epoch, ts, is_warm_up, live_bytes, pending_bytes, reserved_bytes, releasable_bytes, pinned_bytes, unknown_bytes,
    survived_count, survived_bytes
FROM _memory_epochs
