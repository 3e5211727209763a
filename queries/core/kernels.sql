-- kernels: one row per kernel whose name is known, by the handle that launches have in func.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   pid         uint32  -      Process; handles mean nothing outside it.
--   func        uint64  -      Handle.
--   name        string  -      Mangled name.
SELECT run, pid, func, last_value(CAST(detail AS VARCHAR) ORDER BY ts) AS name
FROM events WHERE kind = 'name' AND op = 'kernel'
GROUP BY run, pid, func
