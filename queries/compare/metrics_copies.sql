-- metrics_copies: one row per run and direction of top-level copies.
-- needs: copies
-- columns:
--   run              string   -      Name of the run that the row comes from.
--   subject          string   -      Direction: h2h, h2d, d2h, d2d, p2p or default.
--   copied_bytes     int64    bytes  Sum of their sizes.
--   copy_rate_bytes  float64  bytes  Throughput of the synchronous copies in bytes per second; null if there are none.
-- metrics:
--   copied_bytes     lower   1MiB  bytes, 0 if absent
--   copy_rate_bytes  higher  0     bytes/s
SELECT
    run, direction AS subject, sum(copied_bytes) AS copied_bytes,
    CAST(sum(CASE WHEN is_async THEN 0 ELSE copied_bytes END) AS DOUBLE) * 1e9 / nullif(sum(CASE WHEN is_async THEN 0 ELSE total_ns END), 0) AS copy_rate_bytes
FROM copies WHERE direction IS NOT NULL GROUP BY run, direction
