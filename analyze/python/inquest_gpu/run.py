"""A recorded run, or several: what `inquest_gpu.open` returns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from . import _programs
from .answers import Answer, Findings
from .errors import UsageError
from .relation import Relation

#: A file, a folder or a pattern such as ``runs/*.parquet``.
Source: TypeAlias = "str | os.PathLike[str]"


def _paths(sources: Source | Iterable[Source]) -> list[str]:
    several = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    paths = [os.fspath(source) for source in several]
    if not paths:
        raise UsageError("no run is given")
    for path in paths:
        if not os.path.lexists(path) and not re.search(r"[*?\[]", path):
            raise UsageError(f"{path}: there is no such file or folder")
    return paths


class Run:
    """One recorded run, or several. Nothing is read before a question is asked."""

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        memory_limit: str | None = None,
        timeout: str | None = None,
        queries: Source | None = None,
    ) -> None:
        self.paths = _paths(sources)
        self._common = ["--memory-limit", memory_limit] if memory_limit else []
        self._query_options = [*(["--timeout", timeout] if timeout else []), *(["--queries", os.fspath(queries)] if queries else [])]

    @classmethod
    def _unchecked(cls, source: Source) -> Run:
        """Returns a run whose file is not there yet."""
        run = cls.__new__(cls)
        run.paths, run._common, run._query_options = [os.fspath(source)], [], []
        return run

    def __repr__(self) -> str:
        return f"inquest_gpu.open({self.paths if len(self.paths) > 1 else self.paths[0]!r})"

    def sql(self, query: str, **parameters: str | float) -> Relation:
        """Returns the answer to an SQL query over the table ``events`` and the views of the query library (``ops``, ``op_time``, …).

        With several runs, the column ``run`` tells them apart. A parameter ``$name`` of the query has the value of the argument ``name``.
        The query runs when its rows are asked for, and its errors are raised then.

        Raises:
            UsageError: The query is wrong, or a run cannot be read.
        """
        options = [word for name, value in parameters.items() for word in ("--param", f"{name}={value}")]

        def ask(output: list[str]) -> _programs.Done:
            # The query comes through standard input, so that no path can be taken for it.
            arguments = [*self._common, "sql", "--file", "/dev/stdin", *options, *self._query_options, *output, "--", *self.paths]
            return _programs.analyze(arguments, query.encode("utf-8"))

        return Relation(query, ask)

    def query(self, name: str, **parameters: str | float) -> Relation:
        """Returns the answer to a query of the library by its name, such as ``launch_gaps``; ``analyze queries`` lists all.

        Raises:
            UsageError: There is no query of that name, or it has no such parameter.
        """
        options = [word for key, value in parameters.items() for word in ("--param", f"{key}={value}")]

        def ask(output: list[str]) -> _programs.Done:
            return _programs.analyze([*self._common, "queries", *options, *self._query_options, *output, "--", name, *self.paths])

        return Relation(name, ask)

    def _one(self) -> str:
        if len(self.paths) != 1:
            raise UsageError(f"this question is about one run, and {len(self.paths)} are open: open that one alone")
        return self.paths[0]

    def _verb(self, verb: str, *options: str) -> tuple[Any, Any]:
        """Asks a verb about the run; returns its JSON, and what returns its text."""
        end = ["--", self._one()]
        data = _programs.analyze([*self._common, verb, *options, "--json", *end]).json
        return data, lambda: _programs.analyze([*self._common, verb, *options, *end]).text

    def findings(self) -> Findings:
        """Returns what is wrong with the run, ranked: costs in nanoseconds or bytes, evidence, and what to do."""
        return Findings(*self._verb("findings"))

    def info(self) -> Answer:
        """Returns where the run comes from, what was probed, what was lost and what it contains, as a list with one entry."""
        return Answer(*self._verb("info"))

    def slow_calls(self) -> Relation:
        """Returns a row for each slow call with the causes of its excess latency in nanoseconds (the view ``slow_calls``)."""
        return self.sql("SELECT * FROM slow_calls ORDER BY excess_ns DESC, ts, tid, depth")

    def chains(self) -> Answer:
        """Returns why slow calls were slow, function by function, the root causes, and what was not a factor."""
        return Answer(*self._verb("chains"))

    def memory(self, at: str = "peak") -> Answer:
        """Returns where PyTorch's memory is at an instant, to the byte, and which live blocks hold free memory around them.

        ``at`` is ``"peak"`` (when most was reserved), ``"end"``, a time since recording began (``"1.5s"``), or the name of a mark.

        Raises:
            UsageError: There is no such instant, or the run has no events of PyTorch's allocator.
        """
        return Answer(*self._verb("memory", f"--at={at}"))

    def leaks(self, epochs: str | None = None) -> Answer:
        """Returns whether memory leaks, and from which site. ``epochs`` is a mark that divides the run, or ``"allocations"``."""
        return Answer(*self._verb("leaks", *([f"--epochs={epochs}"] if epochs else [])))

    def what_if(self, *conf: str, capacity: str | None = None) -> Answer:
        """Returns what PyTorch would have reserved with other settings of its allocator: a list with an entry for each device.

        ``conf`` are settings as in ``PYTORCH_CUDA_ALLOC_CONF``; without one, common settings are tried. ``capacity`` is the most memory
        that the device has for segments, such as ``"24GiB"``.

        Raises:
            UsageError: The run's version of PyTorch does not accept a setting, or it cannot be simulated.
        """
        options = [f"--conf={one}" for one in conf] + ([f"--capacity={capacity}"] if capacity else [])
        return Answer(*self._verb("what-if", *options))

    def report(self, path: Source, *, force: bool = False) -> Path:
        """Writes the report, one self-contained HTML page, and returns its path.

        Raises:
            UsageError: The file exists, and ``force`` is not set.
        """
        _programs.analyze(
            [*self._common, "report", f"--html={os.fspath(path)}", *(["--force"] if force else []), "--", self._one()],
        )
        return Path(path)

    def check(self, max_share: str = "10%", max_cost: str | None = None, allow: Sequence[str] = ()) -> Answer:
        """Checks the findings against limits, and returns them with what was decided of each.

        A crash, a hang, a request for memory that failed and a leak fail the check, and so does a finding that costs more than
        ``max_share`` of the wall time or more than ``max_cost`` (such as ``"2s"``). Kinds in ``allow`` do not.

        Raises:
            CheckFailed: A finding fails; ``answer`` of the exception has all of them.
            Inconclusive: The record does not tell, and no finding fails.
        """
        options = [f"--max-share={max_share}", *([f"--max-cost={max_cost}"] if max_cost else []), *(f"--allow={kind}" for kind in allow)]

        def text() -> str:
            return _programs.analyze([*self._common, "check", *options, "--", self._one()]).text

        return Answer(_programs.analyze([*self._common, "check", *options, "--json", "--", self._one()]).json, text)


def open(
    *sources: Source | Iterable[Source],
    memory_limit: str | None = None,
    timeout: str | None = None,
    queries: Source | None = None,
) -> Run:
    """Opens recorded runs: files, folders, or patterns such as ``"runs/*.parquet"``; traces of other tools are imported as they are read.

    ``memory_limit`` is the memory that a question may take, such as ``"4GiB"``; ``timeout`` ends a query after a time such as ``"30s"``;
    ``queries`` is a folder of your own query files.

    Raises:
        UsageError: There is no such file or folder.
    """
    each = [[source] if isinstance(source, (str, os.PathLike)) else list(source) for source in sources]
    return Run([path for paths in each for path in paths], memory_limit=memory_limit, timeout=timeout, queries=queries)
