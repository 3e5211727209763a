#!/usr/bin/env python3
"""`analyze leaks` on recorded jobs with a leak and without, scored against what the jobs themselves wrote down.

    testdata/record/leaks.sh CAPTURE DIR 50              # on a GPU machine: leak-N and no_leak-N, with .state.json
    testdata/bench/leaks/score.py ANALYZE DIR --out testdata/bench/leaks/results.md

Needs nothing but Python. A leak is found if the verdict is `leak`, and its site is if most blocks of the first leaking site are blocks that
the job has leaked. Every block of a leaking site is compared: what is not the leak's counts against precision, what is missing against recall.
"""

import argparse
import collections
import json
import pathlib
import statistics
import subprocess


def analyze(program, *words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def blocks_of(program, path, growth, site):
    """Addresses of the old blocks of a site, from the view of blocks: not the way in which `analyze leaks` has counted them."""
    bounds = growth["epochs"]["bounds_ns"]
    query = f"""
        SELECT addr FROM memory_blocks WHERE state = 'active_allocated' AND pid = {growth["pid"]} AND device = {growth["device"]}
        AND size_bytes BETWEEN {site["smallest_bytes"]} AND {site["largest_bytes"]} AND coalesce(stream, 0) = {site["stream"] or 0}
        AND alloc_ts >= {bounds[growth["warm_up_count"]]} AND alloc_ts < {bounds[len(bounds) - 1 - site["horizon_epochs"]]}
        AND (dur IS NULL OR ts + dur >= {bounds[-1]})"""
    found = {json.loads(line)["addr"] for line in analyze(program, "sql", str(path), query, "--format", "ndjson").splitlines()}
    if site["tid"] is not None:
        assert len(found) == site["blocks_count"], f"{path}: {len(found)} blocks, not {site['blocks_count']}"
    return found


def account_adds_up(growth):
    a = growth["account"]
    total = a["before_bytes"] - a["given_back_bytes"] + a["leaked_bytes"] + a["kept_once_bytes"] + a["young_bytes"]
    old = sum(site["blocks_bytes"] for site in growth["sites"])
    return (
        total == a["after_bytes"] == growth["points"][-1]["live_bytes"]
        and a["not_attributed_bytes"] == 0
        and old == a["leaked_bytes"] + a["kept_once_bytes"]
    )


def score(program, path, options):
    state = json.loads(path.with_name(path.name.replace(".parquet", ".state.json")).read_text())
    (growth,) = json.loads(analyze(program, "leaks", str(path), "--json", *options))["allocators"]
    # Addresses are used again, but not those of blocks that are alive.
    true = {address for address, _ in state["leak"]["blocks"]}
    leaks = [site for site in growth["sites"] if site["is_leak"]]
    found = [blocks_of(program, path, growth, site) for site in leaks]
    every = set().union(*found)
    # What PyTorch said after the last epoch.
    said = state["marks"][-1]["stats"]["allocated_bytes.all.current"]
    return {
        "run": path.stem,
        "verdict": growth["verdict"],
        "reasons": growth["reasons"],
        "sites": len(leaks),
        "site_found": bool(found) and len(found[0] & true) * 2 > len(found[0]),
        "blocks": len(every),
        "right": len(every & true),
        "true": len(true),
        "true_bytes": sum(size for _, size in state["leak"]["blocks"]),
        "leaked_bytes": growth["account"]["leaked_bytes"],
        "adds_up": account_adds_up(growth),
        "as_pytorch_said": said == growth["account"]["after_bytes"],
    }


def table(scores, which, ends_at_marks):
    mine = [one for one in scores if one["run"].startswith(which)]
    verdicts = collections.Counter(one["verdict"] for one in mine)
    lines = [
        f"## {len(mine)} jobs {'with' if which == 'leak' else 'without'} a leak",
        "",
        "| | |",
        "|---|---|",
        *(f"| verdict `{verdict}` | {count} |" for verdict, count in verdicts.most_common()),
    ]
    if which == "leak":
        found = [one for one in mine if one["blocks"]]
        blocks, right = sum(one["blocks"] for one in found), sum(one["right"] for one in found)
        true = sum(one["true"] for one in mine)
        recalls = [one["right"] / one["true"] for one in mine]
        lines += [
            f"| of the first leaking site, most blocks are the leak's | {sum(one['site_found'] for one in mine)} |",
            f"| leaking sites per job | {min(one['sites'] for one in mine)} to {max(one['sites'] for one in mine)} |",
            f"| blocks of leaking sites that are the leak's (precision) | {right} of {blocks}: {right / max(blocks, 1):.4f} |",
            f"| blocks of the leak that are among them (recall) | {right} of {true}: {right / true:.4f} |",
            f"| the same per job: least, median | {min(recalls):.3f}, {statistics.median(recalls):.3f} |",
        ]
    lines += [
        f"| the account adds up to the byte | {sum(one['adds_up'] for one in mine)} |",
    ]
    # PyTorch was asked after each marked epoch.
    if ends_at_marks:
        lines.append(f"| live at its end is what PyTorch said | {sum(one['as_pytorch_said'] for one in mine)} |")
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.glob("*leak-*.parquet"))
    lines = ["# What score.py found", ""]
    for title, options in [("its marks", []), ("equal numbers of allocations, as if there were no marks", ["--epochs", "allocations"])]:
        lines += [f"# Epochs: {title}", ""]
        scores = [score(arguments.program, path, options) for path in paths]
        lines += [*table(scores, "leak", not options), *table(scores, "no_leak", not options)]
        for one in scores:
            leaks = one["run"].startswith("leak")
            if (one["verdict"] == "leak") != leaks or not one["adds_up"] or leaks and (not one["site_found"] or one["right"] < one["blocks"]):
                lines.append(f"- {one['run']}: {one['verdict']}, {one['right']} of {one['blocks']} blocks right; {'; '.join(one['reasons'])}")
        lines.append("")
    text = "\n".join(lines).rstrip() + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
