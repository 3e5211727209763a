-- wall_ops: one row per call of all runs whose time of day is known, on one clock: that of the wall, as each host has it. Runs of one host compare within wall_error_ns; of two hosts, which call was first is known if they are further apart than the sum of their utc_error_ns.
-- needs: ops, runs
-- columns:
--   run            string  -      Run the row comes from.
--   host           string  -      Host it was recorded on.
--   wall_ns        int64   ns     Entry, as Unix time.
--   wall_error_ns  int64   ns     Bound of its error against the host's own clock; null: not known.
--   utc_error_ns   int64   ns     Bound of its error against UTC, if something keeps the host's clock; null: nothing does, or it is not on record.
--   op             string  -      Function.
--   class          string  -      What it is for; null for a function Inquest does not know.
--   ts             int64   ns     Entry, CLOCK_MONOTONIC of its host.
--   dur            int64   ns     Entry to return; null: still open at the end of the run.
--   pid            uint32  -      Process.
--   tid            uint32  -      Thread.
--   size_bytes     int64   bytes  Bytes allocated, copied, set or exchanged.
--   depth          int64   -      How many calls are around it.
--   phase          string  -      The innermost range of `marks` that it began in; null: none.
SELECT
    o.run, r.host, o.ts + r.wall_offset_ns AS wall_ns, r.wall_error_ns, r.utc_error_ns, o.op, o.class, o.ts, o.dur, o.pid, o.tid,
    o.size_bytes, o.depth, o.phase
FROM ops o JOIN runs r ON r.run = o.run
WHERE r.wall_offset_ns IS NOT NULL
