-- processes: one row per traced process.
-- needs: _processes
-- columns:
--   run           string  -  Run the row comes from.
--   pid           uint32  -  Process.
--   parent_pid    uint32  -  Its parent.
--   command       string  -  Command line.
--   cgroup        string  -  Control group; empty: not found out.
--   container_id  string  -  Container, in hexadecimal; empty: none.
--   pod_name      string  -  Kubernetes: the pod; empty: none.
SELECT run, pid, parent_pid, command, cgroup, container_id, pod_name
FROM _processes
