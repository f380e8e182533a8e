"""Hold the standard streams of a command: what cannot be written ends it with a status of its own, and what nobody hears does not."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from typing_extensions import Buffer

UNWRITTEN = 74  #: the exit status (EX_IOERR, sysexits(3))


class UnwrittenError(Exception):
    """Say that standard output takes nothing: its file system is full, its reader has gone, it was closed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.errno = error.errno


class Output(io.FileIO):
    """Standard output. Raises UnwrittenError, which nobody takes for an error of a file or of the network."""

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise UnwrittenError(error) from error


class Messages(io.FileIO):
    """Standard error: if it takes nothing, the command does its work all the same, and has its own status."""

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def take() -> None:
    """Put these in the place of the interpreter's streams; one that was closed is there, and takes or gives nothing."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        _opened(number, mode)  # or the next file that is opened, such as a socket, would have its number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 # as long as the process
    sys.stdout = _of(Output, 1, sys.stdout)
    sys.stderr = _of(Messages, 2, sys.stderr)


def end(error: UnwrittenError, program: str) -> int:
    """Say in one line as ``program`` that the output was not written; give the exit status. Where its reader has gone we die of that."""
    _nowhere(1)
    if error.errno == errno.EPIPE:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    sys.stderr.write(f"{program}: the output cannot be written: {error}\n")
    sys.stderr.flush()
    return UNWRITTEN


def _of(kind: type[Output | Messages], number: int, stream: TextIO | None) -> TextIO:
    """A stream of that kind, which encodes as the interpreter's does."""
    encoding, errors = (stream.encoding, stream.errors) if stream is not None else ("utf-8", "backslashreplace")
    raw = kind(number, "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=number == 2 or raw.isatty())


def _opened(number: int, mode: int) -> None:
    """Open /dev/null as the descriptor if it is closed. For reading what is to be written says so (EBADF)."""
    try:
        os.fstat(number)
    except OSError:
        _nowhere(number, mode)


def _nowhere(number: int, mode: int = os.O_WRONLY) -> None:
    """Have the descriptor lead to /dev/null."""
    found = os.open(os.devnull, mode)
    if found == number:
        os.set_inheritable(found, True)
        return
    os.dup2(found, number)
    os.close(found)
