-- driver_allocations: one row per allocation of device memory that a process got from the driver, with its lifetime and the library that made it.
-- needs: _memory_driver
-- alias: memory_driver
-- columns:
--   run              string  -      Name of the run that the row comes from.
--   pid              uint32  -      Process ID.
--   tid              uint32  -      Thread ID of the caller.
--   device           int32   -      GPU ordinal; null if the process uses several.
--   ts               int64   ns     Time of the allocation (CLOCK_MONOTONIC).
--   dur              int64   ns     Lifetime: until it was released or the process exited; null if it was live at the end of the run.
--   library          string  -      Library, or program, that made the allocation.
--   allocation_type  string  -      Kind of allocation: plain (cudaMalloc, cuMemAlloc), stream_ordered (cudaMallocAsync, from a memory pool of the driver) or mapped (cuMemCreate).
--   addr             uint64  -      Address; for mapped memory the first address that it was mapped at, null if it never was.
--   size_bytes       int64   bytes  Size.
--   manner           string  -      Deprecated alias of allocation_type; removed with format version 2.
SELECT CAST(run AS VARCHAR) AS run, pid, tid, device, ts, dur, CAST(library AS VARCHAR) AS library, CAST(manner AS VARCHAR) AS allocation_type, addr,
    size_bytes, CAST(manner AS VARCHAR) AS manner
FROM _memory_driver
