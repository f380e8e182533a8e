"""Start processes for a mock cloud: those of its registry, which end with it, and programs that an administrator names. No shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Killed with this process, however that ends (setpriv(1)).
WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
NETCOMMON = (sys.executable, "-P", "-m", "netcommon.cli")  #: its command line, of the same packages as this process
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  #: where those are
LOG = "all that it has said is in {}, for as long as that folder stays (mockcloud run --keep FOLDER)"
LATEST, LONGEST = 1 << 16, 300  #: bytes of a log that are looked at, characters of a line that are shown
ERROR = re.compile("panic|fatal|error|fail|cannot|refused|no space", re.IGNORECASE)  #: in a line that says why a process has ended


class Process:
    """A process that ends with this one, and hears no signals of this one's terminal. ``log``: the file for all that it says.

    Raises HostRefused where it cannot be started.
    """

    def __init__(self, argv: Sequence[str], folder: str, log: str) -> None:
        with open(log, "ab") as said:
            try:
                self._process = subprocess.Popen(
                    [*WITH_US, *argv],
                    cwd=folder,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                raise HostRefused(f"cannot start {WITH_US[0]}: {error.strerror}", "it is of util-linux 2.33 or later") from None

    @property
    def ended(self) -> bool:
        """Tell whether it has ended by itself."""
        return self._process.poll() is not None

    def freeze(self) -> None:
        """Let it stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a warning, also where it stands still."""
        self._process.kill()
        self._process.wait()


def why(log: str) -> str:
    """Give what a process has said of its end, from its log: its latest line that tells an error, else its latest; "" for nothing.

    The log of `mockcloud run` goes with its folder. A program in Go says its stack behind its error.
    """
    try:
        with open(log, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LATEST, 0))
            lines = [each.strip() for each in file.read().decode("utf-8", "replace").splitlines()]
    except OSError:
        return ""
    said = [each for each in lines if each]
    latest = next((each for each in reversed(said) if ERROR.search(each)), said[-1] if said else "")
    return f": {escaped(latest, LONGEST)}" if latest else ""


def done(command: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None) -> None:
    """Run a command to its end, which comes within so many seconds. Raises HostRefused where it fails."""
    shown = escaped(" ".join(command))
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, env=environ)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise HostRefused(f"{shown}: {escaped(str(error))}") from None
    if ended.returncode:
        why = ended.stderr.decode("utf-8", "replace").strip()
        raise HostRefused(f"{shown} has ended with {ended.returncode}{f': {escaped(why)}' if why else ''}")


def environment() -> dict[str, str]:
    """Give the environment of this process, in which Python finds the packages that it is of."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH", "")])])}
