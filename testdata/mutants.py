#!/usr/bin/env python3
"""Changes the code in a sample of places, one at a time, and runs the tests beside it: a test must fail each time.

    cargo install --locked cargo-mutants cargo-nextest
    testdata/mutants.py --list                                # which changes there may be: see .cargo/mutants.toml
    testdata/mutants.py --count 20 --seed 7                   # twenty of them; the seed decides which
    testdata/mutants.py --only analyze/verdict --count 50     # of files under this path
    testdata/mutants.py --in-place                            # on the working tree itself, which saves building it again

The changes that no test noticed are in mutants.out/missed.txt. For each of them a test is missing, or the code does nothing.
Exit codes are those of cargo-mutants: 0 all were noticed, 2 some were missed, 3 a test did not end, 4 the tests fail anyway.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def candidates(only):
    """Every change that the configuration allows in files under one path, in a fixed order."""
    listed = subprocess.run(["cargo", "mutants", "--level=error", "--list", "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return sorted(mutant["name"] for mutant in json.loads(listed.stdout) if mutant["file"].startswith(only))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="number of changes")
    parser.add_argument("--seed", type=int, default=1, help="which changes are taken")
    parser.add_argument("--only", default="", metavar="PATH", help="only changes in files whose path begins so")
    parser.add_argument("--list", action="store_true", help="print the sample, and run nothing")
    parser.add_argument("--in-place", action="store_true", help="change the working tree itself, and change it back")
    options = parser.parse_args()

    names = candidates(options.only)
    if not names:
        sys.exit(f"no file under {options.only!r} may be changed")
    chosen = sorted(random.Random(options.seed).sample(names, min(options.count, len(names))))
    print(f"{len(chosen)} of {len(names)} changes, seed {options.seed}", file=sys.stderr)
    if options.list:
        print("\n".join(chosen))
        return
    command = ["cargo", "mutants", "--no-times", "--colors=never"]
    command += ["--in-place"] if options.in_place else []
    command += [f"--re=^{re.escape(name)}$" for name in chosen]
    sys.exit(subprocess.run(command, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
