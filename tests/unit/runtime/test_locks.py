"""Locks between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from netagent.thread_locks import gates
from runtime.errors import Interrupted, TryAgain, WaitsForUs
from runtime.folder import Folder
from runtime.locks import FILES, SETS, Locks, number
from tests.support.bootstrap import ROOT
from tests.support.nics import U1, U2
from tests.support.told_to_end import Lines


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with Folder.make(str(tmp_path / "locks")) as made:
        yield made


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


Ask = Callable[[Locks], None]
ASKS: list[Ask] = [lambda locks: locks.devices(["a"]), lambda locks: locks.uuids([U1]), lambda locks: locks.keys(["k"])]
OTHERS: list[Ask] = [lambda locks: locks.devices(["a", "b"]), lambda locks: locks.uuids([U2]), lambda locks: locks.keys(["l"])]


def make(folder: Folder, wait: float = 1.0) -> tuple[Locks, Clock]:
    clock = Clock()
    return Locks(folder, clock.now + wait, clock, clock.sleep), clock


def test_what_waits_for_us_is_not_waited_for(folder: Folder) -> None:
    """Nor what shares a file with it; a lock that is free is had all the same, and others are waited for."""
    like = next(name for count in range(10**6) if number(name := f"tap{count}") == number(U1))
    first, _ = make(folder)
    for which in ("devices", "uuids"):
        with first:
            getattr(first, which)([U1, "other"])
            for name in (U1, like):
                clock = Clock()
                with Locks(folder, clock.now + 5, clock, clock.sleep, kept=(U1,)) as second:
                    with pytest.raises(WaitsForUs, match=U1) as caught:
                        getattr(second, which)([name])
                    assert (f"which has the same lock file as '{name}'" in str(caught.value)) == (name == like)
                    assert caught.value.status == 75 and clock.slept == []
                    with pytest.raises(TryAgain) as late:
                        getattr(second, which)(["other"])
                    assert not isinstance(late.value, WaitsForUs) and clock.slept
        clock = Clock()
        with Locks(folder, clock.now + 5, clock, clock.sleep, kept=(U1,)) as second:
            getattr(second, which)([U1])


def test_a_held_lock_ends_in_try_again_at_the_deadline(folder: Folder) -> None:
    first, _ = make(folder)
    second, clock = make(folder, wait=2.0)
    with first:
        first.uuids([U1])
        with second, pytest.raises(TryAgain) as caught:
            second.uuids([U1])
        assert caught.value.status == 75
        assert f"the lock of uuid '{U1}', or of another that has the same lock file, is held by process" in str(caught.value)
        assert f"process {os.getpid()}" in str(caught.value)
        assert clock.now == pytest.approx(102.0)
        assert max(clock.slept) <= 0.05
        assert second.held(U1)
    with second:
        second.uuids([U1])
    assert not first.held(U1)


def test_a_free_lock_is_taken_even_after_the_deadline(folder: Folder) -> None:
    locks, clock = make(folder, wait=-1.0)
    with locks:
        locks.devices(["tap0"])
        locks.uuids([U1])
        locks.keys(["a", "b"])
    assert clock.slept == []


def test_different_names_do_not_wait_for_each_other(folder: Folder) -> None:
    assert number(U1) != number(U2)
    (first, _), (second, clock) = make(folder), make(folder)
    with first, second:
        first.devices(["tap0"])
        first.uuids([U1])
        second.uuids([U2])
    assert clock.slept == []


def test_what_could_not_be_locked_whole_is_not_held_in_part(folder: Folder) -> None:
    (first, _), (second, _), (third, clock) = make(folder), make(folder), make(folder)
    last = max((U1, U2), key=number)
    other = U1 if last == U2 else U2
    with first, second, third:
        first.uuids([last])
        with pytest.raises(TryAgain):
            second.uuids([U1, U2])
        third.uuids([other])
        assert clock.slept == []


def test_the_order_is_enforced(folder: Folder) -> None:
    for later in range(3):
        for earlier in range(later):
            locks, _ = make(folder)
            with locks:
                ASKS[later](locks)
                with pytest.raises(RuntimeError, match="deadlock"):
                    ASKS[earlier](locks)
    for ask, other in zip(ASKS, OTHERS, strict=True):
        locks, clock = make(folder)
        with locks:
            ask(locks)
            ask(locks)  # nothing new
            with pytest.raises(RuntimeError, match="deadlock"):
                other(locks)
        assert clock.slept == []
    locks, _ = make(folder)
    with locks:
        ASKS[1](locks)
        ASKS[2](locks)
        locks.release_keys()
        ASKS[2](locks)
    assert SETS == ("device", "uuid", "key")


def test_names_that_share_a_file_are_locked_once(folder: Folder) -> None:
    names = [f"k{index}" for index in range(500)]
    locks, clock = make(folder)
    before = len(os.listdir("/proc/self/fd"))
    with locks:
        locks.keys(names)
        assert len(os.listdir("/proc/self/fd")) - before == len({number(name) for name in names}) == FILES
    assert clock.slept == []
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(folder.names()) == FILES  # lock files stay


def test_a_dead_process_holds_nothing(folder: Folder) -> None:
    code = (
        "import sys, time\nfrom runtime.folder import Folder\nfrom runtime.locks import Locks\n"
        "locks = Locks(Folder.find(sys.argv[1]), 0, time.monotonic, time.sleep)\nlocks.uuids([sys.argv[2]])\n"
        "print('held', flush=True)\ntime.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, folder.path, U1], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        locks, _ = make(folder, wait=0.0)
        assert locks.held(U1)
        with pytest.raises(TryAgain, match=f"process {holder.pid}"):
            locks.uuids([U1])
    finally:
        holder.kill()
        holder.communicate()
    with locks:
        locks.uuids([U1])


def test_crossing_orders_never_deadlock(folder: Folder) -> None:
    """Many holders ask for the same names in opposite orders; each must get through, one at a time."""
    names = [f"k{index}" for index in range(8)]
    inside, done, most = [0], [0], [0]

    def work(order: list[str]) -> None:
        for _ in range(30):
            with Locks(folder, time.monotonic() + 20, time.monotonic, lambda _: time.sleep(0.0002)) as locks:
                locks.keys(order)
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)
                inside[0] -= 1
                done[0] += 1

    threads = [threading.Thread(target=work, args=(names if turn % 2 else names[::-1],)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (done[0], most[0]) == (180, 1)


def test_what_follows_an_at_sign_has_the_same_lock(folder: Folder) -> None:
    """The key of a thing on an uplink is whole only once that was found, under the lock of what was known before."""
    clock = Clock()
    with Locks(folder, 200, clock, clock.sleep) as first:
        first.keys(["neighbour-fd00::5"])
        first.keys(["neighbour-fd00::5@up0"])  # held already
        with Locks(folder, clock.now + 1, clock, clock.sleep) as second, pytest.raises(TryAgain):
            second.keys(["neighbour-fd00::5@up1"])


GATES = gates()


def gated(folder: Folder, wait: float = 5.0) -> tuple[Locks, list[float]]:
    """With the gates of the agent, and what it has slept."""
    slept: list[float] = []
    return Locks(folder, time.monotonic() + wait, time.monotonic, slept.append, gates=GATES), slept


def test_a_thread_hands_a_lock_over(folder: Folder) -> None:
    """The next one is woken, and has not tried in vain."""
    (first, _), (second, slept) = gated(folder), gated(folder)
    got = threading.Event()

    def take() -> None:
        with second:
            second.uuids([U1])
            got.set()

    thread = threading.Thread(target=take)
    with first:
        first.uuids([U1])
        thread.start()
        assert not got.wait(0.1)
    assert got.wait(5)
    thread.join()
    assert slept == []


@pytest.mark.parametrize("inside", [True, False])
def test_whoever_waits_in_vain_keeps_no_gate(folder: Folder, inside: bool) -> None:
    """Whether a thread of this process has the lock, or somebody else."""
    holder, _ = gated(folder) if inside else make(folder)
    with holder:
        holder.keys(["k"])
        late, slept = gated(folder, wait=-1.0)
        with late, pytest.raises(TryAgain, match=f"held by process {os.getpid()}"):
            late.keys(["k"])
        assert slept == []
    after, slept = gated(folder)
    with after:
        after.keys(["k"])
    assert slept == [] and not any(gate.locked() for gate in GATES.values())


def test_a_deadline_is_put_off_for_what_is_taken_later(folder: Folder) -> None:
    """It never comes nearer: what has begun has the time that it was given."""
    other, _ = make(folder)
    with other:
        other.keys(["k"])
        mine, clock = make(folder, 1.0)
        with mine:
            mine.uuids([U1])
            clock.now += 2.0  # a script has used it up
            mine.lasts(clock.now + 3.0)
            mine.lasts(clock.now - 9.0)
            with pytest.raises(TryAgain):
                mine.anew(["k"])
            assert sum(clock.slept) == pytest.approx(3.0)


def test_what_is_locked_is_known_wherever_a_signal_comes(folder: Folder) -> None:
    """Told to end at any line of taking locks and of letting them go, a process takes them again at once on its way back."""

    def work(locks: Locks) -> None:
        with locks:
            try:
                locks.devices(["a", "b"])
                locks.uuids([U1])
                locks.keys(["k", "l"])
                locks.release_keys()
                locks.anew(["l", "m"])
                locks.anew(["l", "n"])
            finally:
                locks.anew(["k", "l"])

    before = len(os.listdir("/proc/self/fd"))
    with Lines() as whole:
        work(make(folder)[0])
    assert whole.count > 100
    for at in range(whole.count):
        locks, clock = make(folder)
        with Lines(at) as lines, suppress(Interrupted):
            work(locks)
        locks.release()  # as the process's end does
        other, waited = make(folder)
        with other:
            other.devices(["a", "b"])
            other.uuids([U1])
            other.keys(["k", "l", "m", "n"])
        assert waited.slept == clock.slept == [], lines.where
        assert len(os.listdir("/proc/self/fd")) == before, lines.where
