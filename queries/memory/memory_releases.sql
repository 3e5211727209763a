-- memory_releases: one row per attempt of PyTorch's caching allocator to release memory to the driver, with the released bytes and the reasons why the rest stayed, and one per call of ipc_collect() by the program, which releases nothing and frees the blocks that other processes no longer use. before_bytes - released_bytes = after_bytes unless another thread changed it meanwhile; after_bytes = active_bytes + held_free_bytes + private_pool_unused_bytes + reclaimable_bytes + unknown_bytes. A program that collects its garbage, calls empty_cache() and then ipc_collect() has the bytes of each part: freed_before_bytes and released_bytes of the empty_cache row, ipc_freed_bytes of the ipc_collect row. The segments of blocks that ipc_collect() freed are returned to the driver by the next release. A pause is not among them (memory_pauses).
-- needs: _memory_releases
-- columns:
--   run                        string  -      Name of the run that the row comes from.
--   pid                        uint32  -      Process ID.
--   device                     int32   -      CUDA device ordinal.
--   ts                         int64   ns     Start time (CLOCK_MONOTONIC).
--   dur                        int64   ns     Time until the last segment was released, or until ipc_collect() returned.
--   tid                        uint32  -      Thread ID.
--   cause                      string  -      Reason of the attempt. empty_cache if a recorded call of it encloses the attempt or is in its call stacks. ipc_collect for a call of it. make_room (for a request that found no free block) if the driver refused the thread memory right before; or the allocator called ipc_collect() for a request right before; or the thread's request is served with a segment or fails right after, and the run records all calls of emptyCache or has one call stack for both. not_known if the record shows none of these, as it does without the probe of emptyCache or, in a snapshot, without call stacks.
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
--   freed_before_bytes         int64   bytes  Bytes of the blocks that the thread freed since its last allocation or release, as the garbage collection before empty_cache() does. Null if the record does not tell: the allocator's events are not recorded, some were lost, or recording began in between.
--   ipc_freed_bytes            int64   bytes  Bytes of the blocks that ipc_collect() freed; 0 for another cause. Null if the record does not tell: the calls or the allocator's events are not recorded.
--   closed_handles_count       int64   count  Number of CUDA IPC handles that the thread closed since its last allocation or release, until the end of this one: memory of other processes, whose bytes are not recorded. Null if the calls are not recorded, or recording began in between.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, dur, tid, CAST(cause AS VARCHAR) AS cause, before_bytes,
    given_back_bytes AS released_bytes, segments_count,
    after_bytes, in_use_bytes AS active_bytes, pinned_bytes AS held_free_bytes, private_bytes AS private_pool_unused_bytes,
    releasable_bytes AS reclaimable_bytes, unknown_bytes,
    given_back_bytes, in_use_bytes, pinned_bytes, private_bytes, releasable_bytes,
    freed_before_bytes, ipc_freed_bytes, closed_handles_count
FROM _memory_releases
