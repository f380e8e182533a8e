"""Somebody elsewhere who uses a guest while it moves: its console, by the name that follows it, and its network."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import dns.exception

from tests.support.meanwhile import meanwhile
from tests.support.netns import Namespace

HEARD = re.compile(rb"guest: heard (\d+) as line (\d+)\r\n")


class Answer(NamedTuple):
    """Hold what a guest has said: when (time.time()), at which address, and how many lines it has heard in all its life."""

    when: float
    address: str
    lines: int


class Console:
    """Hold a connection to a guest's console, make it anew by the name when it is cut, and let the guest answer all the time.

    ``asked`` gives the addresses of the name; ``outside``: where the client is.
    """

    def __init__(self, outside: Namespace, asked: Callable[[], tuple[str, ...]], port: int = 5900) -> None:
        self._outside, self._asked, self._port = outside, asked, port
        self._number = 0
        self.answers: list[Answer] = []
        self.opened = 0

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(0.02):
            with contextlib.suppress(OSError, dns.exception.DNSException):
                for address in self._asked():
                    with self._outside.entered():
                        made = socket.create_connection((address, self._port), 5)
                    with made:
                        self.opened += 1
                        self._hold(made, address, ended)

    def _hold(self, made: socket.socket, address: str, ended: threading.Event) -> None:
        """Talk to the guest until the connection is cut. Raises OSError."""
        made.settimeout(1.0)
        read = b""
        while not ended.wait(0.02):
            self._number += 1
            made.sendall(b"\n%d\n" % self._number)
            while not (found := [each for each in HEARD.finditer(read) if int(each[1]) == self._number]):
                with contextlib.suppress(TimeoutError):
                    if not (data := made.recv(4096)):
                        return
                    read += data
                if ended.is_set():
                    return
            self.answers.append(Answer(time.time(), address, int(found[0][2])))
            read = b""

    def since(self, when: float, has: Callable[[str], bool]) -> Answer | None:
        """Give the first answer after some time (time.time()) at such an address."""
        return next((each for each in self.answers if each.when > when and has(each.address)), None)


@contextlib.contextmanager
def consoled(outside: Namespace, asked: Callable[[], tuple[str, ...]]) -> Iterator[Console]:
    """See Console."""
    made = Console(outside, asked)
    with meanwhile(made.run):
        yield made


class Pinged:
    """Tell how a guest has answered echo requests when all is over: how often, and the longest time between two answers, in seconds."""

    count = 0
    longest = 0.0


@contextlib.contextmanager
def pinged(outside: Namespace, address: str, file: Path) -> Iterator[Pinged]:
    """Send a guest an echo request each 20 ms."""
    made = Pinged()
    with open(file, "wb") as output, outside.entered():
        process = subprocess.Popen(["ping", "-D", "-n", "-i", "0.02", address], stdout=output)
    began = time.time()
    try:
        yield made
    finally:
        process.terminate()
        process.wait()
        times = [began, *(float(each) for each in re.findall(r"^\[([\d.]+)\] \d+ bytes from", file.read_text(), re.MULTILINE)), time.time()]
        made.count = len(times) - 2
        made.longest = max(later - before for before, later in itertools.pairwise(times))
