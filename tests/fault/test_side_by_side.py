"""Sixteen real hooks at once on the same NICs and taps, a collector and the agent beside them: what is left of each NIC is what one of
its last calls left, whole; and all of them come back.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

import pytest

from netcommon.lifecycle.check import check
from tests.kernel.test_doors_parallel import collect, environment, leftovers
from tests.support import figures
from tests.support.agent import agent
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import BASE, HOOKS
from tests.support.sample import FULL
from tests.support.snapshot import diff, snapshot

WORKERS = 16
NICS, TAPS = 3, 3
ROUNDS = 20 if FULL else 1
CALLS = 4 if FULL else 2  #: of each worker in a round
MODES: Mapping[str, Mapping[str, str]] = {"routed": {}, "bridged": {"MODE": "bridged", "LINK": "br0", "IP": ""}}
CONTEXTS = ("hot-remove", "hot-remove", "migrate", "true")

#: How long one hook may take among sixteen (seconds).
LIMIT = 30.0


class Made(NamedTuple):
    """One call that was made: for which NIC, on which tap, what, when, and how it ended."""

    nic: int
    tap: str
    what: str  #: a mode, or a context
    began: float
    ended: float
    status: int
    said: str

    @property
    def up(self) -> bool:
        return self.what in MODES


def call(random: Random) -> Made:
    """A hook, as one of many callers starts it."""
    number, tap = random.randrange(NICS), f"tap{random.randrange(TAPS)}"
    what = random.choice([*MODES, *MODES, *CONTEXTS])
    variables = {**environment(number, **MODES.get(what, {})), "INTERFACE": tap}
    if what in MODES:
        argv = [str(HOOKS / "kvm-ifup"), tap]
        variables["MIGRATION_PHASE"] = random.choice(["", "", "pre", "post"])
    else:
        argv = [str(HOOKS / "kvm-ifdown"), tap, what]
    began = time.monotonic()
    done = subprocess.run(argv, env={**BASE, **variables}, cwd="/", capture_output=True, timeout=60 * slowness(), check=False)
    return Made(number, tap, what, began, time.monotonic(), done.returncode, (done.stdout + done.stderr).decode())


def burst(seed: int) -> list[Made]:
    """All workers at once, each with its own calls, one after the other."""
    made: list[list[Made]] = [[] for _ in range(WORKERS)]

    def work(number: int) -> None:
        random = Random(f"{seed} {number}")
        for _ in range(CALLS):
            made[number].append(call(random))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CALLS * 60 * slowness())
        assert not thread.is_alive(), "a hook hangs"
    return sorted((one for each in made for one in each), key=lambda one: one.ended)


def judged(made: list[Made]) -> list[str]:
    """What is wrong with the end of a burst."""
    wrong = [f"{one}" for one in made if one.status != 0 or one.ended - one.began > LIMIT * slowness()]
    with ours() as node:
        records, problems = node.store.all()
        reports = [check(node, node.host.view(), record) for record in records]
    wrong += problems
    for report in reports:
        record = report.record
        if record.state == "up" and report.drift:
            wrong.append(f"drift: {record.key} {report.drift}")
        if record.state not in ("up", "closing"):
            wrong.append(f"left {record.state}: {record.key}")
    for number in range(NICS):
        uuid = environment(number)["INTERFACE_UUID"]
        found = [(record.device, record.nic.mode) for record in records if record.uuid == uuid and not record.moved]
        # whoever began after a call on this NIC, or on the tap that it took, had ended may have undone what that call did
        own = [one for one in made if one.nic == number]
        last = [one for one in own if not any(other.began > one.ended for other in own)]
        ups = {(one.tap, one.what) for one in last if one.up}
        if found and any(one.up for one in own) and found[0] not in ups and not any(not one.up and one.what == "true" for one in own):
            wrong.append(f"NIC {number} is {found}, which no last call asked for: {last}")
        rivals = [one for one in made if one.up and one.nic != number and any(one.tap == tap for tap, _mode in ups)]
        if not found and ups and all(one.up for one in last) and not rivals:
            wrong.append(f"NIC {number} is gone, and its last calls were ups: {last}")
    devices = [(record.device, record.ifindex) for record in records]
    if len(devices) != len(set(devices)):
        wrong.append(f"two records for one device: {devices}")
    return wrong


@contextlib.contextmanager
def collector() -> Iterator[list[int]]:
    """gc again and again, in a process of its own, as a timer would start it."""
    stop = threading.Event()
    runs = [0]

    def work() -> None:
        while not stop.is_set():
            child = os.fork()
            if child == 0:
                status = 1
                with contextlib.suppress(BaseException):
                    collect(0)
                    status = 0
                os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "gc failed"
            runs[0] += 1
            stop.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield runs
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("helper", ["gc", pytest.param("agent", marks=pytest.mark.no_agent("starts agents of its own"))])
def test_sixteen_at_once(node: Node, helper: str) -> None:
    """In each round every worker makes some calls; afterwards one more call of each NIC alone wins, and then all go."""
    node.bridge("br0")
    for number in range(TAPS):
        node.tap(f"tap{number}")
        for state in ("up", "down"):
            run("ip", "link", "set", f"tap{number}", state)
    for number in range(NICS):
        subprocess.run([str(HOOKS / "kvm-ifup"), "tap0"], env={**BASE, **environment(number), "INTERFACE": "tap0"}, check=True)
        cleared()
    before = snapshot(())
    failures: list[str] = []
    calls = 0
    with agent() if helper == "agent" else collector():
        for seed in range(ROUNDS):
            made = burst(seed)
            calls += len(made)
            wait_until(lambda: not [line for line in judged([]) if "left" in line], 5, "the last hook's record")
            failures += [f"round {seed}: {line}" for line in judged(made)]
            last = Random(seed).choice(list(MODES))
            winner = {**environment(0, **MODES[last]), "INTERFACE": "tap1"}
            done = subprocess.run([str(HOOKS / "kvm-ifup"), "tap1"], env={**BASE, **winner}, capture_output=True, check=False)
            with ours() as seen:
                record = seen.store.read(winner["INTERFACE_UUID"])
                if done.returncode or record is None or (record.device, record.nic.mode) != ("tap1", last):
                    failures.append(f"round {seed}: {done} but {record}")
            cleared()
    failures += leftovers() if helper == "gc" else []
    failures += diff(before, snapshot(()))
    figures.add("interleavings", ROUNDS, len(failures), len(failures), f"and {calls} real hooks beside the {helper}")
    assert not failures, "\n".join(failures[:20])


def cleared() -> None:
    """All NICs go, also those that have come up on two taps."""
    for _ in range(2):
        for number in range(NICS):
            for tap in range(TAPS):
                variables = {**environment(number), "INTERFACE": f"tap{tap}"}
                with ours() as node:
                    if not any(record.uuid == variables["INTERFACE_UUID"] for record in node.store.all()[0]):
                        break
                subprocess.run([str(HOOKS / "kvm-ifdown"), f"tap{tap}", "hot-remove"], env={**BASE, **variables}, check=True)
