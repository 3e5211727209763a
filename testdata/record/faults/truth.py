"""Keeps recordings with what is true of them: the planted finding, the names in its title, and the measured cost.

Usage: truth.py ANALYZE OUT_DIR RUN_DIR... [--only NAME,...]. ANALYZE takes all but the programs' names out of command lines. A RUN_DIR has the summary.json and the recordings of `run.py`. What OUT_DIR has already stays,
unless a RUN_DIR has the same workload; if several have it, the last one counts.
"""

import argparse
import json
import os
import subprocess
import sys

from plan import PLAN, STUB, is_healthy, spec_of

# What `analyze` may find besides: before the planted fault, or at a cost of 5 % or more in a run without one. With the reason.
ACCEPTED = {
    "stub-healthy-training": {
        "waiting-for-cpu": "the machine has two CPUs for four workers, the main thread and the recorder: the main thread waits for them at times",
    },
    "stub-gc-pauses": {
        "waiting-for-cpu": "the recorder takes 2 % of the time on a machine with two CPUs; that Python sets the pace is a note, which comes after any cost",
    },
    "loader-cpu": {
        "starved-loader": "the twin's four workers, too, are slower than the GPU on the four CPUs of its lane",
        "waiting-for-cpu": "the same: five busy threads share four CPUs",
    },
    "stub-lock-convoy": {
        "waiting-for-cpu": "the twin's three threads hash as well, and the recorder runs, on the two CPUs of the main thread",
    },
}


# Workloads on a GPU whose twin has some of what the fault has more of; the twins of the others have nothing, and are not kept.
TWINS = ("loader-cpu",)


def has_twin(name, spec):
    if is_healthy(name) or name in TWINS:
        return True
    return name in STUB and (spec.timed or "leak" in name)


def entry_of(name, spec, found):
    loop = found["difference"]["loop_s"]
    cost = {key: round(loop[key], 4) for key in ("mean", "low", "high")} if spec.timed else None
    entry = {
        "fault": None if is_healthy(name) else f"{name}.fault.parquet",
        # What ends badly has no twin but the loop before it.
        "twin": f"{name}.twin.parquet" if has_twin(name, spec) else None,
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("analyze", help="path of `analyze`")
    parser.add_argument("out")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--only", default="", help="only these workloads, with commas")
    options = parser.parse_args()
    out, only = options.out, options.only.split(",") if options.only else [*PLAN, *STUB]
    os.makedirs(out, exist_ok=True)
    path, truth = os.path.join(out, "truth.json"), {}
    if os.path.exists(path):
        with open(path) as file:
            truth = json.load(file)
    for source in options.runs:
        with open(os.path.join(source, "summary.json")) as file:
            found = json.load(file)["workloads"]
        for name in only:
            if name not in found:
                continue
            entry = truth[name] = entry_of(name, spec_of(name), found[name])
            for key in ("fault", "twin"):
                if entry[key] and not os.path.exists(os.path.join(source, entry[key])):
                    sys.exit(f"{source} has no {entry[key]}")
                if entry[key]:
                    command = [options.analyze, "slice", os.path.join(source, entry[key]), "--out", os.path.join(out, entry[key])]
                    subprocess.run([*command, "--redact", "all", "--force", "--quiet"], check=True)
    with open(path, "w") as file:
        json.dump(truth, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
