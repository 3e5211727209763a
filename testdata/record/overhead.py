"""What recording costs a real job: one process works on while a recorder joins and leaves it, window by window.

Usage: overhead.py CAPTURE launch_bound|gpu_bound WINDOWS RESULT.json

In each round the profiles come in a random order, with a window without recorder among them. Within a round, a
window's rate and CPU time are divided by those of the window without; the result has median and quartiles of the
ratios over the rounds.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch

PROFILES = ["none", "light", "default", "full"]
WINDOW_S = 1.5


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
        if profile != "none":
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


def measure(step):
    start, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < WINDOW_S:
        done += step()
    elapsed = time.perf_counter() - start
    return done / elapsed, (time.process_time() - cpu) / done


def main():
    capture, work, windows, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    step = {"launch_bound": launch_bound, "gpu_bound": gpu_bound}[work]()
    for _ in range(20):
        step()
    chance = random.Random(1)
    rounds, said = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(windows):
            found = {}
            for profile in chance.sample(PROFILES, len(PROFILES)):
                recorder = Recorder(capture, profile, directory)
                step()
                found[profile] = measure(step)
                said[profile] = recorder.stop()
            rounds.append(found)
    result = {"work": work, "windows": windows, "rate_per_s": statistics.median(r["none"][0] for r in rounds), "last": said}
    for profile in PROFILES[1:]:
        for index, name in enumerate(["rate_ratio", "cpu_ratio"]):
            ratios = [r[profile][index] / r["none"][index] for r in rounds]
            low, middle, high = statistics.quantiles(ratios, n=4)
            result[f"{profile} {name}"] = {"median": middle, "quartiles": [low, high]}
    print(json.dumps(result, indent=1))
    with open(path, "w") as file:
        json.dump(result, file, indent=1)


main()
