-- stacks: one row per call stack that was taken (`capture --stacks`), by the number that rows have in stack.
-- needs: events
-- columns:
--   run         string  -      Run the row comes from.
--   pid         uint32  -      Process.
--   stack       uint32  -      Number.
--   frames      string  -      Functions, outermost first, separated by semicolons; file+offset where a function has no name.
SELECT run, pid, stack, last_value(CAST(detail AS VARCHAR) ORDER BY ts) AS frames
FROM events WHERE kind = 'name' AND op = 'stack'
GROUP BY run, pid, stack
