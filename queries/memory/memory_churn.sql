-- memory_churn: one row per process, device, size class and stream, with the number of blocks that PyTorch's caching allocator allocated and their lifetimes.
-- needs: memory_blocks
-- columns:
--   run              string   -      Name of the run that the row comes from.
--   pid              uint32   -      Process ID.
--   device           int32    -      CUDA device ordinal.
--   stream           uint64   -      Stream handle; null is the default stream.
--   size_class       int64    -      Size class: the binary logarithm of the block's size, rounded down.
--   blocks_count     int64    count  Number of allocated blocks.
--   live_count       int64    count  Number of these blocks that were still allocated at the end of the run.
--   total_bytes      int64    bytes  Sum of their sizes.
--   p50_lifetime_ns  float64  ns     Median lifetime of the freed blocks, interpolated; null if none was freed.
--   kept_count       int64    count  Deprecated alias of live_count; removed with format version 2.
--   p50_life_ns      float64  ns     Deprecated alias of p50_lifetime_ns; removed with format version 2.
SELECT
    run, pid, device, stream, CAST(floor(log2(CAST(size_bytes AS DOUBLE))) AS BIGINT) AS size_class,
    count(*) AS blocks_count, count(*) - count(dur) AS live_count, sum(size_bytes) AS total_bytes,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_lifetime_ns,
    count(*) - count(dur) AS kept_count, percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_life_ns
FROM memory_blocks WHERE state = 'active_allocated' AND size_bytes > 0
GROUP BY run, pid, device, stream, CAST(floor(log2(CAST(size_bytes AS DOUBLE))) AS BIGINT)
