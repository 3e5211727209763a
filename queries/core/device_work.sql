-- device_work: one row per piece of work of a GPU, as an imported profile has timed it, with the call that caused it.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   op          string  -      kernel, memcpy, memset, sync or annotation.
--   name        string  -      Name of the kernel, copy or range.
--   ts          int64   ns     Start on the GPU, in the time of the calls.
--   dur         int64   ns     Length on the GPU; null: not known.
--   device      int32   -      CUDA device ordinal.
--   stream      uint64  -      The profiler's number of the stream.
--   size_bytes  int64   bytes  Copies and fills: bytes.
--   direction   string  -      Copies: h2h, h2d, d2h, d2d, p2p.
--   correlation uint64  -      What call and work have in common; null: the work has no call.
--   call_op     string  -      The call; null: it is not in the run.
--   call_ts     int64   ns     Its entry.
--   call_dur_ns int64   ns     Its length.
--   call_pid    uint32  -      Its process.
--   call_tid    uint32  -      Its thread.
--   delay_ns    int64   ns     From the entry of the call to the start of the work.
SELECT
    d.run, d.op, d.detail AS name, d.ts, d.dur, d.device, d.stream, d.size_bytes, d.direction, d.correlation,
    c.op AS call_op, c.ts AS call_ts, c.dur AS call_dur_ns, c.pid AS call_pid, c.tid AS call_tid, d.ts - c.ts AS delay_ns
FROM (SELECT * FROM events WHERE kind = 'device') d
LEFT JOIN (SELECT * FROM events WHERE kind = 'call' AND correlation IS NOT NULL) c
    ON c.run = d.run AND c.correlation = d.correlation AND (d.pid = 0 OR d.pid = c.pid)
