-- memory_epochs: one row per epoch and PyTorch allocator, with its totals at the end of the epoch; epoch 0 is the start of the first epoch. Epochs are those of `leaks`: marks, or equal numbers of allocations.
-- needs: _memory_epochs
-- columns:
--   run                    string   -      Name of the run that the row comes from.
--   pid                    uint32   -      Process ID.
--   device                 int32    -      CUDA device ordinal.
--   epoch                  int64    -      Number of the epoch.
--   ts                     int64    ns     End time of the epoch (CLOCK_MONOTONIC).
--   is_warm_up             boolean  -      Whether the epoch is warm-up and not judged.
--   allocated_bytes        int64    bytes  Allocated bytes at the end of the epoch.
--   pending_free_bytes     int64    bytes  Bytes in freed blocks that other streams may still use (active_pending_free).
--   reserved_bytes         int64    bytes  Reserved bytes: all segments.
--   unused_segments_bytes  int64    bytes  Bytes in unused segments or pages, those of private pools included: reclaimable by `torch.cuda.empty_cache()` unless they belong to a private pool.
--   held_free_bytes        int64    bytes  Free bytes that live blocks in the same segment or page hold. Equals the inactive split bytes of PyTorch if no segment is expandable.
--   unknown_bytes          int64    bytes  Bytes whose state is unknown because events are missing.
--   survived_count         int64    count  Number of blocks that were allocated in this epoch and are live at the end of the last one.
--   survived_bytes         int64    bytes  Sum of their sizes; over all epochs it is the allocated bytes at the end of the last one.
--   live_bytes             int64    bytes  Deprecated alias of allocated_bytes; removed with format version 2.
--   pending_bytes          int64    bytes  Deprecated alias of pending_free_bytes; removed with format version 2.
--   releasable_bytes       int64    bytes  Deprecated alias of unused_segments_bytes; removed with format version 2.
--   pinned_bytes           int64    bytes  Deprecated alias of held_free_bytes; removed with format version 2.
SELECT
    run, pid, device, epoch, ts, is_warm_up, live_bytes AS allocated_bytes, pending_bytes AS pending_free_bytes, reserved_bytes,
    releasable_bytes AS unused_segments_bytes, pinned_bytes AS held_free_bytes, unknown_bytes,
    survived_count, survived_bytes,
    live_bytes, pending_bytes, releasable_bytes, pinned_bytes
FROM _memory_epochs
