-- leaks: one row per PyTorch allocator (a process and device), with the verdict on whether it leaks and the account of its allocated bytes, as `analyze leaks` answers without options.
-- needs: _leaks
-- columns:
--   run                      string  -      Name of the run that the row comes from.
--   pid                      uint32  -      Process ID.
--   device                   int32   -      CUDA device ordinal.
--   verdict                  string  -      leak, one-off growth, fragmentation, caching, none or inconclusive.
--   reason                   string  -      Reason of the verdict; null if there is nothing to report.
--   epochs                   string  -      Definition of an epoch in this run.
--   epochs_count             int64   count  Number of epochs.
--   warm_up_count            int64   count  Number of epochs at the start that are warm-up and not judged.
--   before_bytes             int64   bytes  Allocated bytes at the end of the warm-up.
--   freed_bytes              int64   bytes  Part of before_bytes that was freed until the end of the last epoch.
--   leaked_bytes             int64   bytes  Bytes allocated since and retained by sites that leak.
--   one_off_retention_bytes  int64   bytes  Bytes allocated since and retained by sites that do not leak: one-off retention.
--   young_bytes              int64   bytes  Bytes allocated since and live, but not older than what their site still frees.
--   after_bytes              int64   bytes  Allocated bytes at the end of the last epoch: before_bytes - freed_bytes + leaked_bytes + one_off_retention_bytes + young_bytes.
--   given_back_bytes         int64   bytes  Deprecated alias of freed_bytes; removed with format version 2.
--   kept_once_bytes          int64   bytes  Deprecated alias of one_off_retention_bytes; removed with format version 2.
SELECT
    run, pid, device, verdict, reason, epochs, epochs_count, warm_up_count, before_bytes, given_back_bytes AS freed_bytes, leaked_bytes,
    kept_once_bytes AS one_off_retention_bytes, young_bytes, after_bytes,
    given_back_bytes, kept_once_bytes
FROM _leaks
