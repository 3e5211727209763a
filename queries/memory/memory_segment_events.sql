-- memory_requests: one row per segment, or stretch of an expandable one, that PyTorch's caching allocator had from the driver (cudaMalloc, cuMemMap) or gave back (cudaFree, cuMemUnmap), with why.
-- needs: _memory_requests
-- columns:
--   run                  string   -      Run the row comes from.
--   pid                  uint32   -      Process.
--   device               int32    -      CUDA device.
--   ts                   int64    ns     When, CLOCK_MONOTONIC.
--   tid                  uint32   -      Thread.
--   action               string   -      segment_alloc, segment_free, segment_map or segment_unmap.
--   cause                string   -      Came: first_use, growth, fragmentation (enough was free, in pieces), other_stream (another stream had a free block), after_release (had been given back). Went: empty_cache, make_room (for a request). not_known: the request is not on record, or the source does not tell streams and pending frees.
--   addr                 uint64   -      Address.
--   size_bytes           int64    bytes  Size.
--   pool_owner           uint64   -      First half of the private pool's id; null: the default pool.
--   pool_id              uint64   -      Second half.
--   stream               uint64   -      Stream; null: the default one.
--   is_small             boolean  -      Of the pool of blocks up to 1 MiB.
--   requested_bytes      int64    bytes  What the thread asked for; null: nothing, or not on record.
--   block_bytes          int64    bytes  The smallest block that serves it.
--   pool_reserved_bytes  int64    bytes  Just before: what the pool had from the driver.
--   pool_peak_bytes      int64    bytes  The most it had had.
--   pool_free_bytes      int64    bytes  Just before: free in the pool.
--   largest_free_bytes   int64    bytes  The largest free block of it.
--   other_stream_bytes   int64    bytes  The largest free block of the same pool and size class in another stream.
--   stack                uint32   -      Number of the call stack of the request (view stacks).
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, tid, CAST(action AS VARCHAR) AS action, CAST(cause AS VARCHAR) AS cause, addr, size_bytes,
    pool_owner, pool_id, stream, is_small, requested_bytes, block_bytes, pool_reserved_bytes, pool_peak_bytes, pool_free_bytes,
    largest_free_bytes, other_stream_bytes, stack
FROM _memory_requests
