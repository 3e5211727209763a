"""The answer to a query: rows that go to any library of data frames as Arrow."""

from __future__ import annotations

import html
import importlib
import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._programs import Done
from .errors import InquestWarning, MissingLibrary

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
    import polars  # type: ignore[import-not-found, unused-ignore]
    import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]

#: Number of rows that a relation shows of itself.
_SHOWN_COUNT = 20
#: Number of characters of a cell that are shown.
_CELL_CHARS = 60

#: Runs a query, in the format that the arguments say.
Ask = Callable[[list[str]], Done]


def _library(name: str, extra: str = "") -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f'"inquest-gpu[{extra}]"' if extra else name.split(".")[0]
        raise MissingLibrary(f"this needs {name}, which is not installed: pip install {what}") from error


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    # A control character in a name must not reach a terminal.
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"


class Relation:
    """The rows that answer a query.

    The query is run when its rows are first asked for, and once. The rows are held in memory as one Arrow IPC stream, in which integers,
    floats, texts and nulls are those of the run; a larger answer goes to a file with `write_parquet`. What weakens the answer is in
    `notes`, and is a warning (`InquestWarning`), too.

    A relation has the Arrow PyCapsule interface: whatever reads that reads a relation, as ``polars.DataFrame(relation)``,
    ``duckdb.from_arrow(relation)`` or ``pyarrow.table(relation)`` do.
    """

    def __init__(self, query: str, ask: Ask) -> None:
        self._query = query
        self._ask = ask
        self._done: Done | None = None

    @property
    def query(self) -> str:
        """The SQL that is run."""
        return self._query

    def _answer(self) -> Done:
        if self._done is None:
            self._done = self._ask(["--format", "arrow"])
            for note in self._done.notes:
                warnings.warn(note, InquestWarning, stacklevel=3)
        return self._done

    def _stream(self) -> Any:
        nanoarrow: Any = _library("nanoarrow")
        return nanoarrow.ArrayStream.from_readable(self._answer().stdout)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the program says about the answer, such as why there are no rows."""
        return self._answer().notes

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return [field.name for field in self._stream().schema.fields]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the rows as a PyCapsule with an ``ArrowArrayStream``."""
        # The stream of the file itself: an ArrayStream adds a schema of its own.
        ipc: Any = _library("nanoarrow.ipc")
        stream: object = ipc.InputStream.from_readable(self._answer().stdout).__arrow_c_stream__(requested_schema)
        return stream

    def pl(self) -> polars.DataFrame:
        """Returns the rows as a polars data frame. It needs polars (``inquest-gpu[polars]``)."""
        frame: polars.DataFrame = _library("polars", "polars").read_ipc_stream(io.BytesIO(self._answer().stdout))
        return frame

    def arrow(self) -> pyarrow.Table:
        """Returns the rows as a table of pyarrow. It needs pyarrow (``inquest-gpu[pyarrow]``)."""
        ipc: Any = _library("pyarrow.ipc", "pyarrow")
        table: pyarrow.Table = ipc.open_stream(self._answer().stdout).read_all()
        return table

    def df(self) -> pandas.DataFrame:
        """Returns the rows as a pandas data frame. It needs pandas and pyarrow (``inquest-gpu[pandas]``)."""
        _library("pandas", "pandas")
        _library("pyarrow", "pandas")
        return self.arrow().to_pandas()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows as tuples of Python values; a null is ``None``, and a list of values a list."""
        return list(self._stream().iter_tuples())

    def write_parquet(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the rows into a Parquet file, without holding them in memory, and returns its path.

        Raises:
            UsageError: The file exists, and ``force`` is not set.
        """
        self._ask(["--format", "parquet", "--out", os.fspath(path), *(["--force"] if force else [])])
        return Path(path)

    def __len__(self) -> int:
        """The number of rows."""
        return sum(len(chunk) for chunk in self._stream().iter_chunks())

    def __bool__(self) -> bool:
        """True: a relation without rows is an answer, too."""
        return True

    def _shown(self) -> tuple[list[str], list[list[str]], str]:
        rows = self.fetchall()
        names = self.columns
        cells = [[_cell(value) for value in row] for row in rows[:_SHOWN_COUNT]]
        end = f"{len(rows)} rows" + (f", of which {_SHOWN_COUNT} are shown" if len(rows) > _SHOWN_COUNT else "")
        return names, cells, "\n".join([end, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        names, rows, end = self._shown()
        table = [[_cell(name) for name in names], *rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(names))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:], end])

    def _repr_html_(self) -> str:
        names, rows, end = self._shown()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        foot = html.escape(end).replace("\n", "<br>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{foot}</p>"
