"""Text generation with a randomly initialised model of Qwen2-0.5B's shape: a launch-bound loop.

Usage: qwen2_generate.py ROUNDS TOKENS [MARKS.json] [--profile KINETO.json]
CORE=n in the environment pins the main thread to that core once the model is loaded. MARKS.json receives the CLOCK_MONOTONIC times of
each round, so that a trace can be compared with what the program itself knows.
"""

import json
import os
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import Qwen2Config, Qwen2ForCausalLM

BATCH = 4
PROMPT_TOKENS = 256


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def build_model():
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config)
    return model.to(torch.bfloat16).eval()


def generate(model, tokens, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    prompt = torch.randint(0, 151936, (BATCH, PROMPT_TOKENS), device="cuda", generator=generator)
    model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
    torch.cuda.synchronize()


def main():
    rounds, tokens = int(sys.argv[1]), int(sys.argv[2])
    marks_path = sys.argv[3] if len(sys.argv) > 3 else None
    profile_path = sys.argv[5] if len(sys.argv) > 5 and sys.argv[4] == "--profile" else None
    marks = []

    def mark(name, start_ns):
        marks.append(
            {
                "name": name,
                "start_ns": start_ns,
                "end_ns": now_ns(),
                "allocated_bytes": torch.cuda.memory_allocated(),
                "reserved_bytes": torch.cuda.memory_reserved(),
            }
        )

    start = now_ns()
    model = build_model()
    torch.cuda.synchronize()
    mark("load", start)
    # Now, and this thread alone: the driver's own threads, which exist by now, would otherwise inherit the core.
    core = os.environ.get("CORE")
    if core is not None:
        os.sched_setaffinity(0, {int(core)})
    with torch.no_grad():
        for number in range(rounds):
            start = now_ns()
            generate(model, tokens, number)
            mark(f"round {number}", start)
            start = now_ns()
            torch.cuda.empty_cache()
            mark(f"empty_cache {number}", start)
        if profile_path:
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
                torch.cuda.synchronize()
                with record_function("inquest span"):
                    start = now_ns()
                    generate(model, 4, rounds)
                    mark("profiled", start)
                torch.cuda.synchronize()
            profiler.export_chrome_trace(profile_path)
    del model
    torch.cuda.empty_cache()
    mark("model deleted", now_ns())
    if marks_path:
        with open(marks_path, "w") as file:
            json.dump(marks, file)


main()
