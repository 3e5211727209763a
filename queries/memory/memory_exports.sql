-- memory_exports: one row per time that a process gave other processes a handle of its GPU memory (CUDA IPC), with the segment of PyTorch's allocator that the memory lies in.
-- needs: ops, memory_segments
-- columns:
--   run             string  -      Run the row comes from.
--   pid             uint32  -      Process.
--   tid             uint32  -      Thread.
--   ts              int64   ns     Entry of the call, CLOCK_MONOTONIC.
--   op              string  -      The call.
--   addr            uint64  -      What the handle is of.
--   device          int32   -      CUDA device; null: the memory is not in a segment on record.
--   segment_addr    uint64  -      The segment's address.
--   segment_bytes   int64   bytes  Its size then.
--   segment_dur_ns  int64   ns     How long it stayed as it was; null: to the end of the run. What is in use in it may be what another process has open.
SELECT
    o.run, o.pid, o.tid, o.ts, o.op, o.addr, s.device, s.addr AS segment_addr, s.size_bytes AS segment_bytes,
    s.ts + s.dur - o.ts AS segment_dur_ns
FROM ops o
LEFT JOIN memory_segments s
    ON o.run = s.run AND o.pid = s.pid AND o.addr >= s.addr AND o.addr < s.addr + s.size_bytes
    AND o.ts >= s.ts AND (s.dur IS NULL OR o.ts < s.ts + s.dur)
WHERE o.op IN ('cudaIpcGetMemHandle', 'cuIpcGetMemHandle') AND o.depth = 0 AND coalesce(o.ret, 0) = 0
