-- processes: one row per traced process.
-- needs: _processes
-- columns:
--   run           string  -  Name of the run that the row comes from.
--   pid           uint32  -  Process ID.
--   parent_pid    uint32  -  Process ID of the parent.
--   command       string  -  Command line.
--   cgroup        string  -  Control group; empty if it is unknown.
--   container_id  string  -  Container ID in hexadecimal; empty if there is none.
--   pod_name      string  -  Name of the Kubernetes pod; empty if there is none.
SELECT run, pid, parent_pid, command, cgroup, container_id, pod_name
FROM _processes
