-- ops: one row per CUDA or NCCL call.
-- needs: _calls
-- columns:
--   run         string  -      Run the row comes from.
--   op          string  -      Function, without version suffix.
--   layer       string  -      runtime (libcudart), driver (libcuda) or nccl; null for a function Inquest does not know.
--   class       string  -      What it is for: alloc, free, map, copy, set, launch, sync, event, graph, module, ipc, collective, p2p, communicator, query; null as for layer.
--   ts          int64   ns     Entry, CLOCK_MONOTONIC.
--   dur         int64   ns     Entry to return; null: still open at the end of the run.
--   pid         uint32  -      Process.
--   tid         uint32  -      Thread.
--   size_bytes  int64   bytes  Bytes allocated, copied or set.
--   size_class  int64   -      Binary logarithm of size_bytes, rounded down: the stratum of a size.
--   direction   string  -      Copies: h2h, h2d, d2h, d2d, p2p, default.
--   first_call  boolean -      Launches: the first call with this kernel in this process that the run has seen; false for all else.
--   nested_in   string  -      The innermost call around it on the same thread.
--   depth       int64   -      How many calls are around it.
--   stream      uint64  -      Stream handle; null: the default stream.
--   func        uint64  -      Launches: the kernel's handle.
--   addr        uint64  -      Address it is about.
--   src_addr    uint64  -      Copies: source address.
--   ret         int32   -      Return code; 0 is success.
--   caller      string  -      Library or program that made the call.
--   phase       string  -      The innermost range of `marks` that it began in; null: none.
SELECT
    c.run, c.op, c.layer, c.class, c.ts, c.dur, c.pid, c.tid,
    c.size_bytes,
    CASE WHEN c.size_bytes > 0 THEN CAST(floor(log2(CAST(c.size_bytes AS DOUBLE))) AS BIGINT) END AS size_class,
    c.direction,
    c.first_call, c.nested_in, c.depth, c.stream, c.func, c.addr, c.src_addr, c.ret, c.caller, c.phase
FROM _calls c
