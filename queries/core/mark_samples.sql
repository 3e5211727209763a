-- mark_samples: one row per mark and counter: the latest reading at or before the mark's start and end, and how old it was. Counters of a process stand beside its own marks only.
-- needs: _mark_samples
-- columns:
--   run           string  -   Name of the run that the row comes from.
--   name          string  -   Name of the range or moment.
--   op            string  -   Kind of mark: range or point.
--   ts            int64   ns  Start time (CLOCK_MONOTONIC).
--   dur           int64   ns  Duration of a range; null for a point, or for a range that was open at the end of the run.
--   pid           uint32  -   Process ID of the process that set the mark.
--   tid           uint32  -   Thread ID of the thread that set the mark; the process ID if the mark came through the socket.
--   counter       string  -   Name of the counter; its ending is the unit of the values.
--   device        int32   -   Index of the GPU in NVML; null if the counter does not belong to a GPU.
--   start_value   int64   -   Value that was read last at the start; null if there was no reading before.
--   start_age_ns  int64   ns  Time from that reading to the start.
--   end_value     int64   -   Value that was read last at the end; null where dur is null.
--   end_age_ns    int64   ns  Time from that reading to the end.
SELECT
    run, name, op, ts, dur, pid, tid, counter, device, start_value, start_age_ns, end_value, end_age_ns
FROM _mark_samples
