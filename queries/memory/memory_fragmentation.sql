-- memory_fragmentation: one row per event of PyTorch's caching allocator, with the free memory of the pool it was in: what a request of that pool, stream and size class can have.
-- needs: _memory_pools
-- columns:
--   run                  string   -      Run the row comes from.
--   pid                  uint32   -      Process.
--   device               int32    -      CUDA device.
--   ts                   int64    ns     When, CLOCK_MONOTONIC.
--   pool_owner           uint64   -      First half of the private pool's id; null: the default pool.
--   pool_id              uint64   -      Second half.
--   stream               uint64   -      Stream; null: the default one.
--   is_small             boolean  -      The pool of blocks up to 1 MiB.
--   reserved_bytes       int64    bytes  Had from the driver.
--   active_bytes         int64    bytes  In use, or given back and still in use by other streams.
--   rounding_bytes       int64    bytes  Of that, what nobody asked for: internal fragmentation.
--   free_bytes           int64    bytes  Free.
--   free_count           int64    count  Free blocks.
--   largest_free_bytes   int64    bytes  The largest of them.
--   pinned_bytes         int64    bytes  Free, and kept from going back to the driver by what is in use beside it.
--   external_ratio       float64  ratio  Share of the free memory outside the largest free block; null: nothing is free.
--   concentration_ratio  float64  ratio  Sum of squares of the free blocks' sizes over the square of their sum: 1 is one block, 1/n is n equal ones; null: nothing is free.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, pool_owner, pool_id, stream, is_small, reserved_bytes, active_bytes, rounding_bytes,
    free_bytes, free_count, largest_free_bytes, pinned_bytes, external_ratio, concentration_ratio
FROM _memory_pools
