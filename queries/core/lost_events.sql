-- lost: one row per probe and interval in which it lost events. No rows: nothing was lost, if the source counts.
-- needs: _lost
-- columns:
--   run         string  -      Run the row comes from.
--   probe       string  -      Function, or off_cpu, run, process, fault, stack.
--   from_ns     int64   ns     Earlier reading of the counter, CLOCK_MONOTONIC.
--   to_ns       int64   ns     Later reading.
--   lost_count  int64   count  Events lost in between.
SELECT run, probe, from_ns, to_ns, lost_count FROM _lost
