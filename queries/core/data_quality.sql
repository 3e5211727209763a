-- data_quality: one row per way in which the rows of a run contradict each other. None: nothing was found.
-- needs: _data_quality, _memory_faults
-- columns:
--   run         string  -      Run the row comes from.
--   problem     string  -      What is wrong, and how such rows are counted.
--   rows_count  int64   count  How many rows.
SELECT run, problem, rows_count
FROM _data_quality
UNION ALL
SELECT CAST(run AS VARCHAR) AS run, CAST(problem AS VARCHAR) AS problem, sum(events_count) AS rows_count
FROM _memory_faults
GROUP BY run, problem
