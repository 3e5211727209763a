-- leak_sites: one row per site whose blocks PyTorch's allocator was not given back: call stack, size class (a power of two), thread and stream. Of these, the ones that leak.
-- needs: _leak_sites
-- columns:
--   run                    string   -      Run the row comes from.
--   pid                    uint32   -      Process.
--   device                 int32    -      CUDA device.
--   is_leak                boolean  -      It keeps blocks through the whole run; else it did in few epochs.
--   frames                 string   -      Functions, outermost first, separated by semicolons, without the allocator's own; null: no stack was taken, or it has no names.
--   tid                    uint32   -      Thread; null: any, the sizes are of several classes, too.
--   stream                 uint64   -      Stream; null: the default one, or any where tid is null.
--   blocks_count           int64    count  Old blocks: alive at the end of the last epoch, from after the warm-up, older than the horizon.
--   blocks_bytes           int64    bytes  Their bytes.
--   smallest_bytes         int64    bytes  Size of the smallest of them.
--   largest_bytes          int64    bytes  Size of the largest of them.
--   epoch_bytes            float64  bytes  Their bytes by epoch that could have made one.
--   share_ratio            float64  ratio  Their part of all old bytes of the allocator.
--   epochs_count           int64    count  Epochs that made one.
--   possible_epochs_count  int64    count  Epochs that could have made one: after the warm-up, as many before the end as the horizon has, or more.
--   first_epoch            int64    -      Number of the first epoch that made one.
--   last_epoch             int64    -      Number of the last epoch that made one.
--   horizon_epochs_count   int64    count  Horizon: the smallest age in epochs after which at most a tenth of the blocks were given back.
--   freed_count            int64    count  Blocks that outlived their epoch and were given back.
--   young_count            int64    count  Blocks from after the warm-up that are alive at the end of the last epoch, but not older than the horizon.
--   young_bytes            int64    bytes  Their bytes.
--   trend_bytes            float64  bytes  By how much what the site holds grows an epoch: Theil and Sen's slope, from the end of the warm-up; null: too few epochs.
--   trend_low_bytes        float64  bytes  Lower end of its 95 % confidence interval.
--   trend_high_bytes       float64  bytes  Upper end of it.
--   addr                   uint64   -      Address of an old block of the first epoch that made one.
--   alloc_ts               int64    ns     When that was handed out, CLOCK_MONOTONIC.
SELECT
    run, pid, device, is_leak, frames, tid, stream, blocks_count, blocks_bytes, smallest_bytes, largest_bytes, epoch_bytes, share_ratio,
    epochs_count, possible_epochs_count, first_epoch, last_epoch, horizon_epochs_count, freed_count, young_count, young_bytes,
    trend_bytes, trend_low_bytes, trend_high_bytes, addr, alloc_ts
FROM _leak_sites
