"""Cell magics of IPython: ``%%inquest_sql`` asks a run in SQL, ``%%inquest_record`` records the cell.

``%%inquest_record`` records the kernel's own process with ``capture --pid``, which needs the privileges of a recorder. Where they are
missing the cell is not run, and the error says what is missing.
"""

from __future__ import annotations

import shlex
from typing import Any

from .errors import UsageError
from .recording import record
from .relation import Relation
from .run import Run, open


class _Magics:
    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def sql(self, line: str, cell: str) -> Relation | None:
        """``%%inquest_sql RUN [NAME]``: RUN is a variable with a run, or a path; the answer is displayed, or assigned to NAME."""
        words = shlex.split(line)
        if len(words) not in (1, 2):
            raise UsageError("%%inquest_sql RUN [NAME]: name a run (a variable or a path), and a variable for the answer if you want one")
        known = self._shell.user_ns.get(words[0])
        answer = (known if isinstance(known, Run) else open(words[0])).sql(cell)
        if len(words) == 1:
            return answer
        self._shell.user_ns[words[1]] = answer
        return None

    def record(self, line: str, cell: str) -> None:
        """``%%inquest_record FILE.parquet [NAME]``: records the cell; the run is assigned to NAME, or to ``run``."""
        words = shlex.split(line)
        if len(words) not in (1, 2):
            raise UsageError("%%inquest_record FILE.parquet [NAME]: name the file, and a variable for the run if you want another than run")
        with record(words[0], force=True) as run:
            result = self._shell.run_cell(cell)
        self._shell.user_ns[words[1] if len(words) == 2 else "run"] = run
        if not result.success:
            raise UsageError(f"the cell failed; what it did until then is in {words[0]}")


def register(shell: Any) -> None:
    """Registers the magics in an IPython shell."""
    magics = _Magics(shell)
    shell.register_magic_function(magics.sql, "cell", "inquest_sql")
    shell.register_magic_function(magics.record, "cell", "inquest_record")
