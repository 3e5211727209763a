"""Runs one workload, with its fault or without, and prints one line of JSON at its end.

Usage: workload.py NAME fault|twin [--scale X] [--cores LIST] [--scratch DIR] [--marks]

The line has the seconds of the loop and of the whole process, the steps, and in `planted` what the fault is. A run that fails says so in
`error` and exits with 1, also where the failure is the planted one. plan.py lists the names.
"""

import argparse
import importlib
import os
import tempfile

from harness import Run
from plan import DRY, PLAN, STUB, spec_of


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=[*PLAN, *STUB, *DRY])
    parser.add_argument("variant", choices=["fault", "twin"])
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of steps")
    parser.add_argument("--cores", default="", help="the cores of the process, such as 2,3")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="a folder for files that the workload reads or writes")
    parser.add_argument("--marks", action="store_true", help="send a mark around each step")
    options = parser.parse_args()
    cores = [int(core) for core in options.cores.split(",") if core] or sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)
    spec = spec_of(options.name)
    # PyTorch reads them when it is imported.
    os.environ.update(spec.env)
    run = Run(options.name, options.variant == "fault", options.scale, cores, options.scratch, options.marks)
    run.on_terminate()
    try:
        workload = getattr(importlib.import_module(spec.module), options.name.replace("-", "_"))
        workload(run)
    except BaseException as error:
        run.say(error=f"{type(error).__name__}: {error}"[:400])
        raise
    run.say()


if __name__ == "__main__":
    main()
