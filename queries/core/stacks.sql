-- stacks: one row per call stack that was recorded (`capture --stacks`), by the number that other rows have in stack.
-- needs: events
-- columns:
--   run     string  -  Name of the run that the row comes from.
--   pid     uint32  -  Process ID.
--   stack   uint32  -  Number of the call stack.
--   frames  string  -  Functions, outermost first, separated by semicolons; file+offset where a function has no name.
SELECT run, pid, stack, last_value(CAST(detail AS VARCHAR) ORDER BY ts) AS frames
FROM events WHERE kind = 'name' AND op = 'stack'
GROUP BY run, pid, stack
