-- memory_breakdown: one row per reading of a GPU's used memory and part of it. The part `used` is the sum of the other parts.
-- needs: _memory_ledger
-- alias: memory_ledger
-- columns:
--   run         string  -      Name of the run that the row comes from.
--   ts          int64   ns     Time of the reading by the recorder or by a program (cuMemGetInfo), CLOCK_MONOTONIC.
--   device      int32   -      Index of the GPU in NVML.
--   part        string  -      Part of the memory: used; for each recorded process allocator (PyTorch's), library (another library), context (the rest that the driver counts: context, loaded code, managed memory, rounding), before_recording (the same of a process that ran before recording began, with what it had allocated until then) or process (all of it, if it cannot be divided); other_process (not recorded); unexplained (ascribed to no process).
--   pid         uint32  -      Process ID; null for parts of the device.
--   library     string  -      Name of the library, for allocator and library.
--   size_bytes  int64   bytes  Size of the part.
SELECT CAST(run AS VARCHAR) AS run, ts, device, CAST(part AS VARCHAR) AS part, pid, CAST(library AS VARCHAR) AS library, size_bytes
FROM _memory_ledger
