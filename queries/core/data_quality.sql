-- data_quality: one row per kind of contradiction between the rows of a run. No rows mean that no contradiction was found.
-- needs: _data_quality, _memory_faults
-- columns:
--   run         string  -      Name of the run that the row comes from.
--   problem     string  -      Description of the contradiction, and of how such rows are counted.
--   rows_count  int64   count  Number of such rows.
SELECT run, problem, rows_count
FROM _data_quality
UNION ALL
SELECT CAST(run AS VARCHAR) AS run, CAST(problem AS VARCHAR) AS problem, sum(events_count) AS rows_count
FROM _memory_faults
GROUP BY run, problem
