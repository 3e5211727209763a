-- op_baseline: one row per function with finished calls: the yardstick that its slow calls are measured with.
-- needs: op_time, _ops
-- columns:
--   run                       string  -      Run the row comes from.
--   op                        string  -      Function.
--   calls_count               int64   count  Finished calls.
--   p50_ns                    float64 ns     Median duration, interpolated.
--   p99_ns                    float64 ns     99th percentile.
--   p99_without_scheduler_ns  float64 ns     99th percentile if no call had lost the CPU against its will.
--   usual_nested_ns           float64 ns     Median time in nested calls of another class; 0 where the longest nested call is of the same.
SELECT
    t.run, t.op,
    count(*) AS calls_count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(t.dur AS DOUBLE)) AS p50_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(t.dur AS DOUBLE)) AS p99_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(
        -- Waiting is what a synchronising call is for; off-CPU time of unknown kind may be just that.
        t.dur - t.preempted_ns - t.runnable_ns - CASE WHEN t.class = 'sync' THEN 0 ELSE t.unknown_ns END
    AS DOUBLE)) AS p99_without_scheduler_ns,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(
        CASE WHEN (child.class IS DISTINCT FROM t.class) AND t.child_op IS NOT NULL THEN t.child_ns ELSE 0 END
    AS DOUBLE)) AS usual_nested_ns
FROM op_time t
LEFT JOIN _ops child ON child.op = t.child_op
GROUP BY t.run, t.op
