-- device_work: one row per kernel, copy or other activity of a GPU, as recorded in an imported profile, with the call that launched it.
-- needs: events
-- columns:
--   run          string  -      Name of the run that the row comes from.
--   op           string  -      Kind of activity: kernel, memcpy, memset, sync or annotation.
--   name         string  -      Name of the kernel, copy or range.
--   ts           int64   ns     Start time on the GPU, converted to the clock of the calls.
--   dur          int64   ns     Duration on the GPU; null if it is unknown.
--   device       int32   -      CUDA device ordinal.
--   stream       uint64  -      Number of the stream in the profile.
--   size_bytes   int64   bytes  Number of bytes that a copy or memset writes.
--   direction    string  -      Direction of copies: h2h, h2d, d2h, d2d or p2p.
--   correlation  uint64  -      Correlation ID of CUPTI that activity and call have in common; null if the activity has no call.
--   call_op      string  -      Name of the function that launched it; null if the run does not contain the call.
--   call_ts      int64   ns     Time of entry of the call (CLOCK_MONOTONIC).
--   call_dur_ns  int64   ns     Duration of the call.
--   call_pid     uint32  -      Process ID of the call.
--   call_tid     uint32  -      Thread ID of the call.
--   delay_ns     int64   ns     Launch latency: time from the entry of the call to the start of the activity.
SELECT
    d.run, d.op, d.detail AS name, d.ts, d.dur, d.device, d.stream, d.size_bytes, d.direction, d.correlation,
    c.op AS call_op, c.ts AS call_ts, c.dur AS call_dur_ns, c.pid AS call_pid, c.tid AS call_tid, d.ts - c.ts AS delay_ns
FROM (SELECT * FROM events WHERE kind = 'device') d
LEFT JOIN (SELECT * FROM events WHERE kind = 'call' AND correlation IS NOT NULL) c
    ON c.run = d.run AND c.correlation = d.correlation AND (d.pid = 0 OR d.pid = c.pid)
