-- copies: one row per direction, size class and kind (synchronous or asynchronous) of copies, with the durations of the calls. An asynchronous call only enqueues the copy; its duration is not that of the transfer.
-- needs: ops
-- columns:
--   run           string   -      Name of the run that the row comes from.
--   direction     string   -      Direction: h2h, h2d, d2h, d2d, p2p or default.
--   is_async      boolean  -      Whether the call may return before the copy is done.
--   size_class    int64    -      Size class: the binary logarithm of the size, rounded down.
--   calls_count   int64    count  Number of top-level copies.
--   copied_bytes  int64    bytes  Sum of their sizes.
--   p50_ns        float64  ns     Median duration of the calls, interpolated.
--   total_ns      int64    ns     Sum of the durations.
--   rate_bytes    float64  bytes  Throughput of synchronous copies in bytes per second; null for asynchronous copies, or if they took no time.
SELECT
    run, direction, op LIKE '%Async' AS is_async, size_class, count(*) AS calls_count, sum(size_bytes) AS copied_bytes,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns, sum(dur) AS total_ns,
    CASE WHEN op NOT LIKE '%Async' AND sum(dur) > 0 THEN CAST(sum(size_bytes) AS DOUBLE) * 1e9 / sum(dur) END AS rate_bytes
FROM ops WHERE class = 'copy' AND depth = 0 AND dur IS NOT NULL
GROUP BY run, direction, op LIKE '%Async', op NOT LIKE '%Async', size_class
