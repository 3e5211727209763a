"""Records every workload of plan.py under `capture`, with its fault and as its twin, in pairs, and writes summary.json.

Usage: run.py CAPTURE OUT [--repeats N] [--only NAME]... [--cores 0-15] [--lanes 4,4,2,2,2] [--budget SECONDS] … (--help)

CAPTURE is the path of `capture`, or `none`: then nothing is recorded. First the workloads that can share the GPU run, in lanes with cores of
their own, then one after the other those that cannot. Repeats go round: each workload has its first pair before one has its second.
OUT receives NAME.fault.parquet and NAME.twin.parquet of the median repeat, NAME.VARIANT.log of every workload, and summary.json.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import paired
from plan import DRY, PLAN, STUB, is_healthy, spec_of

HERE = os.path.dirname(os.path.abspath(__file__))
# What a pair takes before one has been measured, and what a run is given to end by itself after SIGTERM.
EXPECTED_S, GRACE_S = 26, 6
LOG_BYTES = 3000


def cores_of(text):
    cores = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def lanes_of(cores, widths):
    """Splits the cores into lanes of these widths; what is left is the recorders' and the runner's."""
    lanes, at = [], 0
    for width in widths:
        lanes.append(cores[at : at + width])
        at += width
    if at > len(cores):
        sys.exit(f"lanes of {at} cores in all do not fit into {len(cores)}")
    return lanes, cores[at:] or cores


def first_fitting(queue, width, busy):
    """Takes the first job that the lane is wide enough for and that no lane runs already; among those of one repeat, the widest."""
    fitting = [job for job in queue if spec_of(job[0]).cores <= width and job[0] not in busy]
    if not fitting:
        return None
    repeat = fitting[0][1]
    job = max((job for job in fitting if job[1] == repeat), key=lambda job: spec_of(job[0]).cores)
    queue.remove(job)
    return job


class Runner:
    def __init__(self, options, deadline):
        self.options, self.deadline = options, deadline
        self.entries, self.lock, self.took, self.skipped = [], threading.Lock(), {}, []
        self.scratch = options.scratch or tempfile.mkdtemp(prefix="faults-")
        os.makedirs(self.scratch, exist_ok=True)
        self.recordings = os.path.join(self.scratch, "recordings")
        os.makedirs(self.recordings, exist_ok=True)

    def helpers(self, spec, variant, core):
        """Starts the processes beside the run, if it has any: before it, and outside of the recording."""
        if variant != "fault" or not spec.helper:
            return []
        if spec.helper == "hogs":
            hog = [sys.executable, os.path.join(HERE, "..", "cpu_hog.py"), str(core)]
            return [subprocess.Popen(hog, start_new_session=True) for _ in range(3)]
        command = [sys.executable, os.path.join(HERE, "neighbour.py"), str(self.options.neighbour_gib)]
        helper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        line = helper.stdout.readline().strip()
        if line != "ready":
            raise RuntimeError(f"the neighbour has no memory: exit code {helper.wait()}")
        return [helper]

    def one(self, name, variant, repeat, cores, recorder_cores, began):
        """One run, from its start to its entry in the summary; `began` is set when its loop begins, or when it has ended."""
        spec, options = spec_of(name), self.options
        stem = os.path.join(self.recordings, f"{name}.{variant}.{repeat}")
        command = [sys.executable, *(["-X", "perf"] if spec.stacks else []), os.path.join(HERE, "workload.py"), name, variant]
        command += ["--scale", str(options.scale), "--cores", ",".join(map(str, cores)), "--scratch", self.scratch]
        command += ["--marks"] if options.marks else []
        if options.capture != "none":
            extra = [*(["--stacks", "alloc"] if spec.stacks else []), *options.capture_options.split()]
            recorder = [options.capture, "--quiet", "--force", "--buffer", "32MiB", "--nvml", "off" if options.stub else "200ms"]
            command = [*recorder, "--profile", options.profile, *extra, "--out", f"{stem}.parquet", "--", *command]
        # Compilers begin with empty caches, each time.
        caches = tempfile.mkdtemp(prefix="caches-", dir=self.scratch)
        env = {**os.environ, **dict(spec.env), "PYTHONUNBUFFERED": "1", "TORCHINDUCTOR_CACHE_DIR": caches}
        env["INQUEST_STUB"] = options.stub or ""
        env["TRITON_CACHE_DIR"] = os.path.join(caches, "triton")
        helpers, timed_out, status = [], False, None
        start = time.monotonic()
        try:
            helpers = self.helpers(spec, variant, cores[0])
            start = time.monotonic()
            with open(f"{stem}.out", "wb") as out, open(f"{stem}.err", "wb") as err:
                process = subprocess.Popen(command, stdout=out, stderr=err, env=env, start_new_session=True)
                os.sched_setaffinity(process.pid, recorder_cores)
                status, timed_out = self.wait(process, f"{stem}.out", began)
        finally:
            wall_s = time.monotonic() - start
            began.set()
            for helper in helpers:
                helper.kill()
                helper.wait()
            shutil.rmtree(caches, ignore_errors=True)
        return self.entry(name, variant, repeat, stem, wall_s, status, timed_out)

    def wait(self, process, out, began):
        """The exit status, and whether the time was up: then SIGTERM, so that the recording is whole, and in the end SIGKILL."""
        end, timed_out = time.monotonic() + self.options.timeout, False
        while process.poll() is None:
            if not began.is_set():
                with open(out, "rb") as file:
                    if b'{"loop"' in file.read(4096):
                        began.set()
            if time.monotonic() > end:
                os.killpg(process.pid, signal.SIGKILL if timed_out else signal.SIGTERM)
                timed_out, end = True, time.monotonic() + GRACE_S
            time.sleep(0.02)
        try:
            # What the run has left behind.
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return process.returncode, timed_out

    def entry(self, name, variant, repeat, stem, wall_s, status, timed_out):
        with open(f"{stem}.out", errors="replace") as file:
            lines = [line for line in file if line.startswith('{"workload"')]
        said = json.loads(lines[-1]) if lines else {}
        with open(f"{stem}.err", errors="replace") as file:
            log = file.read()
        expect = spec_of(name).expect if variant == "fault" else ""
        error = said.get("error")
        if timed_out:
            outcome = "timed out"
        elif not said:
            outcome = "said nothing"
        elif bool(error) != bool(expect) or (expect and expect not in error):
            outcome = "not as planned"
        elif self.options.capture != "none" and not os.path.exists(f"{stem}.parquet"):
            outcome = "not recorded"
        else:
            outcome = "as planned"
        keys = ("loop_s", "whole_s", "begin_ns", "end_ns", "steps", "planted", "figures", "cores", "error", "ended_by")
        entry = {"workload": name, "variant": variant, "repeat": repeat, "outcome": outcome, "status": status, "wall_s": wall_s}
        entry.update({key: said.get(key) for key in keys})
        if os.path.exists(f"{stem}.parquet"):
            entry["recording_bytes"] = os.path.getsize(f"{stem}.parquet")
        if log.strip():
            # Of the last repeat that said anything.
            with open(os.path.join(self.options.out, f"{name}.{variant}.log"), "w") as file:
                file.write(log if len(log) <= LOG_BYTES else f"{log[: LOG_BYTES // 2]}\n…\n{log[-LOG_BYTES // 2 :]}")
        with self.lock:
            self.entries.append(entry)
            loop = "-" if entry["loop_s"] is None else f"{entry['loop_s']:.2f}"
            size = entry.get("recording_bytes", 0) >> 10
            print(f"{name} {variant} {repeat}: {outcome}, loop {loop} s, wall {wall_s:.1f} s, {size} KiB {error or ''}"[:200], flush=True)
        return entry

    def guarded(self, name, variant, repeat, cores, recorder_cores, began):
        """A run that cannot even be started is an entry, too, and ends no other."""
        try:
            self.one(name, variant, repeat, cores, recorder_cores, began)
        except Exception as error:
            began.set()
            entry = {"workload": name, "variant": variant, "repeat": repeat, "outcome": "not started", "error": repr(error)}
            entry.update(dict.fromkeys(("loop_s", "whole_s", "wall_s", "begin_ns", "end_ns", "status")))
            with self.lock:
                self.entries.append(entry)
                print(f"{name} {variant} {repeat}: not started: {error!r}", flush=True)

    def variants(self, name, repeat):
        if is_healthy(name):
            return ["twin"]
        order = ["fault", "twin"] if repeat % 2 == 0 else ["twin", "fault"]
        return [variant for variant in order if variant in self.options.variants]

    def has_time(self, name, repeat, deadline):
        """Whether a pair would end in time; a first pair may begin while there is any."""
        with self.lock:
            expected = self.took.get(name, EXPECTED_S)
        if time.monotonic() + (0 if repeat == 0 else expected) <= deadline:
            return True
        with self.lock:
            self.skipped.append(f"{name} {repeat}")
        return False

    def shared(self, jobs, lanes, recorder_cores, deadline):
        """Runs the jobs in the lanes, a pair after the other in each."""
        queue, busy = list(jobs), set()

        def lane(cores):
            while True:
                with self.lock:
                    job = first_fitting(queue, len(cores), busy)
                    is_over = not any(spec_of(name).cores <= len(cores) for name, _ in queue)
                    if job is not None:
                        busy.add(job[0])
                if job is None:
                    if is_over:
                        return
                    time.sleep(0.1)
                    continue
                if not self.has_time(*job, deadline):
                    with self.lock:
                        busy.discard(job[0])
                    continue
                start = time.monotonic()
                for variant in self.variants(*job):
                    self.guarded(job[0], variant, job[1], cores, recorder_cores, threading.Event())
                with self.lock:
                    self.took[job[0]] = time.monotonic() - start
                    busy.discard(job[0])

        threads = [threading.Thread(target=lane, args=(cores,)) for cores in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def alone(self, jobs, lanes, recorder_cores, deadline):
        """Runs the jobs' loops one at a time: a process starts up while the loop before runs, unless one of the two is exclusive."""
        running, number = [], 0
        for name, repeat in jobs:
            if not self.has_time(name, repeat, deadline):
                continue
            with self.lock:
                self.took.setdefault(name, EXPECTED_S / 2)
            for variant in self.variants(name, repeat):
                is_exclusive = spec_of(name).exclusive
                for thread, began, was_exclusive in running[:-1]:
                    thread.join()
                for thread, began, was_exclusive in running[-1:]:
                    if is_exclusive or was_exclusive or self.options.no_overlap:
                        thread.join()
                    else:
                        began.wait()
                running = [each for each in running if each[0].is_alive()]
                # Two lanes at most are in use, the two that are widest.
                cores, began = lanes[number % min(2, len(lanes))], threading.Event()
                thread = threading.Thread(target=self.guarded, args=(name, variant, repeat, cores, recorder_cores, began))
                thread.start()
                running.append((thread, began, is_exclusive))
                number += 1
        for thread, _, _ in running:
            thread.join()

    def overlaps(self):
        """Of each run that is to be alone: for how long another's loop ran beside its own. Beyond 2 % it is out of the figures."""
        timed = [entry for entry in self.entries if entry["begin_ns"] and entry["end_ns"]]
        for entry in timed:
            others = [other for other in timed if other is not entry]
            shared = [min(entry["end_ns"], o["end_ns"]) - max(entry["begin_ns"], o["begin_ns"]) for o in others]
            entry["overlap_s"] = sum(max(0, ns) for ns in shared) / 1e9
            is_disturbed = entry["overlap_s"] > 0.02 * (entry["loop_s"] or 0)
            if spec_of(entry["workload"]).alone and is_disturbed and entry["outcome"] == "as planned":
                entry["outcome"] = "disturbed"

    def summary(self, names, seconds):
        self.overlaps()
        faults = {}
        for name in names:
            entries = [entry for entry in self.entries if entry["workload"] == name]
            kept = paired.median_repeat(entries)
            for entry in entries:
                stem = os.path.join(self.recordings, f"{name}.{entry['variant']}.{entry['repeat']}")
                if entry["repeat"] == kept and os.path.exists(f"{stem}.parquet"):
                    shutil.copy(f"{stem}.parquet", os.path.join(self.options.out, f"{name}.{entry['variant']}.parquet"))
            good = [entry for entry in entries if paired.is_good(entry)]
            planted = next((entry["planted"] for entry in good if entry["variant"] == "fault"), None)
            faults[name] = {
                "timed": spec_of(name).timed,
                "planted": planted,
                "kept_repeat": kept,
                "difference": paired.differences(entries),
                "runs": sorted(entries, key=lambda entry: (entry["repeat"], entry["variant"])),
            }
        settings = {key: value for key, value in vars(self.options).items() if key not in ("capture", "out", "scratch")}
        return {"settings": settings, "seconds": seconds, "skipped": self.skipped, "workloads": faults}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture")
    parser.add_argument("out")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of each workload whose fault costs time; the others have --others")
    parser.add_argument("--others", type=int, default=1, help="pairs of each other workload")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this workload (repeatable, or with commas)")
    parser.add_argument("--variants", default="fault,twin")
    parser.add_argument("--cores", default=f"0-{(os.cpu_count() or 1) - 1}")
    parser.add_argument("--lanes", default="4,4,2,2,2", help="cores of each lane; what is left over is the recorders'")
    parser.add_argument("--alone-lanes", default="4,4", help="cores of the two lanes of workloads that do not share the GPU")
    parser.add_argument("--phase", choices=["all", "shared", "alone"], default="all")
    parser.add_argument("--shared-part", type=float, default=0.55, help="the part of the budget after which no shared repeat begins")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which no repeat begins that would not end by then")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a run is ended")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--profile", default="default")
    parser.add_argument("--capture-options", default="", help="more options for capture, as one text")
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("--no-overlap", action="store_true", help="let no process start up while another's loop is to be alone")
    parser.add_argument("--stub", metavar="DIR", help="run the workloads without a GPU, on the stub's libraries in this folder")
    parser.add_argument("--neighbour-gib", type=int, default=100)
    parser.add_argument("--scratch", help="a folder on a disk, for all recordings and the loader's files; it is not removed")
    options = parser.parse_args(arguments)
    options.only = [name for part in options.only for name in part.split(",")]
    unknown = [name for name in options.only if name not in {**PLAN, **STUB, **DRY}]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}")
    options.variants = options.variants.split(",")
    return options


def jobs_of(names, options):
    """Pairs, a round at a time."""
    repeats = {name: options.repeats if spec_of(name).timed else options.others for name in names}
    return [(name, turn) for turn in range(max(repeats.values(), default=0)) for name in names if turn < repeats[name]]


def main():
    options = parse(sys.argv[1:])
    start = time.monotonic()
    deadline = start + options.budget
    if options.capture != "none":
        options.capture = os.path.abspath(options.capture)
    options.out = os.path.abspath(options.out)
    os.makedirs(options.out, exist_ok=True)
    names = options.only or list(STUB if options.stub else PLAN)
    cores = cores_of(options.cores)
    runner = Runner(options, deadline)
    alone = [name for name in names if spec_of(name).alone]
    shared = [name for name in names if not spec_of(name).alone]
    try:
        if options.phase != "alone" and shared:
            lanes, recorders = lanes_of(cores, [int(width) for width in options.lanes.split(",")])
            widest = max(len(lane) for lane in lanes)
            too_wide = [name for name in shared if spec_of(name).cores > widest]
            if too_wide:
                sys.exit(f"no lane has cores enough for {', '.join(too_wide)}")
            part = options.shared_part if options.phase == "all" and alone else 1
            runner.shared(jobs_of(shared, options), lanes, recorders, start + part * options.budget)
        if options.phase != "shared" and alone:
            lanes, recorders = lanes_of(cores, [int(width) for width in options.alone_lanes.split(",")])
            runner.alone(jobs_of(alone, options), lanes, recorders, deadline)
        summary = runner.summary([name for name in names if any(e["workload"] == name for e in runner.entries)], time.monotonic() - start)
        with open(os.path.join(options.out, "summary.json"), "w") as file:
            json.dump(summary, file, indent=1)
    finally:
        if not options.scratch:
            shutil.rmtree(runner.scratch, ignore_errors=True)
    for name, found in summary["workloads"].items():
        loop = found["difference"]["loop_s"]
        if loop and loop["low"] is not None:
            print(f"{name}: {loop['mean']:+.2f} s, 95 % {loop['low']:+.2f} to {loop['high']:+.2f}, {loop['count']} pairs")
    bad = [entry for entry in runner.entries if entry["outcome"] not in ("as planned", "disturbed")]
    print(f"{len(runner.entries)} runs in {summary['seconds']:.0f} s, {len(bad)} not as planned, {len(runner.skipped)} repeats skipped")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
