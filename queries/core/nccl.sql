-- nccl: one row per NCCL collective or point-to-point call.
-- needs: events, _calls, _ops
-- columns:
--   run            string  -      Name of the run that the row comes from.
--   ts             int64   ns     Time of entry (CLOCK_MONOTONIC).
--   dur            int64   ns     Time from entry to return, in which the operation is enqueued, not executed; null if the call was still open at the end of the run.
--   op             string  -      Name of the function.
--   class          string  -      Class of the operation: collective or p2p.
--   pid            uint32  -      Process ID.
--   tid            uint32  -      Thread ID.
--   element_count  int64   count  Number of elements of one rank, as passed.
--   dtype          string  -      Data type of the elements.
--   size_bytes     int64   bytes  Size of the elements of one rank.
--   communicator   uint64  -      Handle of the communicator.
--   peer           int32   -      Rank of the peer, or the root; null if the operation has none.
--   stream         uint64  -      Stream handle; null is the default stream.
--   ret            int32   -      Return code; 0 is success.
--   nested_in      string  -      Innermost call that encloses it: ncclBcast calls ncclBroadcast, and both have a row.
SELECT
    e.run, e.ts, e.dur, CAST(e.op AS VARCHAR) AS op, o.class, e.pid, e.tid, e.element_count,
    CAST(e.dtype AS VARCHAR) AS dtype, e.size_bytes, e.communicator, e.peer, e.stream, e.ret,
    CAST(c.nested_in AS VARCHAR) AS nested_in
FROM events e
JOIN _ops o ON o.op = e.op
JOIN _calls c ON c.run = e.run AND c.pid = e.pid AND c.tid = e.tid AND c.ts = e.ts AND c.op = e.op
WHERE e.kind = 'call' AND o.layer = 'nccl' AND o.class IN ('collective', 'p2p')
