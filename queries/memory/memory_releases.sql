-- memory_releases: one row per attempt of PyTorch's caching allocator to release memory to the driver, with the released bytes and the reasons why the rest stayed. before_bytes - released_bytes = after_bytes unless another thread changed it meanwhile; after_bytes = active_bytes + held_free_bytes + private_pool_unused_bytes + reclaimable_bytes + unknown_bytes. A pause is not among them (memory_pauses), nor is ipc_collect(): it frees blocks, whose segments the next release returns to the driver.
-- needs: _memory_releases
-- columns:
--   run                        string  -      Name of the run that the row comes from.
--   pid                        uint32  -      Process ID.
--   device                     int32   -      CUDA device ordinal.
--   ts                         int64   ns     Start time (CLOCK_MONOTONIC).
--   dur                        int64   ns     Time until the last segment was released.
--   tid                        uint32  -      Thread ID.
--   cause                      string  -      Reason of the attempt. empty_cache if a recorded call of it encloses the attempt or is in its call stacks. make_room (for a request that found no free block) if the driver refused the thread memory right before, or a request failed right after, or the run records all calls of emptyCache and a segment was allocated right after. not_known if the record shows neither, as it does without the probe of emptyCache or, in a snapshot, without call stacks.
--   before_bytes               int64   bytes  Reserved bytes before.
--   released_bytes             int64   bytes  Released bytes (cudaFree, cuMemUnmap).
--   segments_count             int64   count  Number of released segments, or ranges of expandable segments.
--   after_bytes                int64   bytes  Reserved bytes after.
--   active_bytes               int64   bytes  Part of after_bytes that is active: allocated blocks, and freed blocks that other streams may still use.
--   held_free_bytes            int64   bytes  Part of after_bytes that is free and held by live blocks in the same segment or page.
--   private_pool_unused_bytes  int64   bytes  Part of after_bytes in unused segments of private pools, which are retained for CUDA graphs.
--   reclaimable_bytes          int64   bytes  Part of after_bytes that could have been released and was not.
--   unknown_bytes              int64   bytes  Part of after_bytes whose state is unknown because events are missing.
--   given_back_bytes           int64   bytes  Deprecated alias of released_bytes; removed with format version 2.
--   in_use_bytes               int64   bytes  Deprecated alias of active_bytes; removed with format version 2.
--   pinned_bytes               int64   bytes  Deprecated alias of held_free_bytes; removed with format version 2.
--   private_bytes              int64   bytes  Deprecated alias of private_pool_unused_bytes; removed with format version 2.
--   releasable_bytes           int64   bytes  Deprecated alias of reclaimable_bytes; removed with format version 2.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, tid, CAST(cause AS VARCHAR) AS cause, before_bytes,
    given_back_bytes AS released_bytes, segments_count,
    after_bytes, in_use_bytes AS active_bytes, pinned_bytes AS held_free_bytes, private_bytes AS private_pool_unused_bytes,
    releasable_bytes AS reclaimable_bytes, unknown_bytes,
    given_back_bytes, in_use_bytes, pinned_bytes, private_bytes, releasable_bytes
FROM _memory_releases
