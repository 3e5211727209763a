-- metrics_memory: one row per run: memory of PyTorch's allocators, computed for each process and device and then summed.
-- needs: memory_timeline
-- columns:
--   run                        string   -      Name of the run that the row comes from.
--   reserved_peak_bytes        int64    bytes  Peak of the reserved bytes; null if the source reports no segments.
--   allocated_peak_bytes       int64    bytes  Peak of the allocated bytes; null if the source reports no blocks.
--   reserved_mean_bytes        float64  bytes  Reserved bytes, mean over the time from the first event to the last; null if all events have the same time, or the source reports no segments.
--   allocated_mean_bytes       float64  bytes  Allocated bytes, mean over the time from the first event to the last; null if all events have the same time, or the source reports no blocks.
--   inactive_split_peak_bytes  int64    bytes  Peak of the inactive split bytes; null if the source reports usage only, or no blocks.
-- metrics:
--   reserved_peak_bytes        lower  1MiB  bytes, 0 if absent
--   allocated_peak_bytes       lower  1MiB  bytes, 0 if absent
--   reserved_mean_bytes        lower  1MiB  bytes
--   allocated_mean_bytes       lower  1MiB  bytes
--   inactive_split_peak_bytes  lower  1MiB  bytes, 0 if absent
SELECT
    run, sum(reserved_peak) AS reserved_peak_bytes, sum(allocated_peak) AS allocated_peak_bytes,
    sum(reserved_mean) AS reserved_mean_bytes, sum(allocated_mean) AS allocated_mean_bytes,
    sum(inactive_split_peak) AS inactive_split_peak_bytes
FROM (
    SELECT
        run, pid, device, max(reserved_bytes) AS reserved_peak, max(allocated_bytes) AS allocated_peak,
        max(inactive_split_bytes) AS inactive_split_peak,
        sum(CAST(reserved_bytes AS DOUBLE) * length) / nullif(sum(length), 0) AS reserved_mean,
        sum(CAST(allocated_bytes AS DOUBLE) * length) / nullif(sum(length), 0) AS allocated_mean
    FROM (
        SELECT run, pid, device, reserved_bytes, allocated_bytes, inactive_split_bytes,
            CAST(lead(ts) OVER (PARTITION BY run, pid, device ORDER BY ts) - ts AS DOUBLE) AS length
        FROM memory_timeline
    ) GROUP BY run, pid, device
) GROUP BY run
