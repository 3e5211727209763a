-- lost_events: one row per probe and interval in which the recorder lost events. No rows mean that nothing was lost, provided that the source counts lost events.
-- needs: _lost
-- alias: lost
-- columns:
--   run         string  -      Name of the run that the row comes from.
--   probe       string  -      Function, or off_cpu, run, process, fault, stack or mark.
--   from_ns     int64   ns     Time of the earlier reading of the counter (CLOCK_MONOTONIC).
--   to_ns       int64   ns     Time of the later reading.
--   lost_count  int64   count  Number of events lost between the two readings.
SELECT run, probe, from_ns, to_ns, lost_count FROM _lost
