-- runs: one row per run, with the time of its recording and the properties of its clock.
-- needs: _runs
-- columns:
--   run              string   -   Name of the run.
--   host             string   -   Name of the recording host; empty if it is unknown.
--   producer         string   -   Program that wrote the run, or the importer.
--   start_ns         int64    ns  Start of the recording (CLOCK_MONOTONIC); for an imported run, the first event.
--   end_ns           int64    ns  End of the recording (CLOCK_MONOTONIC).
--   wall_start_ns    int64    ns  Unix time of start_ns by the host's own clock; null if it is unknown.
--   wall_offset_ns   int64    ns  Offset from a time of the run to Unix time; null if it is unknown.
--   wall_error_ns    int64    ns  Error bound against the host's own clock: that of reading the two clocks, and the adjustment of the wall clock during the recording; null if it is unknown.
--   is_synchronised  boolean  -   Whether NTP, PTP or the like kept the host's clock on UTC, at the start and at the end; null if it is not recorded.
--   utc_error_ns     int64    ns  Error bound of a time of the run against UTC: wall_error_ns plus the error that the clock daemon reports to the kernel, the greater of start and end; null if the clock is not synchronized, or if it is not recorded.
SELECT
    run, host, producer, start_ns, end_ns, start_ns + wall_offset_ns AS wall_start_ns, wall_offset_ns, wall_error_ns,
    is_synchronised, utc_error_ns
FROM _runs
