-- nccl_volume: one row per communicator and operation of NCCL, with the bytes of one rank. How long they took on the device is not on record: the calls only hand them over.
-- needs: nccl
-- columns:
--   run               string   -      Run the row comes from.
--   pid               uint32   -      Process.
--   communicator      uint64   -      Handle of the communicator.
--   op                string   -      Function.
--   calls_count       int64    count  Calls that no other of NCCL is around.
--   volume_bytes      int64    bytes  Their sizes.
--   call_ns           int64    ns     Time of handing them over.
--   p99_call_ns       float64  ns     99th percentile of one call's.
SELECT
    run, pid, communicator, op, count(*) AS calls_count, sum(size_bytes) AS volume_bytes, sum(dur) AS call_ns,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY CAST(dur AS DOUBLE)) AS p99_call_ns
FROM nccl WHERE nested_in IS NULL OR nested_in NOT LIKE 'nccl%' GROUP BY run, pid, communicator, op
