"""The first process of the namespaces in which tests run: makes them private, runs one command, buries its orphans.

Run as ``unshare --net --mount --pid --fork --kill-child --mount-proc PYTHON -m tests.support.inside COMMAND...``. When it ends, the
kernel ends whatever is left, so no daemon of a test can outlive the tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support import syscalls
from tests.support.netns import PRIVATE, RUN, run


def wrapped(python: str, argv: list[str]) -> list[str]:
    """The command line that runs ``argv`` in namespaces of its own."""
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *flags, "--", python, "-m", "tests.support.inside", *argv]


def main(argv: list[str]) -> int:
    """Returns the command's exit status, 128 + N for signal N."""
    if os.getpid() != 1:
        print("not the first process of a namespace: use tests/run", file=sys.stderr)
        return 64
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("sysfs", "/sys", "sysfs")
    syscalls.mount("tmpfs", "/run", "tmpfs", options="mode=0755")
    for folder in RUN:
        os.makedirs(folder, exist_ok=True)
    run("ip", "link", "set", "lo", "up")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest gets it too, and ends in its own way
    child = subprocess.Popen(argv, env={**os.environ, PRIVATE: "1"})
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
