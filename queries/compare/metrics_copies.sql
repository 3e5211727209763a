-- metrics_copies: one row per run and direction of copies that no other call is around.
-- needs: copies
-- columns:
--   run                   string   -      Run the row comes from.
--   subject               string   -      h2h, h2d, d2h, d2d, p2p, default.
--   copied_bytes          int64    bytes  Their sizes.
--   copy_rate_bytes       float64  bytes  Bytes per second of the synchronous ones; null: there is none.
-- metrics:
--   copied_bytes     lower   1MiB  bytes, 0 if absent
--   copy_rate_bytes  higher  0     bytes/s
SELECT
    run, direction AS subject, sum(copied_bytes) AS copied_bytes,
    CAST(sum(CASE WHEN is_async THEN 0 ELSE copied_bytes END) AS DOUBLE) * 1e9 / nullif(sum(CASE WHEN is_async THEN 0 ELSE total_ns END), 0) AS copy_rate_bytes
FROM copies WHERE direction IS NOT NULL GROUP BY run, direction
