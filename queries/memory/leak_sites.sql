-- leak_sites: one row per allocation site (call stack, size class as a power of two, thread and stream) with blocks that were never freed to PyTorch's caching allocator. is_leak marks the sites that leak.
-- needs: _leak_sites
-- columns:
--   run                    string   -      Name of the run that the row comes from.
--   pid                    uint32   -      Process ID.
--   device                 int32    -      CUDA device ordinal.
--   is_leak                boolean  -      Whether the site retains blocks throughout the run; false if it did in few epochs only.
--   frames                 string   -      Functions, outermost first, separated by semicolons, without those of the allocator; null if no stack was recorded or no function has a name.
--   tid                    uint32   -      Thread ID; null if the site covers all threads and several size classes.
--   stream                 uint64   -      Stream handle; null is the default stream, or any stream where tid is null.
--   blocks_count           int64    count  Number of old blocks: allocated after the warm-up, still live at the end of the last epoch, and older than the horizon.
--   blocks_bytes           int64    bytes  Sum of their sizes.
--   smallest_bytes         int64    bytes  Size of the smallest of these blocks.
--   largest_bytes          int64    bytes  Size of the largest of these blocks.
--   epoch_bytes            float64  bytes  Mean size of the old blocks per possible epoch.
--   share_ratio            float64  ratio  Share of all old bytes of the allocator that this site has.
--   epochs_count           int64    count  Number of epochs that allocated an old block.
--   possible_epochs_count  int64    count  Number of epochs that could have allocated an old block: after the warm-up, and at least the horizon before the end.
--   first_epoch            int64    -      Number of the first epoch that allocated an old block.
--   last_epoch             int64    -      Number of the last epoch that allocated an old block.
--   horizon_epochs_count   int64    count  Horizon: the smallest age in epochs after which at most a tenth of the blocks were freed.
--   freed_count            int64    count  Number of blocks that outlived their epoch and were freed.
--   young_count            int64    count  Number of blocks allocated after the warm-up that are live at the end of the last epoch and not older than the horizon.
--   young_bytes            int64    bytes  Sum of their sizes.
--   trend_bytes            float64  bytes  Growth of the site's live bytes per epoch after the warm-up (Theil–Sen slope); null if there are too few epochs.
--   trend_low_bytes        float64  bytes  Lower bound of the 95 % confidence interval of trend_bytes.
--   trend_high_bytes       float64  bytes  Upper bound of the 95 % confidence interval of trend_bytes.
--   addr                   uint64   -      Address of an old block of the first epoch that allocated one.
--   alloc_ts               int64    ns     Time at which that block was allocated (CLOCK_MONOTONIC).
SELECT
    run, pid, device, is_leak, frames, tid, stream, blocks_count, blocks_bytes, smallest_bytes, largest_bytes, epoch_bytes, share_ratio,
    epochs_count, possible_epochs_count, first_epoch, last_epoch, horizon_epochs_count, freed_count, young_count, young_bytes,
    trend_bytes, trend_low_bytes, trend_high_bytes, addr, alloc_ts
FROM _leak_sites
