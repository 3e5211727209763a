-- samples: one row per reading of a counter: GPU memory, clocks and utilization (NVML), and throttling of control groups.
-- needs: events
-- columns:
--   run      string  -   Name of the run that the row comes from.
--   ts       int64   ns  Time of the reading (CLOCK_MONOTONIC).
--   counter  string  -   Name of the counter; its ending is the unit of value.
--   device   int32   -   Index of the GPU in NVML; null if the counter does not belong to a GPU.
--   pid      uint32  -   Process ID that the reading belongs to; null if it belongs to a device.
--   value    int64   -   Value of the counter.
SELECT run, ts, CAST(op AS VARCHAR) AS counter, device, CASE WHEN pid <> 0 THEN pid END AS pid, value
FROM events WHERE kind = 'sample'
