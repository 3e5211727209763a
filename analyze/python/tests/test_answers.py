"""Answers of the verbs, errors by exit code, and what happens when a question is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, command_line, run

import inquest_gpu
from inquest_gpu import errors

LEAK, PLAIN = run("memory/leak"), run("memory/plain")


def test_answers_are_those_of_the_command_line() -> None:
    opened = inquest_gpu.open(LEAK)
    answers = {
        ("findings",): opened.findings(),
        ("info",): opened.info(),
        ("chains",): opened.chains(),
        ("memory", "--at", "end"): opened.memory(at="end"),
        ("leaks", "--epochs", "allocations"): opened.leaks(epochs="allocations"),
        ("what-if", "--conf", "expandable_segments:True"): opened.what_if("expandable_segments:True"),
    }
    for verb, answer in answers.items():
        assert answer.data == json.loads(command_line(*verb, LEAK, "--json")), verb
        assert len(answer) == len(answer.data["findings"] if verb == ("findings",) else answer.data), verb
    assert opened.leaks()["allocators"][0]["verdict"] == "leak"
    answer = answers["memory", "--at", "end"]
    assert repr(answer) + "\n" == command_line("memory", "--at", "end", LEAK)
    assert answer._repr_html_().startswith("<pre>") and answer.warnings == answer["warnings"]


def test_findings_are_typed() -> None:
    findings = inquest_gpu.open(LEAK).findings()
    data = findings.data["findings"]
    assert [finding.kind for finding in findings] == [finding["kind"] for finding in data] == ["leak", "fragmentation"]
    assert findings[0].cost_bytes == data[0]["cost_bytes"] and findings[0].evidence[0]["sql"].startswith("SELECT")
    assert (findings.wall_ns, findings.is_open, findings["run"]) == (findings.data["wall_ns"], False, "leak")
    bounded = [finding for finding in inquest_gpu.open(run("compare/calls/none-1a")).findings() if finding.cost_range_ns]
    assert all(finding.cost_range_ns[0] <= finding.cost_range_ns[1] for finding in bounded)


def test_slow_calls_are_those_of_the_view() -> None:
    slow = inquest_gpu.open(LEAK).slow_calls().pl()
    wanted = command_line("sql", LEAK, "SELECT count(*), sum(excess_ns) FROM slow_calls").splitlines()[1].split(",")
    assert (slow.height, slow["excess_ns"].sum()) == (int(wanted[0]), float(wanted[1]))
    assert slow["excess_ns"].is_sorted(descending=True)


def test_a_check_that_fails_has_its_answer() -> None:
    with pytest.raises(inquest_gpu.CheckFailed, match="over the limits: leak") as raised:
        inquest_gpu.open(LEAK).check()
    assert raised.value.exit_code == 1 and not isinstance(raised.value, inquest_gpu.RegressionError)
    assert {entry["check"] for entry in raised.value.answer["findings"]} >= {"fails"}
    passed = inquest_gpu.open(LEAK).check(allow=["leak", "fragmentation"])
    assert [entry["check"] for entry in passed["findings"]] == ["allowed", "allowed"]
    with pytest.raises(inquest_gpu.UsageError, match="0% to 100%"):
        inquest_gpu.open(LEAK).check(max_share="200%")


def test_a_comparison_is_that_of_the_command_line() -> None:
    sides = [run(f"courtroom/vm/{name}") for name in ("nothing", "size_only")]
    answer = inquest_gpu.compare(inquest_gpu.open(sides[0]), [sides[1]], raises=False)
    assert answer["outcome"] in ("suspect", "inconclusive")
    assert repr(answer).startswith("nothing → size_only")
    with pytest.raises(inquest_gpu.UsageError, match="nonsense"):
        inquest_gpu.compare(*sides, gates=["nonsense"])


def test_a_report_is_written_once(tmp_path: Path) -> None:
    page = inquest_gpu.open(LEAK).report(tmp_path / "leak.html")
    assert page.read_text().startswith("<!doctype html>") or "<html" in page.read_text()[:200]
    with pytest.raises(inquest_gpu.UsageError, match="--force"):
        inquest_gpu.open(LEAK).report(page)
    assert inquest_gpu.open(LEAK).report(page, force=True) == page


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, inquest_gpu.CheckFailed),
        (2, inquest_gpu.UsageError),
        (3, inquest_gpu.Inconclusive),
        (5, inquest_gpu.ReadWriteError),
        (70, inquest_gpu.InternalError),
        (101, inquest_gpu.InternalError),
    ],
)
def test_exit_codes_are_errors(program: Callable[..., Path], code: int, kind: type[inquest_gpu.InquestError]) -> None:
    program("analyze", f"echo '{{\"a\": 1}}'; echo 'analyze: what happened' >&2; exit {code}")
    with pytest.raises(kind) as raised:
        inquest_gpu.open(LEAK).findings()
    assert type(raised.value) is kind
    assert (str(raised.value), raised.value.exit_code, raised.value.answer) == ("what happened", code, {"a": 1})


def test_a_regression_has_its_comparison(program: Callable[..., Path]) -> None:
    program("analyze", "echo '{\"outcome\": \"regression\"}'; echo 'analyze: regression: wall_ns +20 %' >&2; exit 1")
    with pytest.raises(inquest_gpu.RegressionError, match="wall_ns") as raised:
        inquest_gpu.compare(LEAK, PLAIN)
    assert raised.value.answer == {"outcome": "regression"}
    assert inquest_gpu.compare(LEAK, PLAIN, raises=False)["outcome"] == "regression"


def test_a_program_that_a_signal_ends_is_an_internal_error(program: Callable[..., Path]) -> None:
    program("analyze", "kill -KILL $$")
    with pytest.raises(inquest_gpu.InternalError, match="signal 9 ended analyze"):
        inquest_gpu.open(LEAK).findings()


def test_another_version_and_another_program_are_refused(
    program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program("analyze", "exit 0", version="9.9.9")
    with pytest.raises(inquest_gpu.VersionMismatch, match=r"version 9\.9\.9, and this package is version"):
        inquest_gpu.open(LEAK).findings()
    for path in ("/bin/true", str(tmp_path / "none")):
        monkeypatch.setenv("INQUEST_ANALYZE", path)
        with pytest.raises(inquest_gpu.ProgramNotFound, match=path):
            inquest_gpu.open(LEAK).findings()
    monkeypatch.delenv("INQUEST_ANALYZE")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(inquest_gpu.ProgramNotFound, match="INQUEST_ANALYZE"):
        inquest_gpu.open(LEAK).findings()


def test_the_program_is_found_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "analyze").symlink_to(os.environ["INQUEST_ANALYZE"])
    monkeypatch.delenv("INQUEST_ANALYZE")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert len(inquest_gpu.open(LEAK).findings()) == 2
    # The command of a package, which becomes either program, goes before it.
    launcher = tmp_path / "inquest"
    launcher.write_text(f'#!/bin/sh\n[ "$1" = analyze ] && shift && touch {tmp_path}/started && exec {tmp_path}/analyze "$@"\n')
    launcher.chmod(0o755)
    assert len(inquest_gpu.open(LEAK).findings()) == 2
    assert (tmp_path / "started").exists()


def test_an_interrupt_ends_the_program_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    code = (
        f"import inquest_gpu; relation = inquest_gpu.open({LEAK!r}).sql('SELECT value FROM generate_series(1, 1000000000000)')\n"
        f"try: relation.write_parquet({str(out / 'a.parquet')!r})\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)

    def programs() -> list[int]:
        listed = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(child.pid)], capture_output=True, text=True, check=False)
        return [int(line.split()[0]) for line in listed.stdout.splitlines() if "analyze" in line]

    deadline = time.monotonic() + 60
    while not (started := programs()):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.5)
    # To Python alone, which has to end the program.
    os.kill(child.pid, signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert said == "interrupted\n"
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)
    assert list(out.iterdir()) == []


def test_the_version_is_that_of_the_programs() -> None:
    manifest = (ROOT / "Cargo.toml").read_text()
    assert f'[workspace.package]\nversion = "{inquest_gpu.__version__}"' in manifest


def test_every_error_is_one_of_the_package_and_has_a_text() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, (inquest_gpu.InquestError, Warning)) and kind.__doc__ for kind in kinds)
    assert str(inquest_gpu.ReadWriteError("a text")) == "a text"
