-- metrics_gpu: one row per run and GPU that NVML read.
-- needs: samples
-- columns:
--   run                     string   -      Name of the run that the row comes from.
--   subject                 string   -      GPU, with its index in NVML.
--   memory_used_peak_bytes  int64    bytes  Peak of the used memory of all processes.
--   gpu_busy_mean_ratio     float64  ratio  GPU utilization: share of time with a kernel, mean of the readings; null if it was not read.
--   sm_clock_mean_mhz       float64  mhz    SM clock, mean of the readings; null if it was not read.
-- metrics:
--   memory_used_peak_bytes  lower   1MiB  bytes, 0 if absent
--   gpu_busy_mean_ratio     higher  0.01  ratio
--   sm_clock_mean_mhz       higher  0     mhz
SELECT
    run, 'GPU ' || device AS subject,
    max(CASE WHEN counter = 'memory_used_bytes' THEN value END) AS memory_used_peak_bytes,
    avg(CASE WHEN counter = 'gpu_busy_percent' THEN CAST(value AS DOUBLE) / 100 END) AS gpu_busy_mean_ratio,
    avg(CASE WHEN counter = 'sm_clock_mhz' THEN CAST(value AS DOUBLE) END) AS sm_clock_mean_mhz
FROM samples WHERE device IS NOT NULL AND pid IS NULL GROUP BY run, device
