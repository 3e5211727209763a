-- memory_curve: one row per event of PyTorch's caching allocator that changes a total, with the totals after it.
-- needs: events
-- columns:
--   run              string  -      Run the row comes from.
--   pid              uint32  -      Process.
--   device           int32   -      CUDA device.
--   ts               int64   ns     When, CLOCK_MONOTONIC.
--   action           string  -      alloc, free_requested, segment_alloc, segment_free, segment_map, segment_unmap, or usage.
--   requested_bytes  int64   bytes  Bytes that live allocations asked for, since recording began; null for usage.
--   reserved_bytes   int64   bytes  Bytes of segments, since recording began, or as reported for usage.
--   allocated_bytes  int64   bytes  Bytes allocated as the allocator reported them; usage only.
SELECT
    run, pid, device, ts, op AS action,
    CASE WHEN op <> 'usage' THEN
        CAST(sum(CASE op WHEN 'alloc' THEN size_bytes WHEN 'free_requested' THEN -size_bytes ELSE 0 END)
            OVER (PARTITION BY run, pid, device ORDER BY ts ROWS UNBOUNDED PRECEDING) AS BIGINT)
    END AS requested_bytes,
    CASE WHEN op = 'usage' THEN reserved_bytes ELSE
        CAST(sum(CASE WHEN op IN ('segment_alloc', 'segment_map') THEN size_bytes
                      WHEN op IN ('segment_free', 'segment_unmap') THEN -size_bytes ELSE 0 END)
            OVER (PARTITION BY run, pid, device ORDER BY ts ROWS UNBOUNDED PRECEDING) AS BIGINT)
    END AS reserved_bytes,
    allocated_bytes
FROM events
WHERE kind = 'alloc'
    AND op IN ('alloc', 'free_requested', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap', 'usage')
