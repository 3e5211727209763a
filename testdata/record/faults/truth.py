"""Keeps recordings with what is true of them: the planted finding, the names in its title, and the measured cost.

Usage: truth.py RUN_DIR OUT_DIR, where RUN_DIR has the summary.json and the recordings of `run.py --stub`.
"""

import json
import os
import shutil
import sys

from plan import STUB, is_healthy

# What `analyze` may find besides: before the planted fault, or at a cost of 5 % or more in a run without one. With the reason.
ACCEPTED = {
    "stub-healthy-training": {
        "waiting-for-cpu": "the machine has two CPUs for four workers, the main thread and the recorder: the main thread waits for them at times",
    },
    "stub-gc-pauses": {
        "waiting-for-cpu": "the recorder takes 2 % of the time on a machine with two CPUs; that Python sets the pace is a note, which comes after any cost",
    },
    "stub-lock-convoy": {
        "waiting-for-cpu": "the twin's three threads hash as well, and the recorder runs, on the two CPUs of the main thread",
    },
}


def entry_of(name, spec, found):
    loop = found["difference"]["loop_s"]
    cost = {key: round(loop[key], 4) for key in ("mean", "low", "high")} if spec.timed else None
    entry = {
        "fault": None if is_healthy(name) else f"{name}.fault.parquet",
        # What ends badly has no twin but the loop before it.
        "twin": f"{name}.twin.parquet" if is_healthy(name) or spec.timed or "leak" in name else None,
        "kind": spec.finding or None,
        "names": list(spec.names),
        "planted": found["planted"] or {},
        "cost_s": cost and {**cost, "pairs_count": loop["count"]},
        "accepted": ACCEPTED.get(name, {}),
    }
    for run in found["runs"]:
        if run["repeat"] == found["kept_repeat"]:
            entry[f"{run['variant']}_loop_s"] = round(run["loop_s"], 4)
    return entry


def main():
    source, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(source, "summary.json")) as file:
        found = json.load(file)["workloads"]
    truth = {name: entry_of(name, spec, found[name]) for name, spec in STUB.items() if name in found}
    for entry in truth.values():
        for name in filter(None, (entry["fault"], entry["twin"])):
            shutil.copyfile(os.path.join(source, name), os.path.join(out, name))
    with open(os.path.join(out, "truth.json"), "w") as file:
        json.dump(truth, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
