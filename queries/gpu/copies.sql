-- copies: one row per direction, size class and way of calling of copies, with what the calls took. That of asynchronous ones is handing the copy over, not its execution.
-- needs: ops
-- columns:
--   run               string   -      Run the row comes from.
--   direction         string   -      h2h, h2d, d2h, d2d, p2p, default.
--   is_async          boolean  -      The call may return before the copy is done.
--   size_class        int64    -      Binary logarithm of the size, rounded down.
--   calls_count       int64    count  Copies that no other call is around.
--   copied_bytes      int64    bytes  Their sizes.
--   p50_ns            float64  ns     Median time of the call, interpolated.
--   total_ns          int64    ns     Sum of times.
--   rate_bytes        float64  bytes  Bytes per second of synchronous calls; null: asynchronous, or no time.
SELECT
    run, direction, op LIKE '%Async' AS is_async, size_class, count(*) AS calls_count, sum(size_bytes) AS copied_bytes,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p50_ns, sum(dur) AS total_ns,
    CASE WHEN op NOT LIKE '%Async' AND sum(dur) > 0 THEN CAST(sum(size_bytes) AS DOUBLE) * 1e9 / sum(dur) END AS rate_bytes
FROM ops WHERE class = 'copy' AND depth = 0 AND dur IS NOT NULL
GROUP BY run, direction, op LIKE '%Async', op NOT LIKE '%Async', size_class
