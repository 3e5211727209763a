-- leaks: one row per allocator of PyTorch (of a process and device): whether it leaks, and what became of what it handed out; as `analyze leaks` answers without options.
-- needs: _leaks
-- columns:
--   run               string  -      Run the row comes from.
--   pid               uint32  -      Process.
--   device            int32   -      CUDA device.
--   verdict           string  -      leak, one-off growth, fragmentation, caching, none, or inconclusive.
--   reason            string  -      Why; null: there is nothing to say.
--   epochs            string  -      What an epoch is.
--   epochs_count      int64   count  How many there are.
--   warm_up_count     int64   count  The first of them, which are not judged.
--   before_bytes      int64   bytes  Handed out at the end of the warm-up.
--   given_back_bytes  int64   bytes  Of these, what was given back until the end of the last epoch.
--   leaked_bytes      int64   bytes  Handed out since and kept, by sites that go on keeping.
--   kept_once_bytes   int64   bytes  Handed out since and kept, by other sites.
--   young_bytes       int64   bytes  Handed out since and there, but not older than what its site still gives back.
--   after_bytes       int64   bytes  Handed out at the end of the last epoch: before - given back + leaked + kept once + young.
SELECT
    run, pid, device, verdict, reason, epochs, epochs_count, warm_up_count, before_bytes, given_back_bytes, leaked_bytes,
    kept_once_bytes, young_bytes, after_bytes
FROM _leaks
