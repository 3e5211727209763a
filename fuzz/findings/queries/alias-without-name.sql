-- slow: calls.
-- needs: events
-- alias:
-- columns:
--   ts  int64  ns  Start.
SELECT ts FROM events
