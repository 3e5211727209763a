-- metrics_leaks: one row per run whose allocators could be judged: what they handed out and did not get back, epoch after epoch.
-- needs: leaks
-- columns:
--   run                     string   -      Run the row comes from.
--   leaked_bytes            int64    bytes  Kept by sites that go on keeping, over all processes and devices.
--   leaked_per_epoch_bytes  float64  bytes  That, of each, by its number of judged epochs.
-- metrics:
--   leaked_bytes            lower  1MiB  bytes, 0 if absent
--   leaked_per_epoch_bytes  lower  1MiB  bytes
SELECT
    run, sum(leaked_bytes) AS leaked_bytes,
    sum(CAST(leaked_bytes AS DOUBLE) / nullif(epochs_count - warm_up_count, 0)) AS leaked_per_epoch_bytes
FROM leaks WHERE verdict <> 'inconclusive' GROUP BY run
