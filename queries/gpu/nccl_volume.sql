-- nccl_volume: one row per communicator and NCCL operation, with the bytes of one rank. The calls only enqueue the operations; the duration on the device is not recorded.
-- needs: nccl
-- columns:
--   run           string   -      Name of the run that the row comes from.
--   pid           uint32   -      Process ID.
--   communicator  uint64   -      Handle of the communicator.
--   op            string   -      Name of the function.
--   calls_count   int64    count  Number of calls that no other NCCL call encloses.
--   volume_bytes  int64    bytes  Sum of their sizes.
--   call_ns       int64    ns     Sum of the durations of these calls.
--   p99_call_ns   float64  ns     99th percentile of the durations of these calls.
SELECT
    run, pid, communicator, op, count(*) AS calls_count, sum(size_bytes) AS volume_bytes, sum(dur) AS call_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_call_ns
FROM nccl WHERE nested_in IS NULL OR nested_in NOT LIKE 'nccl%' GROUP BY run, pid, communicator, op
