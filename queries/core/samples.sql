-- samples: one row per reading of a counter: GPU memory, clocks, utilisation (NVML), throttling of control groups.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   ts          int64   ns     When, CLOCK_MONOTONIC.
--   counter     string  -      What was read; its ending is the unit of value.
--   device      int32   -      GPU, by NVML's index; null: not of a GPU.
--   pid         uint32  -      Process the reading is of; null: of a device.
--   value       int64   -      The reading.
SELECT run, ts, CAST(op AS VARCHAR) AS counter, device, CASE WHEN pid <> 0 THEN pid END AS pid, value
FROM events WHERE kind = 'sample'
