"""Plugin of pytest: ``@pytest.mark.inquest(max_reserved="20GiB", no_leak=True, max_wall_regression="5%", repeat=5)``.

A marked test runs in a process of its own, which `capture` starts and records from its first call on, and passes if it passes there and
keeps its limits. Recording a part of a running process would not do: what that had reserved before is not on record. ``--inquest-run RUN``
judges a recorded run instead; the test then runs as any other.

A test that cannot be recorded here, and one whose limits the record does not decide, is skipped with the reason, and listed at the end;
with ``--inquest-required`` it fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import _programs
from ._limits import Judgement, Limits, judge
from .errors import InquestError, UsageError

#: In the process that is recorded: the file for the outcome of the test.
_CHILD = "INQUEST_PYTEST_CHILD"
_NAME = "inquest_gpu.pytest_plugin"
#: Exit code of `capture` when the machine or the user cannot record.
_CANNOT_RECORD = 4

_OPEN = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("inquest", "tests that are recorded and judged by Inquest")
    group.addoption("--inquest-run", metavar="RUN", help="judge this recorded run; record nothing")
    group.addoption("--inquest-save", metavar="DIR", help="keep the recorded runs, in a folder of DIR for each test")
    group.addoption("--inquest-baseline", metavar="DIR", help="folder of an earlier --inquest-save, for max_wall_regression")
    group.addoption(
        "--inquest-required", action="store_true", help="fail where a test cannot be recorded or judged, instead of skipping it"
    )
    group.addoption("--inquest-capture", metavar="OPTION", action="append", default=[], help="a further option of capture (repeatable)")
    group.addoption(
        "--inquest-pytest", metavar="OPTION", action="append", default=[], help="a further option of the recorded pytest (repeatable)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line(
        "markers",
        "inquest(max_reserved=None, no_leak=False, max_wall_regression=None, repeat=1): record the test and hold it to these limits",
    )
    config.stash[_OPEN] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the process that is recorded: writes down how the test went."""
    if path := os.environ.get(_CHILD):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        line = {"outcome": report.outcome, "reason": reason, "xfail": getattr(report, "wasxfail", None)}
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Runs a marked test in a process of its own."""
    marker = item.get_closest_marker("inquest")
    if marker is None or os.environ.get(_CHILD) or item.config.getoption("inquest_run"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for when, work in (("setup", lambda: None), ("call", lambda: _recorded(item, marker)), ("teardown", lambda: None)):
        _report(item, when, work)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _report(item: pytest.Item, when: Any, work: Callable[[], None]) -> None:
    call = pytest.CallInfo.from_call(work, when, reraise=(KeyboardInterrupt, pytest.exit.Exception))
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    item.ihook.pytest_runtest_logreport(report=report)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Judges the run of ``--inquest-run`` when a marked test has passed."""
    result = yield
    marker, run = item.get_closest_marker("inquest"), item.config.getoption("inquest_run")
    if marker is not None and run and not os.environ.get(_CHILD):
        _decide(item, _limits(marker), [Path(run)])
    return result


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Lists the tests that were not judged."""
    if reasons := config.stash[_OPEN]:
        terminalreporter.section("inquest: not judged", yellow=True)
        for reason in reasons:
            terminalreporter.line(reason)


def _limits(marker: pytest.Mark) -> Limits:
    try:
        return Limits.of(marker)
    except UsageError as error:
        wrong = str(error)
    pytest.fail(wrong, pytrace=False)


def _not_judged(item: pytest.Item, reason: str) -> None:
    if item.config.getoption("inquest_required"):
        pytest.fail(f"inquest: {reason}", pytrace=False)
    item.config.stash[_OPEN].append(f"{item.nodeid}: {reason}")
    pytest.skip(f"inquest: {reason}")


def _folder(root: str, item: pytest.Item) -> Path:
    return Path(root) / re.sub(r"[^\w.\[\]-]+", "-", item.nodeid)


def _decide(item: pytest.Item, limits: Limits, paths: list[Path]) -> None:
    root = item.config.getoption("inquest_baseline")
    baseline = sorted(_folder(root, item).glob("*.parquet")) if root else []
    found, wrong = Judgement(), ""
    try:
        found = judge(limits, paths, baseline)
    except InquestError as error:
        wrong = str(error)
    if wrong:
        pytest.fail(f"inquest: {wrong}", pytrace=False)
    if found.broken:
        kept = ", ".join(str(path) for path in paths)
        pytest.fail("\n".join(["inquest: over the limits", *found.broken, f"recorded: {kept}"]), pytrace=False)
    if found.open:
        _not_judged(item, "; ".join(found.open))


def _recorded(item: pytest.Item, marker: pytest.Mark) -> None:
    """Runs a test as often as it wants, each time in a recorded process, and judges the runs."""
    limits = _limits(marker)
    program, wrong = [""], ""
    try:
        program = _programs.find("capture")
    except InquestError as error:
        wrong = str(error)
    if wrong:
        _not_judged(item, wrong)
    root = item.config.getoption("inquest_save")
    folder = _folder(root, item) if root else Path(tempfile.mkdtemp(prefix="inquest-"))
    folder.mkdir(parents=True, exist_ok=True)
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    paths = [folder / f"{stamp}-{number}.parquet" for number in range(limits.repeat)]
    try:
        for path in paths:
            _run_once(item, program, path)
        _decide(item, limits, paths)
    except pytest.fail.Exception:
        # The runs are named in the message, to be looked at.
        raise
    except BaseException:
        if not root:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if not root:
        shutil.rmtree(folder, ignore_errors=True)


def _command(item: pytest.Item) -> list[str]:
    config = item.config
    plugins = config.pluginmanager
    words = [
        sys.executable,
        "-m",
        "pytest",
        item.nodeid,
        "--quiet",
        "--no-header",
        "--rootdir",
        str(config.rootpath),
        "-p",
        "no:cacheprovider",
    ]
    if config.inipath:
        words += ["-c", str(config.inipath)]
    if plugins.has_plugin(_NAME):
        # It was named by -p: there is no entry point that would load it.
        words += ["-p", _NAME]
    if plugins.has_plugin("xdist"):
        words += ["-n0"]
    return words + list(config.getoption("inquest_pytest"))


def _run_once(item: pytest.Item, program: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="inquest-") as folder:
        outcomes = Path(folder) / "outcomes"
        capture = [*program, "--quiet", "--out", str(path), *item.config.getoption("inquest_capture"), "--"]
        done = subprocess.run(
            [*capture, *_command(item)],
            cwd=item.config.rootpath,
            env={**os.environ, _CHILD: str(outcomes)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = done.stdout.decode("utf-8", "replace")
        lines = outcomes.read_text(encoding="utf-8").splitlines() if outcomes.exists() else []
    if done.returncode == _CANNOT_RECORD and not lines:
        _not_judged(item, f"this machine cannot record: {said.strip()}")
    reports = [json.loads(line) for line in lines]
    for report in reports:
        if report["outcome"] == "failed":
            pytest.fail(f"{report['reason']}\nrecorded: {path}", pytrace=False)
        if report["xfail"] is not None and report["outcome"] == "skipped":
            pytest.xfail(report["xfail"])
        if report["outcome"] == "skipped":
            pytest.skip(report["reason"])
    # Without a report of each phase the process did not come to the end of the test.
    if len(reports) < 3 or not path.exists():
        pytest.fail(f"the recorded test ended early, with exit code {done.returncode}:\n{said}", pytrace=False)
