-- memory_churn: one row per process, device, size class and stream, with how often PyTorch's caching allocator handed such blocks out and how long they lived.
-- needs: memory_blocks
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   device            int32    -      CUDA device.
--   stream            uint64   -      Stream; null: the default one.
--   size_class        int64    -      Binary logarithm of the block's size, rounded down.
--   blocks_count      int64    count  Blocks handed out.
--   kept_count        int64    count  Of these, still so at the end of the run.
--   total_bytes       int64    bytes  Their sizes.
--   p50_life_ns       float64  ns     Median life of those that were given back, interpolated; null: none was.
SELECT
    run, pid, device, stream, CAST(floor(log2(CAST(size_bytes AS DOUBLE))) AS BIGINT) AS size_class,
    count(*) AS blocks_count, count(*) - count(dur) AS kept_count, sum(size_bytes) AS total_bytes,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_life_ns
FROM memory_blocks WHERE state = 'active_allocated' AND size_bytes > 0
GROUP BY run, pid, device, stream, CAST(floor(log2(CAST(size_bytes AS DOUBLE))) AS BIGINT)
