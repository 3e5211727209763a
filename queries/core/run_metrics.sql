-- run_metrics: one row per run and figure of it: what comparisons of runs are made of.
-- needs: ops, off_cpu, launch_gaps, memory_curve
-- columns:
--   run               string   -      Run the row comes from.
--   metric            string   -      calls_count, calls_ns, off_cpu_ns, runnable_ns, launch_gap_ns, reserved_peak_bytes, allocated_peak_bytes: the unit ends the name.
--   subject           string   -      Function, or state at switch-out; null: of the whole run.
--   value             float64  -      The figure.
SELECT run, 'calls_count' AS metric, op AS subject, CAST(count(*) AS DOUBLE) AS value FROM ops GROUP BY run, op
UNION ALL SELECT run, 'calls_ns', op, CAST(sum(dur) AS DOUBLE) FROM ops WHERE dur IS NOT NULL GROUP BY run, op
UNION ALL SELECT run, 'off_cpu_ns', CAST(state AS VARCHAR), CAST(sum(dur) AS DOUBLE) FROM off_cpu WHERE dur IS NOT NULL GROUP BY run, state
UNION ALL SELECT run, 'runnable_ns', NULL, CAST(sum(runnable_ns) AS DOUBLE) FROM off_cpu WHERE runnable_ns IS NOT NULL GROUP BY run
UNION ALL SELECT run, 'launch_gap_ns', NULL, CAST(sum(dur) AS DOUBLE) FROM launch_gaps GROUP BY run
UNION ALL SELECT run, 'reserved_peak_bytes', NULL, CAST(max(reserved_bytes) AS DOUBLE) FROM memory_curve GROUP BY run
UNION ALL SELECT run, 'allocated_peak_bytes', NULL, CAST(max(allocated_bytes) AS DOUBLE) FROM memory_curve GROUP BY run
