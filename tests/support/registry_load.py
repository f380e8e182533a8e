"""Put a load on a registry's service: writers that have addresses given out, nodes of a cluster that all come back at once."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from netregistry.client import Client
from tests.support.bootstrap import ROOT

WRITERS = 8
EVERY = 0.2  #: seconds between two looks at what the service has done
WINDOW = 1.0  #: seconds over which a rate is taken
BEGUN = 600.0  #: seconds for all streams of a cluster to begin the first time


def allocated(path: Path, networks: Sequence[str], count: int) -> tuple[float, list[str]]:
    """Have so many NICs made with an address given out, by WRITERS at a time; give the seconds that took, and the addresses."""

    def some(writer: int) -> list[str]:
        with Client(str(path)) as asked:
            bodies = ({"network": networks[number % len(networks)], "allocate": ["ipv4"]} for number in range(writer, count, WRITERS))
            return [str(asked.change("POST", "nics", body).body["ip"]) for body in bodies]

    with ThreadPoolExecutor(WRITERS) as pool:
        begun = time.monotonic()
        found = list(pool.map(some, range(WRITERS)))
        return time.monotonic() - begun, [address for each in found for address in each]


class Done(NamedTuple):
    """Say how much a service has done since it began: requests that it has answered, and streams that are open."""

    when: float
    answers: int
    streams: int


def done(path: Path) -> Done | None:
    """Ask a service for its figures; None where it does not give them: it is not there, or has too much to do."""
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    with closing(connection):
        try:
            connection.sock.connect(str(path))
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            lines = response.read().decode().splitlines()
        except (OSError, http.client.HTTPException):
            return None
    if response.status != HTTPStatus.OK:
        return None
    answers = [
        line for line in lines if line.startswith("netregistry_answers_total{") and '"metrics"' not in line and '"watch"' not in line
    ]
    (streams,) = [line for line in lines if line.startswith("netregistry_streams ")]
    return Done(time.monotonic(), sum(int(line.split()[-1]) for line in answers), int(streams.split()[-1]))


class Watched:
    """Look at a service again and again, until it is closed: ``looks`` are of its latest process."""

    def __init__(self, path: Path) -> None:
        self.looks: list[Done] = []
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            found = done(self._path)
            if found is None:
                continue
            if self.looks and found.answers < self.looks[-1].answers:  # it is another process
                self.looks[:] = [Done(self.looks[-1].when, 0, 0)]
            self.looks.append(found)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    @property
    def peak(self) -> float:
        """Give the most requests and streams a second, over WINDOW or the first look after that."""
        return peak(self.looks)


def peak(looks: Sequence[Done]) -> float:
    """Give the most requests and streams that were begun in a second."""
    found = [0.0]
    for place, begin in enumerate(looks):
        end = next((each for each in looks[place:] if each.when >= begin.when + WINDOW), None)
        if end is not None:
            found.append((end.answers - begin.answers + max(end.streams - begin.streams, 0)) / (end.when - begin.when))
    return max(found)


class Returned(NamedTuple):
    """Say what the return of all nodes was: seconds from the harm until all streams had told all; requests a second at most."""

    seconds: float
    peak: float


class Nodes:
    """The nodes of a cluster, in a process of their own (tests.support.returning). ``begun``: seconds until all streams had told all."""

    def __init__(self, count: int, *paths: Path) -> None:
        self._path, begun = paths[0], time.monotonic()
        argv = [sys.executable, "-m", "tests.support.returning", str(count), *map(str, paths)]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._said() == "ready\n", "all nodes are told all"
        self.begun = time.monotonic() - begun

    def _said(self) -> str:
        limit = threading.Timer(BEGUN, self._process.kill)
        limit.start()
        try:
            assert self._process.stdout is not None
            return self._process.stdout.readline()
        finally:
            limit.cancel()

    def again(self, harm: Callable[[], object], path: Path | None = None) -> Returned:
        """Do what cuts all streams off; wait until all are told all again. ``path``: of the service to which they return."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        watched = Watched(path or self._path)
        try:
            begun = time.monotonic()
            harm()
            _gone, ready = json.loads(self._said())
        finally:
            watched.close()
        return Returned(ready - begun, watched.peak)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def nodes(count: int, *paths: Path) -> Iterator[Nodes]:
    """See Nodes."""
    made = Nodes(count, *paths)
    try:
        yield made
    finally:
        made.close()
