-- metrics_leaks: one row per run whose allocators have a conclusive verdict: their leaked bytes.
-- needs: leaks
-- columns:
--   run                     string   -      Name of the run that the row comes from.
--   leaked_bytes            int64    bytes  Bytes retained by sites that leak, over all processes and devices.
--   leaked_per_epoch_bytes  float64  bytes  Leaked bytes of each allocator divided by its number of judged epochs, summed.
-- metrics:
--   leaked_bytes            lower  1MiB  bytes, 0 if absent
--   leaked_per_epoch_bytes  lower  1MiB  bytes
SELECT
    run, sum(leaked_bytes) AS leaked_bytes,
    sum(CAST(leaked_bytes AS DOUBLE) / nullif(epochs_count - warm_up_count, 0)) AS leaked_per_epoch_bytes
FROM leaks WHERE verdict <> 'inconclusive' GROUP BY run
