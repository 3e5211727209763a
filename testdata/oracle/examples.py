#!/usr/bin/env python3
"""The worked examples of "When does fragmentation occur in the CUDA caching allocator?" (PyTorch devlog, 2026-06-01),
run through the real allocator: `examples.py ORACLE VERSION DIR` writes DIR/tN.txt, with a snapshot after each step.
"""

import pathlib
import subprocess
import sys
import tempfile

# Sizes are allocated in MiB, "-N" frees the Nth of them, "s" takes a snapshot.
EXAMPLES = {
    "t1": (False, "32 s -1 16 s 16 s -2 s -3 s"),
    "t2": (False, "16 16 16 16 16 16 16 16 s -1 -2 -3 -4 -5 -6 -7 -8 s 32 32 32 32 s"),
    "t3": (False, "32 32 32 32 s -1 -2 -3 -4 s 16 16 16 16 16 16 16 16 s"),
    "t4": (True, "16 s 16 s 16 s 16 s 16 s 16 s 16 s 16 s"),
    "t5": (True, "16 16 16 16 16 16 16 16 s -1 -2 -3 -4 -5 -6 -7 -8 s 32 32 32 32 s"),
    "t6": (True, "16 16 16 16 s -1 -3 32 s -2 -4 -5 s 32 s"),
    "t7": (False, "2 -1 0.5 s"),
    "t7-expandable": (True, "2 -1 0.5 s"),
    "t8": (True, "2 -1 2 s"),
}


def main():
    oracle, version, folder = sys.argv[1:]
    for name, (expandable, steps) in EXAMPLES.items():
        lines, number = [], 0
        for step in steps.split():
            if step == "s":
                lines.append("s")
            elif step.startswith("-"):
                lines.append(f"f {step[1:]}")
            else:
                number += 1
                lines.append(f"a {number} {int(float(step) * (1 << 20))} 0")
        config = f"expandable_segments:{expandable}"
        with tempfile.TemporaryDirectory() as scratch:
            ops, out = pathlib.Path(scratch, "ops"), pathlib.Path(scratch, "out")
            ops.write_text("\n".join(lines) + "\n")
            environment = {"PYTORCH_CUDA_ALLOC_CONF": config, "FAKE_LOG": "/dev/null"}
            subprocess.run([oracle, ops, out], env=environment, check=True)
            pathlib.Path(folder, f"{name}.txt").write_text(f"C {version} {config}\n{out.read_text()}")


main()
