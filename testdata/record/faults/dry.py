"""Workloads without a GPU, for tests of the runner."""

import time


def dry_slow(run):
    run.plant(seconds_a_step=0.02)
    with run.loop():
        for _ in run.each(10):
            time.sleep(0.03 if run.fault else 0.01)


dry_alone = dry_slow


def dry_fails(run):
    with run.loop():
        for number in run.each(10):
            if run.fault and number == 1:
                raise RuntimeError("planted")


def dry_broken(run):
    raise ImportError("no such thing")


def dry_hangs(run):
    with run.loop():
        for _ in run.each(1000 if run.fault else 2):
            time.sleep(0.5)
