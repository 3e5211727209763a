-- memory_use: one row per reading of how much of a GPU's memory is in use, by all processes together (NVML), with the time until the next one.
-- needs: samples
-- columns:
--   run          string   -      Run the row comes from.
--   device       int32    -      GPU, by NVML's index.
--   ts           int64    ns     When it was read, CLOCK_MONOTONIC.
--   dur          int64    ns     Until the next reading; null: it is the last.
--   used_bytes   int64    bytes  In use.
--   total_bytes  int64    bytes  What the GPU has; null: not read.
--   used_ratio   float64  ratio  Used by total.
SELECT
    u.run, u.device, u.ts, lead(u.ts) OVER (PARTITION BY u.run, u.device ORDER BY u.ts) - u.ts AS dur, u.value AS used_bytes,
    t.total_bytes, CAST(u.value AS DOUBLE) / t.total_bytes AS used_ratio
FROM (SELECT run, device, ts, value FROM samples WHERE counter = 'memory_used_bytes') u
LEFT JOIN (
    SELECT run, device, max(value) AS total_bytes FROM samples WHERE counter = 'memory_total_bytes' GROUP BY run, device
) t ON t.run = u.run AND t.device = u.device
