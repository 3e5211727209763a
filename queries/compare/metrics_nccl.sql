-- metrics_nccl: one row per run and operation of NCCL.
-- needs: nccl_volume
-- columns:
--   run                string  -      Run the row comes from.
--   subject            string  -      Function.
--   nccl_volume_bytes  int64   bytes  Sizes of its calls, of one rank each; null: they have none.
--   nccl_call_ns       int64   ns     Time of handing them over.
-- metrics:
--   nccl_volume_bytes  lower  1MiB  bytes, 0 if absent
--   nccl_call_ns       lower  1ms   ns, 0 if absent
SELECT run, op AS subject, sum(volume_bytes) AS nccl_volume_bytes, sum(call_ns) AS nccl_call_ns
FROM nccl_volume GROUP BY run, op
