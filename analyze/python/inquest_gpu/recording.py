"""Records this process with ``capture --pid`` while a block runs.

The recorder needs Linux 5.18 or later and root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE: ``capture check`` says what is missing. The
process is not stopped. Calls of a CUDA library that is first loaded within the block are recorded from when the recorder finds it; load the
library before, as by ``torch.cuda.init()``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import _programs, marks
from .errors import CannotRecord, InquestError, ReadWriteError, UsageError
from .run import Run, Source

#: Longest time that a recorder may take until it records, in seconds.
_START_S = 60.0
#: Value of ``Seccomp`` in ``/proc/PID/status`` of a recorder that records: it confines itself when its probes are placed.
_CONFINED = "Seccomp:\t2"


def _why(child: subprocess.Popen[bytes], said: bytes) -> InquestError:
    text = "\n".join(line.removeprefix("capture: ") for line in said.decode("utf-8", "replace").splitlines()).strip()
    kinds: dict[int, type[InquestError]] = {2: UsageError, 4: CannotRecord}
    return kinds.get(child.returncode, ReadWriteError)(text or f"capture ended with exit code {child.returncode}", child.returncode)


def _is_recording(child: subprocess.Popen[bytes]) -> bool:
    try:
        return _CONFINED in Path(f"/proc/{child.pid}/status").read_text()
    except OSError:
        return False


@contextlib.contextmanager
def record(out: Source, *, force: bool = False, options: Sequence[str] = ()) -> Iterator[Run]:
    """Records this process into the file ``out`` while the block runs, marks included; the run can be asked after the block.

    ``options`` are further options of ``capture``, such as ``["--profile", "full"]``. If the block raises, the recording is finished all
    the same. It costs about a second to begin, and some tenths of one to end.

    Raises:
        CannotRecord: This machine or this user cannot record; the message says why.
        UsageError: The file exists and ``force`` is not set, or an option is wrong.
    """
    program = _programs.find("capture")
    # A reader of standard error that is not there would stop the recorder when the pipe is full: a file has no end.
    with tempfile.TemporaryDirectory(prefix="inquest-") as folder, tempfile.TemporaryFile() as said:
        path = os.path.join(folder, "marks")
        command = [*program, "--quiet", "--out", os.fspath(out), "--pid", str(os.getpid()), "--marks", path]
        # A session of its own: Ctrl-C is this process's, which then ends the recording.
        child = subprocess.Popen(
            [*command, *(["--force"] if force else []), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )

        def message() -> bytes:
            said.seek(0)
            return said.read()

        before = marks._path
        try:
            start = time.monotonic()
            while not _is_recording(child):
                if child.poll() is not None:
                    raise _why(child, message())
                if time.monotonic() - start > _START_S:
                    raise CannotRecord(f"{' '.join(program)} does not record after {_START_S:.0f} s")
                time.sleep(0.01)
            marks.connect(path)
            yield Run._unchecked(out)
        finally:
            marks.connect(before)
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            child.wait()
        if child.returncode != 0:
            raise _why(child, message())
