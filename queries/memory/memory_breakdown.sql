-- memory_ledger: one row per reading of a GPU's used memory and part of it: used is the sum of the others.
-- needs: _memory_ledger
-- columns:
--   run         string  -      Run the row comes from.
--   ts          int64   ns     When it was read, by the recorder or by a program (cuMemGetInfo), CLOCK_MONOTONIC.
--   device      int32   -      GPU, by NVML's index.
--   part        string  -      used; of each recorded process: allocator (PyTorch's), library (another one), context (what else the driver counts for it: context, loaded code, managed memory, rounding), or process (all of it, where it cannot be split); other_process (not recorded); unexplained.
--   pid         uint32  -      Process; null: of the device.
--   library     string  -      allocator, library: which.
--   size_bytes  int64   bytes  How much.
SELECT CAST(run AS VARCHAR) AS run, ts, device, CAST(part AS VARCHAR) AS part, pid, CAST(library AS VARCHAR) AS library, size_bytes
FROM _memory_ledger
