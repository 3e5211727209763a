-- memory_segment_events: one row per segment, or range of an expandable one, that PyTorch's caching allocator allocated (cudaMalloc, cuMemMap) or released (cudaFree, cuMemUnmap), with its cause.
-- needs: _memory_requests
-- alias: memory_requests
-- columns:
--   run                  string   -      Name of the run that the row comes from.
--   pid                  uint32   -      Process ID.
--   device               int32    -      CUDA device ordinal.
--   ts                   int64    ns     Time of the event (CLOCK_MONOTONIC).
--   tid                  uint32   -      Thread ID.
--   action               string   -      Event: segment_alloc, segment_free, segment_map or segment_unmap.
--   cause                string   -      Allocated for first_use, growth, fragmentation (enough bytes were free, but in no single block), other_stream (another stream had a free block) or after_release (the memory had been released). Released by empty_cache or make_room (for a request), as in memory_releases. not_known if the record does not show it: the request, or whether a request or a call of emptyCache encloses the release, is not recorded, or the source records no streams and pending frees.
--   addr                 uint64   -      Address.
--   size_bytes           int64    bytes  Size of the segment or range.
--   pool_owner           uint64   -      First half of the private pool's ID; null is the default pool.
--   pool_id              uint64   -      Second half of the private pool's ID.
--   stream               uint64   -      Stream handle; null is the default stream.
--   is_small             boolean  -      Whether it belongs to the pool of blocks up to 1 MiB.
--   requested_bytes      int64    bytes  Requested size of the thread; null if there is no request, or if it is not recorded.
--   block_bytes          int64    bytes  Size of the smallest block that serves the request.
--   pool_reserved_bytes  int64    bytes  Reserved bytes of the pool just before.
--   pool_peak_bytes      int64    bytes  Largest number of reserved bytes of the pool until then.
--   pool_free_bytes      int64    bytes  Free bytes of the pool just before.
--   largest_free_bytes   int64    bytes  Size of the largest free block of the pool.
--   other_stream_bytes   int64    bytes  Size of the largest free block of the same pool and size class in another stream.
--   stack                uint32   -      Number of the call stack of the request, as in the view stacks.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, tid, CAST(action AS VARCHAR) AS action, CAST(cause AS VARCHAR) AS cause, addr, size_bytes,
    pool_owner, pool_id, stream, is_small, requested_bytes, block_bytes, pool_reserved_bytes, pool_peak_bytes, pool_free_bytes,
    largest_free_bytes, other_stream_bytes, stack
FROM _memory_requests
