#!/usr/bin/env python3
"""How often the gates of `analyze compare` alarm, pass and leave undecided, on runs whose true change is known.

    cargo build --release --bin analyze
    python -m venv .venv && .venv/bin/pip install pyarrow numpy
    .venv/bin/python testdata/bench/compare/bench.py [--comparisons N] [--only TEXT] [ANALYZE] > testdata/bench/compare/results.md

Every comparison is one call of the program on two baselines, which are written as `analyze baseline save` writes them. A
generated run has 1,000 launches and 400 copies of two sizes, whose durations are log-normal (0.35 and 0.1); their sums, counts
and percentiles are its figures, of which a baseline has those that its gates and the account of the work need. All times of a run are multiplied by one random factor, the noise between runs. The draws depend
on the scenario, the number of runs and the number of the comparison only, so that a change of the program meets the same runs.
"""
import argparse, collections, concurrent.futures, json, os, pathlib, subprocess, tempfile, zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parents[3]
RUNS = (3, 5, 10, 20)
LAUNCH, COPY = "cuLaunchKernel", "cudaMemcpyAsync"
SMALL, LARGE = "h2d, 2^16 bytes", "h2d, 2^24 bytes"
SCHEMA = pa.schema([("run", pa.string()), ("metric", pa.string()), ("subject", pa.string()), ("stratum", pa.string()),
                    ("calls_count", pa.int64()), ("value", pa.float64())])
GATE_WALL = "wall_ns < +{limit}%"
DEFAULT = ["wall_ns", "launch_gap_ns", "calls_ns", "alloc_calls_count", "reserved_peak_bytes", "allocated_peak_bytes"]


def recorded():
    """Logarithms of the wall times of 18 unchanged runs on an H200, without their mean."""
    rows = pq.read_table(ROOT / "testdata/compare/none.baseline").to_pylist()
    walls = np.log([row["value"] for row in rows if row["metric"] == "wall_ns"])
    return walls - walls.mean()


RECORDED = recorded()


def factor(random, noise):
    """Draws the factor of a run's times; `noise` is a standard deviation or the name of a kind."""
    if noise == "bimodal":
        return np.exp(0.01 * random.standard_normal() + 0.06 * (random.random() < 0.3))
    if noise == "recorded":
        return np.exp(random.choice(RECORDED))
    return np.exp(noise * random.standard_normal())


def run(random, noise, whole=0.0, p99=0.0, large=0.0, launches=1000, larges=100, now_and_then=0.0):
    """Generates the figures of a run: a map from metric, subject and group to a value and its number of calls."""
    times = factor(random, noise) * (1 + whole) * (1 + now_and_then * (random.random() < 0.3))
    draw = lambda count, ns, spread: times * ns * np.exp(spread * random.standard_normal(count))
    launch, small, big = draw(launches, 1e4, 0.35), draw(300, 4e4, 0.1), draw(larges, 1e6, 0.1) * (1 + large)
    launch = np.where(launch > np.quantile(launch, 0.97), launch * (1 + p99), launch)
    figures = {}

    def calls(name, group, ns):
        figures["calls_count", name, group] = len(ns), len(ns)
        figures["calls_ns", name, group] = ns.sum(), len(ns)
        figures["p50_ns", name, group] = np.quantile(ns, 0.5), len(ns)
        if group is None:
            figures["p99_ns", name, None] = np.quantile(ns, 0.99), len(ns)

    calls(LAUNCH, None, launch)
    calls(COPY, None, np.concatenate([small, big]))
    calls(COPY, SMALL, small)
    calls(COPY, LARGE, big)
    total, gaps = launch.sum() + small.sum() + big.sum(), times * 8e8 * np.exp(0.001 * random.standard_normal())
    allocated = 2.0**30 * (1 + 0.001 * random.standard_normal())
    for metric, value in zip(DEFAULT, [total + gaps, gaps, total, 100 + random.integers(3),
                                       np.ceil(1.1 * allocated / 2**21) * 2**21, allocated]):
        figures[metric, None, None] = value, None
    figures["copied_bytes", "h2d", None] = 300 * 2.0**16 + larges * 2.0**24, None
    return figures


# Name, noise of the base and of the new runs, what changes in the new runs, gates with the true change of each in percent,
# and how many times as many runs the base has. `None`: the change differs from run to run.
Scenario = collections.namedtuple("Scenario", "name base new change gates times", defaults=(1,))


def scenarios():
    for noise in (0.005, 0.02, 0.05):
        for limit in (2, 5):
            for effect in (0, 2, 5, 10):
                yield Scenario(f"all calls +{effect} %, runs differ by {100 * noise:g} %", noise, noise,
                               {"whole": effect / 100}, [(GATE_WALL.format(limit=limit), effect)])
    for noise in ("bimodal", "recorded"):
        for effect in (0, 5, 10):
            yield Scenario(f"all calls +{effect} %, {noise} noise", noise, noise, {"whole": effect / 100},
                           [(GATE_WALL.format(limit=5), effect)])
    for effect in (0, 5, 10):
        yield Scenario(f"all calls +{effect} %, 4 times the runs in the base, which differ by 0.5 %, the new ones by 5 %",
                       0.005, 0.05, {"whole": effect / 100}, [(GATE_WALL.format(limit=2), effect)], 4)
    yield Scenario("3 new runs in 10 are 20 % slower", 0.01, 0.01, {"now_and_then": 0.2},
                   [(GATE_WALL.format(limit=2), 6)])
    yield Scenario("3 new runs in 10 are 20 % slower", 0.01, 0.01, {"now_and_then": 0.2}, [(GATE_WALL.format(limit=5), 6)])
    for effect in (5, 10, 20):
        yield Scenario(f"p99 of launches +{effect} %", 0.02, 0.02, {"p99": effect / 100},
                       [(f"p99({LAUNCH}) < +5%", effect), (f"p50({LAUNCH}) < +5%", 0), (GATE_WALL.format(limit=5), 0)])
    for effect in (5, 10):
        yield Scenario(f"large copies +{effect} %", 0.02, 0.02, {"large": effect / 100},
                       [(f"p50({COPY}; {LARGE}) < +5%", effect), (f"p50({COPY}; {SMALL}) < +5%", 0),
                        (f"p50({LAUNCH}) < +5%", 0)])
    # Means of log-normal durations are larger than their medians by this factor.
    mean = lambda spread: np.exp(spread**2 / 2)
    base, new = (count * 1e4 * mean(0.35) + (300 * 4e4 + larges * 1e6) * mean(0.1)
                 for count, larges in ((1000, 100), (900, 120)))
    yield Scenario("mix: 900 launches instead of 1,000, 120 large copies instead of 100", 0.02, 0.02,
                   {"launches": 900, "larges": 120},
                   [("calls_ns < +5%", 100 * (new / base - 1)), (f"p50({COPY}; {LARGE}) < +5%", 0),
                    (f"p50({LAUNCH}) < +5%", 0)])
    for limit in (2, 5):
        for effect in (0, 10):
            gates = [(f"{metric} < +{limit if metric.endswith('_ns') else 2}%", effect if metric.endswith("_ns") else 0)
                     for metric in DEFAULT]
            yield Scenario(f"all calls +{effect} %, runs differ by 2 %, six gates", 0.02, 0.02, {"whole": effect / 100}, gates)


def needed(run, scenario):
    metrics = {"calls_count", "copied_bytes"} | {gate.split("(")[0].split()[0].removesuffix("_ns") for gate, _ in scenario.gates}
    return {key: figure for key, figure in run.items() if {key[0], key[0].removesuffix("_ns")} & metrics}


def write(path, runs):
    rows = [(f"{path.stem}{number}", *key, count, float(value)) for number, run in enumerate(runs)
            for key, (value, count) in run.items()]
    columns = [pa.array(list(column), field.type) for column, field in zip(
        [[row[place] for row in rows] for place in (0, 1, 2, 3, 4, 5)], SCHEMA)]
    facts = {"producer": "bench", "lost_is_counted": True}
    head = {"version": 1, "runs": [(f"{path.stem}{number}", facts) for number in range(len(runs))]}
    schema = SCHEMA.with_metadata({"inquest.baseline": json.dumps(head)})
    pq.write_table(pa.table(columns, schema=schema), path)


def compare(analyze, scenario, count, number):
    """Returns the outcome of each gate of one comparison, and of all together, and whether the output says that the work differs."""
    random = np.random.default_rng([zlib.crc32(scenario.name.encode()), count, number])
    with tempfile.TemporaryDirectory() as folder:
        base, new = (pathlib.Path(folder) / f"{side}.baseline" for side in ("base", "new"))
        write(base, [needed(run(random, scenario.base), scenario) for _ in range(scenario.times * count)])
        write(new, [needed(run(random, scenario.new, **scenario.change), scenario) for _ in range(count)])
        gates = [argument for gate, _ in scenario.gates for argument in ("--gate", gate)]
        done = subprocess.run([*analyze, "compare", base, new, "--format", "json", *gates], capture_output=True, text=True)
    if done.returncode not in (0, 1, 3) or not done.stdout:
        raise SystemExit(f"{scenario.name}: {done.stderr}")
    found = json.loads(done.stdout)
    return [gate["outcome"] for gate in found["gates"]], found["outcome"], any(
        "different work" in caution for caution in found["cautions"])


def share(part, whole):
    return f"{100 * part / whole:.0f}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("analyze", nargs="*", default=[ROOT / "target/release/analyze"])
    arguments.add_argument("--comparisons", type=int, default=40)
    arguments.add_argument("--only", default="", help="scenarios whose name has this text")
    arguments = arguments.parse_args()
    totals, lines, said = collections.Counter(), collections.defaultdict(list), collections.defaultdict(list)
    jobs = [(scenario, count) for scenario in scenarios() if arguments.only in scenario.name for count in RUNS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        one = lambda job: [compare(arguments.analyze, *job, number) for number in range(arguments.comparisons)]
        for (scenario, _), found in zip(jobs, pool.map(one, jobs)):
            judged = [(gate, truth, [outcomes[place] for outcomes, *_ in found])
                      for place, (gate, truth) in enumerate(scenario.gates)]
            if len(judged) == len(DEFAULT):
                # Of the usual gates the outcome of all counts, which is the most severe.
                limits = "times < +{}, others < +2%".format(judged[0][0].split("+")[1])
                judged = [(limits, judged[0][1], [outcome for _, outcome, _ in found])]
            for gate, truth, outcomes in judged:
                limit = float(gate.split("+")[1].split("%")[0])
                kind = "none" if truth == 0 else "within" if truth < limit else "beyond" if truth > limit else "at"
                number = collections.Counter(outcomes)
                alarms, passes = number["regression"], number["pass"]
                totals[kind] += len(outcomes)
                totals[kind, "alarms"] += alarms
                totals[kind, "passes"] += passes
                row = scenario.name, gate, f"{truth:+.0f} %" if truth else "none"
                lines[row].append(" / ".join(share(part, len(outcomes)) for part in (alarms, passes)))
                said[row] += [says for *_, says in found]
    print(f"""# What bench.py measured

{arguments.comparisons} comparisons a cell and gate. An alarm is a regression, and what is neither an alarm nor a pass is undecided. All gates together, by what is
true of the gate's figure:
""")
    print("| true change | comparisons | alarms | passes | undecided |\n|---|--:|--:|--:|--:|")
    for kind, name in (("none", "none"), ("within", "within the limit"), ("at", "the limit itself"), ("beyond", "beyond the limit")):
        all_of, alarms, passes = totals[kind], totals[kind, "alarms"], totals[kind, "passes"]
        if not all_of:
            continue
        rest = all_of - alarms - passes
        print(f"| {name} | {all_of:,} | {100 * alarms / all_of:.1f} % | {100 * passes / all_of:.1f} % | {100 * rest / all_of:.1f} % |")
    print("""
The share of alarms / passes in percent, by the number of runs a side, and how often the output says that the sides do different work. Three runs a side
are compared by another test than five and more. A limit of 2 % or 5 % is compared with a true change of exactly that amount, too: an estimate is beyond it
in half of the comparisons. In "4 times the runs in the base" the number is that of the new runs.
""")
    print("| what differs | gate | true change | " + " | ".join(f"{count} runs" for count in RUNS) + " | different work |")
    print("|---|---|--:|" + "--:|" * len(RUNS) + "--:|")
    for row, cells in lines.items():
        print(f"| {' | '.join(row)} | {' | '.join(cells)} | {share(sum(said[row]), len(said[row]))} |")


if __name__ == "__main__":
    main()
