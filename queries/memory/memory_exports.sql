-- memory_exports: one row per handle of its GPU memory that a process exported to other processes (CUDA IPC), with the segment of PyTorch's allocator that contains the memory.
-- needs: ops, memory_segments
-- columns:
--   run             string  -      Name of the run that the row comes from.
--   pid             uint32  -      Process ID.
--   tid             uint32  -      Thread ID.
--   ts              int64   ns     Time of entry of the call (CLOCK_MONOTONIC).
--   op              string  -      Name of the called function.
--   addr            uint64  -      Address that was exported.
--   device          int32   -      CUDA device ordinal; null if no recorded segment contains the address.
--   segment_addr    uint64  -      Start address of the segment.
--   segment_bytes   int64   bytes  Size of the segment at that time.
--   segment_dur_ns  int64   ns     Time for which the segment kept its extent; null if it was until the end of the run. Another process may have any block of it open.
SELECT
    o.run, o.pid, o.tid, o.ts, o.op, o.addr, s.device, s.addr AS segment_addr, s.size_bytes AS segment_bytes,
    s.ts + s.dur - o.ts AS segment_dur_ns
FROM ops o
LEFT JOIN memory_segments s
    ON o.run = s.run AND o.pid = s.pid AND o.addr >= s.addr AND o.addr < s.addr + s.size_bytes
    AND o.ts >= s.ts AND (s.dur IS NULL OR o.ts < s.ts + s.dur)
WHERE o.op IN ('cudaIpcGetMemHandle', 'cuIpcGetMemHandle') AND o.depth = 0 AND coalesce(o.ret, 0) = 0
