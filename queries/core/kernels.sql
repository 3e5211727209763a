-- kernels: one row per kernel whose name is known, by the handle that launches have in func.
-- needs: events
-- columns:
--   run   string  -  Name of the run that the row comes from.
--   pid   uint32  -  Process ID; handles are valid only within their process.
--   func  uint64  -  Handle of the kernel.
--   name  string  -  Mangled name of the kernel.
SELECT run, pid, func, last_value(CAST(detail AS VARCHAR) ORDER BY ts) AS name
FROM events WHERE kind = 'name' AND op = 'kernel'
GROUP BY run, pid, func
