"""Burns one core for ever, under a name that a trace can show. Usage: cpu_hog.py CORE"""

import os
import sys

os.sched_setaffinity(0, {int(sys.argv[1])})
with open("/proc/self/comm", "w") as comm:
    comm.write("cpu-hog")
while True:
    pass
