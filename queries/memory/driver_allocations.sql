-- memory_driver: one row per piece of device memory that a process had from the driver, with the time for which it had it and the library that asked.
-- needs: _memory_driver
-- columns:
--   run         string  -      Run the row comes from.
--   pid         uint32  -      Process.
--   tid         uint32  -      Thread that asked.
--   device      int32   -      GPU; null: the process uses several.
--   ts          int64   ns     When it was asked for, CLOCK_MONOTONIC.
--   dur         int64   ns     Until it was given back, or the process ended; null: still had at the end of the run.
--   library     string  -      Library, or program, that asked.
--   manner      string  -      plain (cudaMalloc, cuMemAlloc), stream_ordered (cudaMallocAsync, from a pool of the driver), mapped (cuMemCreate).
--   addr        uint64  -      Address; of mapped memory, the first that it was mapped at; null: it never was.
--   size_bytes  int64   bytes  Size.
SELECT CAST(run AS VARCHAR) AS run, pid, tid, device, ts, dur, CAST(library AS VARCHAR) AS library, CAST(manner AS VARCHAR) AS manner, addr, size_bytes
FROM _memory_driver
