"""The clock is set ten years forward, or back, or runs backwards, between every two steps: nothing comes of it.

The wall clock is what an administrator or NTP sets; the monotonic one cannot be set (clock_gettime(2)), and is what limits go by.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import runtime.folder
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from netcommon.log import Recorder, Syslog
from runtime.store import Store
from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, rundoor
from tests.support.sample import sample
from tests.support.sim import MODES, Sim, plain
from tests.support.sim import nic as nic_of
from tests.support.snapshot import diff, snapshot

YEARS = 10 * 365.25 * 86400.0

#: How the clock goes, from one look to the next.
CLOCKS: dict[str, Callable[[], Iterator[float]]] = {
    "10 years ahead": lambda: itertools.repeat(time.time() + YEARS),
    "10 years behind": lambda: itertools.repeat(time.time() - YEARS),
    "to and fro": lambda: itertools.cycle((time.time() + YEARS, time.time() - YEARS, time.time())),
    "backwards": lambda: itertools.count(time.time(), -3600.0),
    "at its beginning": lambda: itertools.repeat(0.0),
    "before its beginning": lambda: itertools.repeat(-YEARS),
    "beyond 32 bits": lambda: itertools.repeat(float(1 << 33)),
}


class Stepping:
    """The os module as runtime.folder sees it: something happens before each call that changes a file."""

    CHANGING = ("write", "rename", "unlink", "symlink", "mkdir", "rmdir", "link")

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.CHANGING:
            return real

        def stepped(*positional: Any, **named: Any) -> Any:
            self._step()
            return real(*positional, **named)

        return stepped


@pytest.fixture
def stepping() -> Iterator[Callable[[Callable[[], None]], None]]:
    yield lambda step: vars(runtime.folder).update(os=Stepping(step))
    vars(runtime.folder)["os"] = os


def story(sim: Sim, mode: str) -> list[Any]:
    """A NIC's life; what it and its record were like at each point."""
    found: list[Any] = []
    nic = nic_of(mode)
    sim.up(nic)
    found += [sim.picture(), plain(sim.record()), sim.files()]
    sim.up(nic)
    sim.gc()
    found += [sim.picture(), plain(sim.record()), sim.files()]
    sim.shutdown(nic)
    found += [sim.record().state]
    sim.up(nic)
    sim.host.remove_link("tap0")
    found += [[(thing.text, thing.why, thing.action) for thing in sim.gc()], sim.files()]
    sim.tap("tap0")
    sim.up(nic)
    sim.down(nic)
    found += [sim.picture()["rules"], sim.files()]
    return found


@pytest.mark.parametrize("mode", sample(list(MODES), 4))
def test_every_clock(tmp_path: Path, mode: str) -> None:
    """Each call, and each look at the clock within it, at another time: the same states, the same records, nothing left."""
    usual = story(Sim(str(tmp_path / "usual")), mode)
    for name, make in CLOCKS.items():
        sim = Sim(str(tmp_path / name))
        _jumping(sim, make())
        assert story(sim, mode) == usual, name
    figures.add("clock", len(CLOCKS), 0, 0)


def _jumping(sim: Sim, times: Iterator[float]) -> None:
    """Whoever looks at the simulated machine's clock sees the next of ``times``; it is set again before each request, too."""

    class Jumping(Sim):
        wall = property(lambda self: next(times), lambda self, value: None)  # type: ignore[assignment]

    sim.__class__ = Jumping


@pytest.mark.parametrize("mode", sample(list(MODES), 4))
@pytest.mark.parametrize("ahead", [YEARS, -YEARS])
def test_gc_with_another_clock_between_every_two_steps(
    tmp_path: Path, mode: str, ahead: float, stepping: Callable[[Callable[[], None]], None]
) -> None:
    """The hook's NIC is up as if nobody had been there: what is new is not taken for what was left behind, whatever the clock says."""
    nic = nic_of(mode)
    usual = Sim(str(tmp_path / "usual"))
    usual.up(nic)
    expected = usual.picture(), plain(usual.record()), usual.files()
    counted = Sim(str(tmp_path / "counted"))
    steps = _sweeping(counted, ahead, -1, stepping)
    counted.up(nic)
    total = len(steps)
    assert total > 5
    for number in range(total):
        sim = Sim(str(tmp_path / str(number)))
        _sweeping(sim, ahead, number, stepping)
        sim.up(nic)
        _sweeping(sim, ahead, -1, stepping)
        assert (sim.picture(), plain(sim.record()), sim.files()) == expected, number
        assert sim.node.store.by_device("tap0") is not None and sim.node.store.by_instance("web1", 0) is not None, number
        sim.down(nic)
        assert sim.picture() == sim.before and sim.files() == []
    figures.add("clock", total, 0, 0)


def _sweeping(sim: Sim, ahead: float, number: int, stepping: Callable[[Callable[[], None]], None]) -> list[int]:
    """Another process cleans up right before the ``number``-th change of a file, with a clock that is ``ahead``; the list grows by each."""
    steps: list[int] = []
    busy = [False]

    def meanwhile() -> None:
        if busy[0]:
            return
        steps.append(len(steps))
        if len(steps) != number + 1:
            return
        busy[0] = True
        try:
            identity = sim.host.identity()
            with Store(sim.paths, identity.netns, identity.boot) as store:
                store.clean_temporary(time.time() + ahead)
                store.owners.sweep()
                store.clean_links(time.time() + ahead)
        finally:
            busy[0] = False

    stepping(meanwhile)
    return steps


@pytest.mark.parametrize("wall", [0.0, 1.0, -YEARS, time.time() + YEARS, time.time() - YEARS, float(1 << 33)])
def test_files_of_any_time(tmp_path: Path, wall: float) -> None:
    """Records, links and folders that bear a strange time are what they are."""
    sim = Sim(str(tmp_path))
    nic = nic_of("routed, table")
    sim.up(nic)
    for where, folders, names in os.walk(sim.paths.state):
        for name in folders + names:
            os.utime(f"{where}/{name}", (wall, wall), follow_symlinks=False)
    before = sim.picture(), plain(sim.record()), sim.files()
    assert sim.node.store.exists(nic.uuid)
    assert sim.gc() == []
    assert sim.up(nic).changed is False
    assert (sim.picture(), plain(sim.record()), sim.files()) == before
    sim.down(nic)
    assert sim.picture() == sim.before and sim.files() == []
    figures.add("clock", 1, 0, 0)


def test_the_log(tmp_path: Path) -> None:
    """A line has a time, whatever that is, and never fails a hook."""
    assert isinstance(Recorder(), Recorder)
    for make in CLOCKS.values():
        times = make()
        log = Syslog(str(tmp_path / "nobody"), wall=lambda times=times: next(times))  # type: ignore[misc]
        log.send(6, "fine")
        assert log.dropped == 1
        log.close()
    figures.add("clock", len(CLOCKS), 0, 0)


def test_requests_do_not_know_the_time(tmp_path: Path) -> None:
    """What is asked of the host is the same at any time."""
    asked = []
    for wall in (time.time(), time.time() + YEARS, 0.0):
        sim = Sim(str(tmp_path / str(wall)))
        sim.wall = wall
        seen: list[Request] = []

        def note(request: Request, seen: list[Request] = seen) -> Answer | None:
            seen.append(request)
            return None

        sim.host.fail = note
        sim.up(nic_of("routed, table"))
        sim.down(nic_of("routed, table"))
        asked.append(seen)
    assert asked[0] and asked[1] == asked[0] == asked[2]
    figures.add("clock", len(asked), 0, 0)


#: Answers clock_gettime(CLOCK_REALTIME), time and gettimeofday by the process's own wish, in place of libc (ld.so(8), LD_PRELOAD).
PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long long shift(void) {
    static long long calls;
    const char *ahead = getenv("CLOCK_AHEAD"), *step = getenv("CLOCK_STEP");
    return (ahead ? atoll(ahead) : 0) + (step ? atoll(step) * ++calls : 0);
}
int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *where) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (where) *where = found.tv_sec;
    return found.tv_sec;
}
"""


def test_real_hooks(node: Node, tmp_path: Path) -> None:
    """Each hook of a NIC's life with another clock: done in the usual time, the host as ever."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(PRELOAD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, capture_output=True)
    node.tap("tap0")
    nic = environment()
    for door, more in (("kvm-ifup", ()), ("kvm-ifdown", ("hot-remove",))):
        assert rundoor(door, nic, "tap0", *more).status == 0
    before = snapshot()
    assert rundoor("kvm-ifup", nic, "tap0").status == 0
    up = snapshot(())
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    years = str(int(YEARS))
    clocks = [(years, "0"), (f"-{years}", "0"), ("0", "-3600"), (f"-{int(time.time()) - 5}", "0"), (years, f"-{years}")]
    life = [("kvm-ifup", ()), ("kvm-ifup", ()), ("kvm-ifdown", ("hot-remove",)), ("kvm-ifdown", ("hot-remove",))]
    tried = 0
    for number, (ahead, step) in enumerate(clocks):
        for place, (door, more) in enumerate(life):
            # every second hook of a life has the usual clock: time jumps between the calls as well
            shifted = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": ahead, "CLOCK_STEP": step} if (place + number) % 2 == 0 else {}
            argv = [str(HOOKS / door), "tap0", *more]
            done = subprocess.run(argv, env={**BASE, **nic, **shifted}, capture_output=True, timeout=60, check=False, cwd="/")
            tried += 1
            assert (done.returncode, done.stderr) == (0, b""), (door, ahead, step, done.stderr)
            if door == "kvm-ifup":
                assert diff(up, snapshot(())) == [], (ahead, step)
        assert diff(before, snapshot()) == [], (ahead, step)
    figures.add("clock", tried, 0, 0)
