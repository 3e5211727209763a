-- metrics_nccl: one row per run and NCCL operation.
-- needs: nccl_volume
-- columns:
--   run                string  -      Name of the run that the row comes from.
--   subject            string  -      Name of the function.
--   nccl_volume_bytes  int64   bytes  Sum of the sizes of its calls, of one rank each; null if they have none.
--   nccl_call_ns       int64   ns     Sum of the durations of its calls, which enqueue the operations.
-- metrics:
--   nccl_volume_bytes  lower  1MiB  bytes, 0 if absent
--   nccl_call_ns       lower  1ms   ns, 0 if absent
SELECT run, op AS subject, sum(volume_bytes) AS nccl_volume_bytes, sum(call_ns) AS nccl_call_ns
FROM nccl_volume GROUP BY run, op
