"""Members, leaders, majorities and services killed, stopped and cut off from each other under eight writers.

Nothing is lost, half done or done twice, a minority accepts nothing, and who watches is told on and on.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netregistry.client import Client
from netregistry.stores.base import Put, Unavailable, Unknown
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_place import Endpoint
from runtime.errors import NetcommonError
from tests.support.bootstrap import ROOT
from tests.support.etcd import HOST, Cluster, Member, stopped, unheard
from tests.support.netns import wait_until
from tests.support.registry_process import Registry
from tests.support.sample import FULL, sample
from tests.support.service_histories import acknowledged, faults, told
from tests.support.service_writers import NODE, WRITERS, prepare

ROUNDS = 200 if FULL else 7
GOES_ON = 120  #: seconds until something is acknowledged again, on a machine that is busy
WHILE = 2.0  #: seconds for which a minority is asked


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 3, parts=True) as made:
        yield made


class Writers:
    """Eight writers and a watcher, who go on at the other service where one does not answer. ``folder``: where they note it."""

    def __init__(self, folder: Path, registries: list[Registry]) -> None:
        folder.mkdir()
        self.acknowledged, self.told = acknowledged(folder), told(folder)
        for number, registry in enumerate(registries):
            (folder / f"socket{number}").symlink_to(registry.socket)
        with registries[0].client() as asked, registries[0].client(f"node:{NODE}") as node:
            prepare(asked, node)
        argv = [sys.executable, "-m", "tests.support.service_writers", str(folder)]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"
        self._process.stdout.close()

    def go_on(self, more: int) -> None:
        """Wait until more is acknowledged, and told to who watches."""
        before, heard = self.acknowledged(), self.told()
        wait_until(lambda: self.acknowledged() > before + more, GOES_ON, "writers that go on")
        wait_until(lambda: self.told() > heard + more, GOES_ON, "who watches is told")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Alone:
    """Stores over one member each, which were opened while there was a majority."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._asked = cluster, 0
        place = cluster.place
        self._stores = {each.name: EtcdStore(place._replace(endpoints=(Endpoint(HOST, each.client),))) for each in cluster.members}

    def accepts_nothing(self, member: Member) -> None:
        """Ask a member that is cut off from the others."""
        wait_until(lambda: self._cluster.leader_of(member) in ("", "0"), 30, f"{member.name} has no leader")
        self._asked += 1
        with pytest.raises((Unavailable, Unknown)):
            self._stores[member.name].commit([], [Put(f"never/{self._asked}", b"")])
        with pytest.raises(Unavailable):
            self._stores[member.name].get("ledger")

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def refuses(asked: Client) -> bool:
    """Tell whether a change is refused for now. It is rehearsed: what stands still would do it when it goes on."""
    try:
        asked.change("POST", "networks", {"name": "never", "subnet": "192.0.2.0/24"}, dry_run=True)
    except NetcommonError:
        return True
    return False


def test_whoever_is_killed_stopped_or_cut_off(three: Cluster, tmp_path: Path) -> None:
    registries = [Registry(tmp_path / name, three.url) for name in ("one", "two")]
    registries[0].command("init")
    for registry in registries:
        registry.start()
    notes = tmp_path / "notes"
    writers, alone, chance = Writers(notes, registries), Alone(three), random.Random(7)

    def killed(*members: Member) -> None:
        for member in members:
            member.kill()

    def back() -> None:
        three.start(*(member for member in three.members if member.process is None))

    def others(one: Member) -> list[Member]:
        return [member for member in three.members if member is not one]

    def a_member_is_killed() -> None:
        killed(chance.choice(three.members))
        writers.go_on(5)
        back()

    def the_leader_is_killed() -> None:
        killed(three.leader())
        writers.go_on(5)
        back()

    def the_leader_stands_still() -> None:
        with stopped(three.leader()):
            writers.go_on(5)

    def the_leader_is_unheard() -> None:
        with unheard(three.leader()):
            writers.go_on(5)

    def the_leader_is_cut_off() -> None:
        one = three.leader()
        with three.parted([one], others(one)):
            alone.accepts_nothing(one)
            writers.go_on(5)
            alone.accepts_nothing(one)

    def another_is_cut_off() -> None:
        one = chance.choice(others(three.leader()))
        with three.parted([one], others(one)):
            alone.accepts_nothing(one)
            writers.go_on(5)
            alone.accepts_nothing(one)

    def a_majority_is_killed() -> None:
        killed(*chance.sample(three.members, 2))
        nothing()
        back()

    def a_majority_stands_still() -> None:
        with stopped(*chance.sample(three.members, 2)):
            nothing()

    def all_are_cut_off_from_each_other() -> None:
        with three.parted(*([member] for member in three.members)):
            for member in three.members:
                alone.accepts_nothing(member)
            nothing()

    def all_are_killed() -> None:
        killed(*three.members)
        nothing()
        back()

    def a_service_is_killed() -> None:
        registry = chance.choice(registries)
        registry.kill()
        writers.go_on(5)
        registry.start()

    def nothing() -> None:
        """Let a minority be asked for a while: what was sent before may be acknowledged until the first ones are refused."""
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(registry.client()) for registry in registries]
            for _ in range(2):  # also what was asked before is answered by then
                wait_until(lambda: all(map(refuses, clients)), 30, "it is told that there is no majority")
            before, end = writers.acknowledged(), time.monotonic() + WHILE
            while time.monotonic() < end:
                assert all(map(refuses, clients))
            assert writers.acknowledged() == before, "a minority accepts nothing"

    harms: list[Callable[[], None]] = [a_member_is_killed, the_leader_is_killed, the_leader_stands_still, the_leader_is_unheard]
    harms += [the_leader_is_cut_off, another_is_cut_off, a_majority_is_killed, a_majority_stands_still]
    harms += [all_are_cut_off_from_each_other, all_are_killed, a_service_is_killed]
    harms = sample(harms, ROUNDS)
    try:
        for round_ in range(ROUNDS):
            harms[round_ % len(harms)]()
            writers.go_on(WRITERS)
    finally:
        writers.kill()
        alone.close()
        for registry in registries:
            registry.signal(signal.SIGTERM)
            registry.kill()
    file = tmp_path / "held.sqlite"
    three.history(file, three.leader())
    assert faults(notes, file) == []
    with contextlib.closing(sqlite3.connect(file)) as database:
        accepted = database.execute("SELECT key FROM versions WHERE key LIKE 'never/%'").fetchall()
        assert accepted == [], "a minority accepts nothing, also not later"
        lost = database.execute("SELECT key FROM items WHERE key LIKE 'history/%' ORDER BY key DESC LIMIT 20").fetchall()
        database.executemany("DELETE FROM versions WHERE key = ?", lost)
        database.commit()
    assert faults(notes, file) != [], "what would be lost is seen"
    assert writers.acknowledged() > 8 * ROUNDS and writers.told() > 50
