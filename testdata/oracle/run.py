#!/usr/bin/env python3
"""Random workloads for PyTorch's real allocator, and whether the replay of its events tells what it told.

    run.py ORACLE 2.11.0 --count 2000 --keep DIR

ORACLE is a program that runs `libc10_cuda.so` over a CUDA runtime without a device: `ORACLE OPS OUT`. OPS has one
operation a line:

    a ID BYTES STREAM   allocate on stream 0 (default) .. 3     f ID   free it
    A ID BYTES          allocate through a tensor's pointer     F ID   drop it     r ID STREAM   use it on 1 .. 3
    q 0|1               whether work on the GPU has ended       e      empty_cache        s      snapshot
    p POOL              make a private pool     u POOL  allocate from it from now on      x POOL until here
    D POOL              destroy it, as the destructor of a MemPool does

OUT gets `S addr total stream is_large is_expandable size:requested:state…` per segment and `T name=value…` at each
snapshot, and at the end `E action addr size stream` for every event, with the two numbers of its pool if ORACLE knows them. `PYTORCH_CUDA_ALLOC_CONF` and FAKE_CAP, the
bytes of the device, come from the environment. Each result is kept as DIR/N.txt with the version and the settings in its first line;
then `INQUEST_ORACLE=DIR cargo nextest run -p analyze oracle` compares them all with the replay.

With --pairs each workload runs twice, with other settings (DIR/N-a.txt, DIR/N-b.txt): what `analyze what-if` says of the
second from the first is compared by `INQUEST_PAIRS=DIR`. No event tells of an empty_cache; here each is between two
snapshots, and a line `X K` says that it followed the Kth, from 0. `M` has the bytes of the device that can be
allocated, `D` all of them. With --addresses each run of a pair has other addresses (FAKE_SEED), as processes
on a device have; without, segments lie in the order in which they are reserved. With --other-program the second run has other settings and no empty_cache.
With --private-pools, parts of the workload allocate from up to three of them. With --limited, too, settings limit the process and collect unused segments; none rounds
sizes up, because the event of a request that failed has its rounded size.
"""

import argparse
import os
import pathlib
import random
import subprocess
import tempfile

MIB = 1 << 20
SIZES = [64, 512, 4096, 100_000, 900_000, MIB, MIB + 1, 3 * MIB, 9 * MIB, 11 * MIB, 25 * MIB, 70 * MIB, 300 * MIB]
DEVICE_BYTES = 80 << 30
DIVISIONS = ["1", "2", "4", "8", "16", "[256:1,512:2,1024:4,>:8]", "[1:8,64:2,>:1]"]


def settings(chance):
    words = [f"expandable_segments:{chance.choice([True, False])}"]
    if chance.random() < 0.4:
        words.append(f"max_split_size_mb:{chance.choice([21, 32, 64, 128, 512])}")
    if chance.random() < 0.4:
        words.append(f"roundup_power2_divisions:{chance.choice(DIVISIONS)}")
    return ",".join(words)


def limited(chance):
    words = [word for word in settings(chance).split(",") if word.startswith(("expandable", "max_split"))]
    limit_bytes = chance.choice([100, 200, 600]) * MIB
    words.append(f"per_process_memory_fraction:{limit_bytes / DEVICE_BYTES:.6f}")
    if chance.random() < 0.7:
        words.append(f"garbage_collection_threshold:{chance.choice([0.2, 0.5, 0.8])}")
    return ",".join(words)


def change_of_pools(chance, pools, used):
    """An operation on private pools, and the pool that is in use after it."""
    if used:
        return [f"x {used}"], None
    if pools and chance.random() < 0.2:
        return [f"D {pools.pop(chance.randrange(len(pools)))}"], None
    made = []
    if len(pools) < 3:
        pools.append(chance.randrange(1, 1 << 30))
        made = [f"p {pools[-1]}"]
    used = chance.choice(pools)
    return made + [f"u {used}"], used


def workload(chance, length, has_tensors, has_pools=False):
    lines, raw, tensors, pools, used = [], [], [], [], None
    next_id = 0
    limit = chance.choice(SIZES[3:])
    sizes = [size for size in SIZES if size <= limit]
    for _ in range(length):
        if has_pools and chance.random() < 0.03:
            changed, used = change_of_pools(chance, pools, used)
            lines += changed
        dice = chance.random()
        if dice < 0.34 or not (raw or tensors):
            next_id += 1
            size = chance.randint(1, chance.choice(sizes))
            if chance.random() < 0.5:
                size = chance.choice(sizes)
            lines.append(f"a {next_id} {size} {chance.choice([0, 0, 0, 1, 2, 3])}")
            raw.append(next_id)
        elif dice < 0.5 and has_tensors:
            next_id += 1
            lines.append(f"A {next_id} {chance.randint(1, chance.choice(sizes))}")
            tensors.append(next_id)
        elif dice < 0.75 and raw:
            lines.append(f"f {raw.pop(chance.randrange(len(raw)))}")
        elif dice < 0.82 and tensors:
            lines.append(f"r {chance.choice(tensors)} {chance.randint(1, 3)}")
        elif dice < 0.93 and tensors:
            lines.append(f"F {tensors.pop(chance.randrange(len(tensors)))}")
        elif dice < 0.95:
            lines.append(f"q {chance.randint(0, 1)}")
        elif dice < 0.96:
            lines.append("e")
        elif dice < 0.98:
            lines.append("s")
    return lines + ([f"x {used}"] if used else []) + ["q 1", "s", "e", "s"]


def run(oracle, version, config, lines, cap_bytes, out, seed=None):
    with tempfile.TemporaryDirectory() as folder:
        ops = pathlib.Path(folder, "ops")
        ops.write_text("\n".join(lines) + "\n")
        result = pathlib.Path(folder, "out")
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": config, "FAKE_CAP": str(cap_bytes)}
        environment |= {"FAKE_TOTAL": str(DEVICE_BYTES), "FAKE_LOG": os.devnull}
        environment |= {"FAKE_SEED": str(seed)} if seed is not None else {}
        subprocess.run([oracle, ops, result], env=environment, check=True, timeout=60)
        out.write_text(f"C {version} {config}\n{result.read_text()}")


def in_snapshots(lines):
    """The same, with each empty_cache between snapshots; and the lines `X K`."""
    found, notes, snapshots = [], [], 0
    for line in lines:
        if line == "e":
            notes.append(f"X {snapshots}")
            found += ["s", "e", "s"]
            snapshots += 2
        else:
            found.append(line)
            snapshots += line == "s"
    return found, notes


def run_pair(arguments, number):
    chance = random.Random(number)
    chosen = limited if arguments.limited else settings
    configs = [chosen(chance), chosen(chance)]
    cap_bytes = DEVICE_BYTES if arguments.limited else chance.choice([80 << 30, 600 * MIB, 200 * MIB, 100 * MIB])
    length = arguments.length or chance.randint(50, 1500)
    has_tensors = cap_bytes > 4 << 30 and not arguments.limited
    lines, notes = in_snapshots(workload(chance, length, has_tensors, arguments.private_pools))
    notes += [f"M {cap_bytes}", f"D {DEVICE_BYTES}"]
    for place, (letter, config) in enumerate(zip("ab", configs)):
        out = arguments.keep / f"{number}-{letter}.txt"
        seed = 2 * number + place if arguments.addresses else None
        has_calls = letter == "a" or not arguments.other_program
        ops = lines if has_calls else [line for line in lines if line != "e"]
        run(arguments.oracle.resolve(), arguments.torch_version, config, ops, cap_bytes, out, seed)
        told = notes if has_calls else [note for note in notes if note[0] != "X"]
        out.write_text(out.read_text() + "\n".join(told) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=pathlib.Path)
    parser.add_argument("torch_version", help="the library's, as 2.11.0")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--length", type=int, default=0, help="operations of a workload (default: 50 to 1500)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--limited", action="store_true")
    parser.add_argument("--addresses", action="store_true")
    parser.add_argument("--other-program", action="store_true")
    parser.add_argument("--private-pools", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.seed, arguments.seed + arguments.count):
        if arguments.pairs:
            try:
                run_pair(arguments, number)
            except subprocess.CalledProcessError as error:
                # PyTorch miscounts the expandable segments of destroyed pools, and ends at an assertion or crashes.
                print(f"{number}: left out, the allocator ended with {error.returncode}")
                [path.unlink() for path in arguments.keep.glob(f"{number}-[ab].txt")]
            continue
        chance = random.Random(number)
        config = settings(chance)
        cap_bytes = chance.choice([80 << 30, 80 << 30, 2 << 30, 600 * MIB, 200 * MIB])
        length = arguments.length or chance.randint(50, 1500)
        # Through a tensor's pointer an out-of-memory error would end the program.
        lines = workload(chance, length, has_tensors=cap_bytes > 4 << 30)
        run(arguments.oracle.resolve(), arguments.torch_version, config, lines, cap_bytes, arguments.keep / f"{number}.txt")


main()
