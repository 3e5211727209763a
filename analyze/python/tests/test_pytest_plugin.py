"""The plugin of pytest: what passes, what fails, what is not judged, and that it says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BUILT, run

from inquest_gpu._limits import Limits, judge

PLUGIN = ("-p", "inquest_gpu.pytest_plugin", "-p", "no:cacheprovider")


def marked(pytester: pytest.Pytester, *tests: tuple[str, str, str]) -> None:
    """Writes tests: the arguments of the marker, the name, the body."""
    lines = [f"@pytest.mark.inquest({marker})\ndef test_{name}():\n    {body}\n" for marker, name, body in tests]
    pytester.makepyfile("import ctypes, os, pytest, time\n" + "\n".join(lines))


def test_a_recorded_run_is_held_to_limits(pytester: pytest.Pytester) -> None:
    leak = "no_leak=True"
    marked(
        pytester,
        (leak, "leaks", "pass"),
        ('max_reserved="1GiB"', "fits", "pass"),
        ('max_reserved="100MiB"', "is_too_large", "pass"),
        ('max_wall_regression="5%"', "has_no_baseline", "pass"),
        ("no_leek=True", "is_wrong", "pass"),
        (leak, "fails_itself", "assert 1 == 2"),
    )
    pytester.makefile(".py", test_plain="def test_plain(): pass")
    result = pytester.runpytest(*PLUGIN, "--inquest-run", run("memory/leak"))
    result.assert_outcomes(passed=2, failed=4, skipped=1)
    text = result.stdout.str()
    for expected in (
        "no_leak: process 974: leak: 18 blocks",
        "max_reserved=100MiB: process 974, GPU 0 reserved 438304768 bytes",
        "does not take no_leek: it takes max_reserved",
        "assert 1 == 2",
        "inquest: not judged",
        "no earlier runs: record some with --inquest-save",
    ):
        assert expected in text, text
    required = pytester.runpytest(*PLUGIN, "--inquest-run", run("memory/leak"), "--inquest-required", "-k", "baseline")
    required.assert_outcomes(failed=1)


def test_what_is_not_on_record_is_open() -> None:
    nothing = judge(Limits(max_reserved="1GiB"), [Path(run("courtroom/vm/nothing"))], [])
    assert nothing.broken == [] and "no memory of PyTorch's allocator is on record" in nothing.open[0]
    short = judge(Limits(no_leak=True), [Path(run("h200/nccl"))], [])
    assert short.broken == [] and "epochs are too few" in short.open[0]


def test_the_wall_time_is_compared_with_earlier_runs(program: Callable[..., Path]) -> None:
    limits, runs = Limits(max_wall_regression="5%"), [Path(run(f"courtroom/vm/{name}")) for name in ("nothing", "size_only")]
    found = judge(limits, runs[:1], runs[1:])
    assert found.broken == []
    assert found.open[0].startswith("wall_ns < +5%: ")
    for outcome, code, broken, opened in (("pass", 0, 0, 0), ("regression", 1, 1, 0), ("suspect", 3, 0, 1)):
        said = f'{{"outcome": "{outcome}", "gates": [{{"outcome": "{outcome}", "reason": "a reason"}}]}}'
        program("analyze", f"echo '{said}'; echo 'analyze: {outcome}: wall_ns' >&2; exit {code}")
        found = judge(limits, runs[:1], runs[1:])
        assert (len(found.broken), len(found.open)) == (broken, opened), outcome


def test_who_cannot_record_skips_loudly_or_fails(pytester: pytest.Pytester, program: Callable[..., Path]) -> None:
    program("capture", "echo 'capture: no BTF' >&2; exit 4")
    marked(pytester, ("no_leak=True", "it", "pass"))
    result = pytester.runpytest(*PLUGIN)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*inquest: not judged*", "*::test_it: this machine cannot record: capture: no BTF"])
    pytester.runpytest(*PLUGIN, "--inquest-required").assert_outcomes(failed=1)


ALLOCATES = """
    driver = ctypes.CDLL("{built}/libcuda.so", mode=ctypes.RTLD_GLOBAL)
    runtime, address = ctypes.CDLL("{built}/libcudart.so", mode=ctypes.RTLD_GLOBAL), ctypes.c_uint64()
    import inquest_gpu
    for _ in inquest_gpu.steps(range(60)):
        runtime.cudaMalloc(ctypes.byref(address), 1 << 20)
        time.sleep(0.002)
        {then}
"""


def test_marked_tests_are_recorded_in_processes_of_their_own(recorder: str, pytester: pytest.Pytester) -> None:
    # Stub libraries of CUDA: a call is one, whatever it does.
    leaks, frees = (ALLOCATES.format(built=BUILT / "examples", then=then) for then in ("pass", "runtime.cudaFree(address)"))
    marked(
        pytester,
        ("no_leak=True", "leaks", leaks),
        ("no_leak=True, repeat=2", "frees", frees),
        ("no_leak=True", "fails", "assert os.getpid() == 0"),
        ("no_leak=True", "skips", "pytest.skip('for a reason')"),
        ("no_leak=True", "dies", "os._exit(3)"),
    )
    folder = pytester.path / "runs"
    result = pytester.runpytest(*PLUGIN, "--inquest-save", str(folder), "-rs")
    result.assert_outcomes(passed=1, failed=3, skipped=1)
    text = result.stdout.str()
    for expected in (": leak: 53 allocations with 53.0 MiB", "assert os.getpid() == 0", "for a reason", "the recorded test ended early"):
        assert expected in text, text
    kept = sorted(path.parent.name.rsplit("_", 1)[1] for path in folder.rglob("*.parquet"))
    assert kept == ["dies", "fails", "frees", "frees", "leaks", "skips"]
