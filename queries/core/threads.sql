-- threads: one row per traced thread that was seen off CPU, starting a program or ending.
-- needs: _threads
-- columns:
--   run   string  -  Run the row comes from.
--   pid   uint32  -  Process.
--   tid   uint32  -  Thread.
--   comm  string  -  Last name seen.
SELECT run, pid, tid, comm FROM _threads
