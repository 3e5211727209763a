-- nccl: one row per NCCL collective or point-to-point call.
-- needs: events, _calls, _ops
-- columns:
--   run            string  -      Run the row comes from.
--   ts             int64   ns     Entry, CLOCK_MONOTONIC.
--   dur            int64   ns     Entry to return: handing the operation over, not its execution; null: open at the end.
--   op             string  -      Function.
--   class          string  -      collective or p2p.
--   pid            uint32  -      Process.
--   tid            uint32  -      Thread.
--   element_count  int64   count  Elements of one rank, as passed.
--   dtype          string  -      Type of the elements.
--   size_bytes     int64   bytes  Their size.
--   communicator   uint64  -      Handle of the communicator.
--   peer           int32   -      The other rank, or the root; null: the operation has none.
--   stream         uint64  -      Stream handle; null: the default stream.
--   ret            int32   -      Return code; 0 is success.
--   nested_in      string  -      The innermost call around it: ncclBcast calls ncclBroadcast, and both have a row.
SELECT
    e.run, e.ts, e.dur, CAST(e.op AS VARCHAR) AS op, o.class, e.pid, e.tid, e.element_count,
    CAST(e.dtype AS VARCHAR) AS dtype, e.size_bytes, e.communicator, e.peer, e.stream, e.ret,
    CAST(c.nested_in AS VARCHAR) AS nested_in
FROM events e
JOIN _ops o ON o.op = e.op
JOIN _calls c ON c.run = e.run AND c.pid = e.pid AND c.tid = e.tid AND c.ts = e.ts AND c.op = e.op
WHERE e.kind = 'call' AND o.layer = 'nccl' AND o.class IN ('collective', 'p2p')
