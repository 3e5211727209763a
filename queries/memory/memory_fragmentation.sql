-- memory_fragmentation: one row per event of PyTorch's caching allocator, with the free memory of the pool, stream and size class of the event, from which a request can be served.
-- needs: _memory_pools
-- columns:
--   run                           string   -      Name of the run that the row comes from.
--   pid                           uint32   -      Process ID.
--   device                        int32    -      CUDA device ordinal.
--   ts                            int64    ns     Time of the event (CLOCK_MONOTONIC).
--   pool_owner                    uint64   -      First half of the private pool's ID; null is the default pool.
--   pool_id                       uint64   -      Second half of the private pool's ID.
--   stream                        uint64   -      Stream handle; null is the default stream.
--   is_small                      boolean  -      Whether it is the pool of blocks up to 1 MiB.
--   reserved_bytes                int64    bytes  Reserved bytes of the pool.
--   active_bytes                  int64    bytes  Active bytes of the pool: allocated blocks, and freed blocks that other streams may still use.
--   internal_fragmentation_bytes  int64    bytes  Internal fragmentation: part of active_bytes that was not requested.
--   free_bytes                    int64    bytes  Free bytes of the pool.
--   free_count                    int64    count  Number of free blocks.
--   largest_free_bytes            int64    bytes  Size of the largest free block.
--   held_free_bytes               int64    bytes  Free bytes that live blocks in the same segment or page hold. Equals the inactive split bytes of PyTorch if no segment is expandable.
--   external_fragmentation_ratio  float64  ratio  External fragmentation: share of the free bytes outside the largest free block; null if nothing is free.
--   concentration_ratio           float64  ratio  Sum of the squared sizes of the free blocks over the square of their sum: 1 is a single block, 1/n is n equal blocks; null if nothing is free.
--   rounding_bytes                int64    bytes  Deprecated alias of internal_fragmentation_bytes; removed with format version 2.
--   pinned_bytes                  int64    bytes  Deprecated alias of held_free_bytes; removed with format version 2.
--   external_ratio                float64  ratio  Deprecated alias of external_fragmentation_ratio; removed with format version 2.
SELECT
    CAST(run AS VARCHAR) AS run, pid, device, ts, pool_owner, pool_id, stream, is_small, reserved_bytes, active_bytes,
    rounding_bytes AS internal_fragmentation_bytes,
    free_bytes, free_count, largest_free_bytes, pinned_bytes AS held_free_bytes, external_ratio AS external_fragmentation_ratio, concentration_ratio,
    rounding_bytes, pinned_bytes, external_ratio
FROM _memory_pools
