"""What is left to a process that nobody waits for: it holds the sockets until the caller has gone, and nothing else of the caller's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.support.bootstrap import ROOT

#: Hands the socket at 3 over, lets go of its output, and waits to be told to end.
CALLER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from netcommon.doors.deferred_close import close_apart
def refuse():
    raise OSError
if sys.argv[2] == "no process":
    os.fork = refuse
if sys.argv[2] == "no pipe":
    os.pipe = refuse
close_apart([int(sys.argv[3])])
try:
    os.fstat(int(sys.argv[3]))
    print("kept", flush=True)
except OSError:
    print("closed", flush=True)
os.close(1)
os.close(2)
sys.stdin.read()
os._exit(7)
"""


@pytest.mark.parametrize("what", ["a process", "no process", "no pipe"])
def test_the_last_close_is_the_childs(what: str) -> None:
    ours, given = socket.socketpair()
    with ours, given:
        argv = [sys.executable, "-c", CALLER, str(ROOT), what, str(given.fileno())]
        pipe = subprocess.PIPE
        caller = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[given.fileno()])
        given.close()
        assert caller.stdin and caller.stdout and caller.stderr
        # the ends of its outputs come while the child waits: it does not hold them
        assert (caller.stdout.read(), caller.stderr.read()) == (b"closed\n" if what == "a process" else b"kept\n", b"")
        ours.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ours.recv(1)  # somebody still has the other end
        caller.stdin.close()
        assert caller.wait(10) == 7
        ours.settimeout(10)
        assert ours.recv(1) == b""
        caller.stdout.close()
        caller.stderr.close()


def test_nothing_to_close() -> None:
    from netcommon.doors.deferred_close import close_apart

    before = os.listdir("/proc/self/fd")
    close_apart([])
    assert os.listdir("/proc/self/fd") == before
