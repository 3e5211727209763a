"""Paired differences with their 95 % interval, and which repeat stands for all."""

import math
import statistics

# Student's t for two-sided 95 %, by degrees of freedom from 1 on.
T_95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
T_95 += [2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


def interval(differences):
    """Mean and 95 % interval of the mean; one difference has no interval, more than 31 have the normal one."""
    count = len(differences)
    if count == 0:
        return None
    mean = statistics.fmean(differences)
    if count == 1:
        return {"count": 1, "mean": mean, "low": None, "high": None}
    t = T_95[count - 2] if count - 2 < len(T_95) else 1.960
    half = t * statistics.stdev(differences) / math.sqrt(count)
    return {"count": count, "mean": mean, "low": mean - half, "high": mean + half}


def is_good(entry):
    return entry is not None and entry["outcome"] == "as planned"


def pairs(entries):
    """The fault and the twin of each repeat in which both ran as planned, and no loop ran beside one that is to be alone."""
    by_repeat = {}
    for entry in entries:
        by_repeat.setdefault(entry["repeat"], {})[entry["variant"]] = entry
    both = [(by_repeat[repeat].get("fault"), by_repeat[repeat].get("twin")) for repeat in sorted(by_repeat)]
    return [(fault, twin) for fault, twin in both if is_good(fault) and is_good(twin)]


def differences(entries):
    """The paired difference of the loops, of the processes' lives and of the runner's clock, in seconds."""
    found = {}
    for key in ("loop_s", "whole_s", "wall_s"):
        values = [f[key] - t[key] for f, t in pairs(entries) if f[key] is not None and t[key] is not None]
        found[key] = interval(values)
    return found


def median_repeat(entries):
    """The repeat whose difference is the median (the lower one of two), else whose loop is, else any; of its recordings the run keeps both."""

    def middle(keyed):
        keyed = sorted(keyed)
        return keyed[(len(keyed) - 1) // 2][1]

    paired = [(f["loop_s"] - t["loop_s"], f["repeat"]) for f, t in pairs(entries) if f["loop_s"] is not None and t["loop_s"] is not None]
    if paired:
        return middle(paired)
    good = [(entry["loop_s"] or 0, entry["repeat"]) for entry in entries if is_good(entry)]
    return middle(good) if good else max((entry["repeat"] for entry in entries), default=None)
