-- threads: one row per traced thread that was seen off CPU, at an exec or at its exit.
-- needs: _threads
-- columns:
--   run   string  -  Name of the run that the row comes from.
--   pid   uint32  -  Process ID.
--   tid   uint32  -  Thread ID.
--   comm  string  -  Last recorded name of the thread.
SELECT run, pid, tid, comm FROM _threads
