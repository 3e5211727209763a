-- runs: one row per run, with when it was recorded and what is known of its clock.
-- needs: _runs
-- columns:
--   run             string  -   Run.
--   host            string  -   Name of the recording host; empty: not known.
--   producer        string  -   What wrote it, or the importer.
--   start_ns        int64   ns  CLOCK_MONOTONIC when recording began; imported: the first event.
--   end_ns          int64   ns  The same when it ended.
--   wall_start_ns   int64   ns  Unix time of start_ns, by the host's own clock. Null: not known.
--   wall_offset_ns  int64   ns  What to add to a time of the run to get Unix time. Null: not known.
--   wall_error_ns   int64   ns  Bound of the error against the host's own clock: of reading the two clocks, and by how much the wall's was moved while recording. Null: not known.
--   is_synchronised  boolean  -  Whether something (NTP, PTP) kept the host's own clock on UTC, at the start and at the end. Null: not on record.
--   utc_error_ns    int64   ns  Bound of the error of a time of the run against UTC: wall_error_ns, and what the daemon that keeps the clock tells the kernel, the greater of start and end. Null: nothing keeps it, or it is not on record.
SELECT
    run, host, producer, start_ns, end_ns, start_ns + wall_offset_ns AS wall_start_ns, wall_offset_ns, wall_error_ns,
    is_synchronised, utc_error_ns
FROM _runs
