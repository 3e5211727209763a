-- metrics_fragmentation: one row per run and size class of PyTorch's pools: free memory that could not be used or released.
-- needs: memory_fragmentation
-- columns:
--   run                  string   -      Name of the run that the row comes from.
--   subject              string   -      Pools: small (blocks up to 1 MiB) or large (all others).
--   pinned_peak_bytes    int64    bytes  Peak of the free bytes that live blocks in the same segment or page hold, summed over pools.
--   external_mean_ratio  float64  ratio  External fragmentation: share of the free bytes outside the largest free block, mean over the events of all pools; null if nothing was ever free.
-- metrics:
--   pinned_peak_bytes    lower  1MiB  bytes, 0 if absent
--   external_mean_ratio  lower  0.01  ratio
SELECT
    run, CASE WHEN is_small THEN 'small' ELSE 'large' END AS subject, sum(pinned_peak) AS pinned_peak_bytes,
    sum(external_sum) / nullif(sum(external_count), 0) AS external_mean_ratio
FROM (
    SELECT
        run, is_small, max(held_free_bytes) AS pinned_peak, sum(external_fragmentation_ratio) AS external_sum,
        CAST(count(external_fragmentation_ratio) AS DOUBLE) AS external_count
    FROM memory_fragmentation GROUP BY run, pid, device, pool_owner, pool_id, stream, is_small
) GROUP BY run, is_small
