-- ops: one row per CUDA or NCCL call.
-- needs: _calls
-- columns:
--   run         string   -      Name of the run that the row comes from.
--   op          string   -      Name of the function, without its version suffix.
--   layer       string   -      API of the function: runtime (libcudart), driver (libcuda) or nccl; null for an unknown function.
--   class       string   -      Class of the function: alloc, free, map, copy, set, launch, sync, event, graph, module, ipc, collective, p2p, communicator or query; null for an unknown function.
--   ts          int64    ns     Time of entry (CLOCK_MONOTONIC).
--   dur         int64    ns     Time from entry to return; null if the call was still open at the end of the run.
--   pid         uint32   -      Process ID.
--   tid         uint32   -      Thread ID.
--   size_bytes  int64    bytes  Number of bytes that the call allocates, copies or sets.
--   size_class  int64    -      Size class: the binary logarithm of size_bytes, rounded down.
--   direction   string   -      Direction of copies: h2h, h2d, d2h, d2d, p2p or default.
--   first_call  boolean  -      Whether the call is the first launch of its kernel by its process in the run; false for calls that launch nothing.
--   nested_in   string   -      Innermost call that encloses it on the same thread; null for a top-level call.
--   depth       int64    -      Number of calls that enclose it on the same thread; 0 is a top-level call.
--   stream      uint64   -      Stream handle; null is the default stream.
--   func        uint64   -      Handle of the launched kernel; null for other calls.
--   addr        uint64   -      Device address that the call allocates, frees or writes.
--   src_addr    uint64   -      Source address of a copy.
--   ret         int32    -      Return code; 0 is success.
--   caller      string   -      Library or program that called the function.
--   phase       string   -      Innermost range of `marks` in which the call began; null if it began in none.
SELECT
    c.run, c.op, c.layer, c.class, c.ts, c.dur, c.pid, c.tid,
    c.size_bytes,
    CASE WHEN c.size_bytes > 0 THEN CAST(floor(log2(CAST(c.size_bytes AS DOUBLE))) AS BIGINT) END AS size_class,
    c.direction,
    c.first_call, c.nested_in, c.depth, c.stream, c.func, c.addr, c.src_addr, c.ret, c.caller, c.phase
FROM _calls c
