-- memory_use: one row per reading of the used memory of a GPU, by all processes together (NVML), with the time until the next reading.
-- needs: samples
-- columns:
--   run          string   -      Name of the run that the row comes from.
--   device       int32    -      Index of the GPU in NVML.
--   ts           int64    ns     Time of the reading (CLOCK_MONOTONIC).
--   dur          int64    ns     Time until the next reading; null for the last one.
--   used_bytes   int64    bytes  Used memory.
--   total_bytes  int64    bytes  Total memory of the GPU; null if it was not read.
--   used_ratio   float64  ratio  used_bytes divided by total_bytes.
SELECT
    u.run, u.device, u.ts, lead(u.ts) OVER (PARTITION BY u.run, u.device ORDER BY u.ts) - u.ts AS dur, u.value AS used_bytes,
    t.total_bytes, CAST(u.value AS DOUBLE) / t.total_bytes AS used_ratio
FROM (SELECT run, device, ts, value FROM samples WHERE counter = 'memory_used_bytes') u
LEFT JOIN (
    SELECT run, device, max(value) AS total_bytes FROM samples WHERE counter = 'memory_total_bytes' GROUP BY run, device
) t ON t.run = u.run AND t.device = u.device
