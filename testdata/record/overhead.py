"""What recording costs a real job: one process works on while a recorder joins and leaves it, window by window.

Usage: overhead.py CAPTURE launch_bound|gpu_bound ROUNDS RESULT.json [PROFILE,PROFILE,... [WINDOW_S]]

Each round has one window without recorder, one of each profile in a random order, and the same windows again
backwards, so that a slow drift falls on all alike. Within a round, a profile's rate and CPU time are divided by those
without recorder. The result has, over the rounds, the median of the ratios, its 95 % confidence interval (order
statistics: no assumption about their distribution) and the quartiles.
"""

import gc
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch

NONE = "none"


def launch_bound():
    """One decoding step of a randomly initialised model of Qwen2-0.5B's shape, a token at a time."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True,
    )
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(0, 151936, (4, 64), device="cuda")

    def step():
        with torch.no_grad():
            model.generate(prompt, max_new_tokens=8, min_new_tokens=8, do_sample=False)
        torch.cuda.synchronize()
        return 8

    return step


def gpu_bound():
    """Training steps whose kernels are long: the GPU is busy all the time."""
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(8192, 8192), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    inputs = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16)

    def step():
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        return 1

    return step


class Recorder:
    def __init__(self, capture, profile, directory):
        self.out = os.path.join(directory, "run.parquet")
        self.process = None
        if profile == NONE:
            # The GPU and the caches cool down as they do while a recorder joins.
            time.sleep(1.4)
        else:
            command = [capture, "--quiet", "--force", "--profile", profile, "--pid", str(os.getpid()), "--out", self.out]
            self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            while not os.path.exists(self.out + ".recording"):
                assert self.process.poll() is None, self.process.stderr.read()
                time.sleep(0.05)
            time.sleep(1)

    def stop(self):
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate()[1]
        assert self.process.returncode == 0, said
        return said.strip().splitlines()[0]


def measure(step, window_s):
    """Steps, seconds and seconds of CPU of one window."""
    start, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < window_s:
        done += step()
    return done, time.perf_counter() - start, time.process_time() - cpu


def interval(ratios):
    """The widest order statistics that enclose the median in at least 95 % of all samples."""
    ratios, n = sorted(ratios), len(ratios)
    rank, outside = 0, 2 * 0.5**n
    while outside + 2 * math.comb(n, rank + 1) * 0.5**n <= 0.05:
        rank += 1
        outside += 2 * math.comb(n, rank) * 0.5**n
    return [ratios[rank], ratios[n - 1 - rank]] if 2 * 0.5**n <= 0.05 else None


def main():
    capture, work, rounds_count, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    profiles = sys.argv[5].split(",") if len(sys.argv) > 5 else ["light", "default", "full"]
    window_s = float(sys.argv[6]) if len(sys.argv) > 6 else 1.5
    step = {"launch_bound": launch_bound, "gpu_bound": gpu_bound}[work]()
    for _ in range(20):
        step()
    gc.collect()
    gc.freeze()
    chance = random.Random(1)
    rounds, said = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(rounds_count):
            sums = {profile: [0, 0, 0] for profile in [NONE, *profiles]}
            order = chance.sample([NONE, *profiles], len(profiles) + 1)
            for profile in order + order[::-1]:
                recorder = Recorder(capture, profile, directory)
                for _ in range(5):
                    step()
                sums[profile] = [a + b for a, b in zip(sums[profile], measure(step, window_s))]
                said[profile] = recorder.stop()
            rounds.append({profile: (done / wall, cpu / done) for profile, (done, wall, cpu) in sums.items()})
    rate = statistics.median(r[NONE][0] for r in rounds)
    result = {"work": work, "rounds": rounds_count, "window_s": window_s, "rate_per_s": rate, "last": said}
    for profile in profiles:
        for index, name in enumerate(["rate_ratio", "cpu_ratio"]):
            ratios = [r[profile][index] / r[NONE][index] for r in rounds]
            low, middle, high = statistics.quantiles(ratios, n=4)
            result[f"{profile} {name}"] = {"median": middle, "interval_95": interval(ratios), "quartiles": [low, high]}
    print(json.dumps(result, indent=1))
    with open(path, "w") as file:
        json.dump(result, file, indent=1)


main()
