-- graphs: one row per function of CUDA graphs (capture, instantiation, update, launch, destruction), with its calls and times.
-- needs: ops
-- columns:
--   run               string   -      Run the row comes from.
--   op                string   -      Function.
--   pid               uint32   -      Process.
--   calls_count       int64    count  Calls that no other call is around.
--   failed_count      int64    count  Of these, with an error.
--   total_ns          int64    ns     Time in them.
--   max_ns            int64    ns     The longest.
--   first_ts          int64    -      When the first began, in ns on CLOCK_MONOTONIC.
--   last_ts           int64    -      When the last began.
SELECT
    run, op, pid, count(*) AS calls_count, sum(CASE WHEN ret <> 0 THEN 1 ELSE 0 END) AS failed_count,
    coalesce(sum(dur), 0) AS total_ns, max(dur) AS max_ns, min(ts) AS first_ts, max(ts) AS last_ts
FROM ops WHERE (class = 'graph' OR op IN ('cudaGraphLaunch', 'cuGraphLaunch')) AND depth = 0 GROUP BY run, op, pid
