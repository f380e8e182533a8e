"""Members, leaders, majorities and a service killed, stopped and cut off under eight writers: nothing is lost, half done or done twice."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.bootstrap import ROOT
from tests.support.etcd import Cluster, Member, stopped, unheard
from tests.support.netns import Namespace, wait_until
from tests.support.registry_process import Registry
from tests.support.sample import FULL
from tests.support.service_histories import Acknowledged, faults
from tests.support.service_writers import NETWORK, NODE

ROUNDS = 200 if FULL else 8
AT_ONCE = 2
GOES_ON = 120  #: seconds until something is acknowledged again, on a machine that is busy


def test_whoever_is_killed_stopped_or_cut_off(tmp_path: Path) -> None:
    """Two clusters at once, each with its service and in a network of its own: most of the time an election is waited for."""
    each = ROUNDS // AT_ONCE

    def part(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        with contextlib.closing(Namespace()) as network, network.entered(), Cluster(folder, 3) as three:
            history(three, folder, range(number * each, (number + 1) * each), random.Random(7 + number))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(part, range(AT_ONCE)))


def history(three: Cluster, tmp_path: Path, rounds: Sequence[int], chance: random.Random) -> None:
    """Do one harm a round under writers, and hold what they noted against what etcd has."""
    notes = tmp_path / "notes"
    notes.mkdir()
    registry = Registry(tmp_path / "one", three.url)
    registry.command("init")
    registry.start()
    (notes / "socket").symlink_to(registry.socket)
    with registry.client() as asked, registry.client(f"node:{NODE}") as node:
        asked.change("POST", "networks", {"uuid": NETWORK, "name": "blue", "subnet": "10.0.0.0/12"})
        node.change("POST", "nodes", {"uuid": NODE, "name": "node1"})
    argv = [sys.executable, "-m", "tests.support.service_writers", str(notes)]
    writers = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writers.stdout is not None and writers.stdout.readline() == "ready\n"
    writers.stdout.close()
    count = Acknowledged(notes)

    def goes_on(more: int) -> None:
        before = count()
        wait_until(lambda: count() > before + more, GOES_ON, "writers that go on")

    def killed(*members: Member) -> None:
        for member in members:
            member.kill()

    def back() -> None:
        three.start(*(member for member in three.members if member.process is None))

    def a_member_is_killed() -> None:
        killed(chance.choice(three.members))
        goes_on(5)
        back()

    def the_leader_is_killed() -> None:
        killed(three.leader())
        goes_on(5)
        back()

    def the_leader_stands_still() -> None:
        with stopped(three.leader()):
            goes_on(5)

    def the_leader_is_unheard() -> None:
        with unheard(three.leader()):
            goes_on(5)

    def a_majority_is_killed() -> None:
        killed(*chance.sample(three.members, 2))
        nothing()
        back()

    def a_majority_stands_still() -> None:
        with stopped(*chance.sample(three.members, 2)):
            nothing()

    def all_are_killed() -> None:
        killed(*three.members)
        nothing()
        back()

    def the_service_is_killed() -> None:
        registry.kill()
        registry.start()

    def nothing() -> None:
        """Let a minority be asked for a while: what was sent before may still be acknowledged, one of each writer and of the service."""
        with registry.client() as asked:
            refused = 0
            while refused < 3:
                try:
                    asked.change("POST", "networks", {"name": "never", "subnet": "192.0.2.0/24"}, dry_run=True)
                except Exception:
                    refused += 1
            before = count()
            with contextlib.suppress(Exception):
                asked.change("POST", "networks", {"name": "never", "subnet": "192.0.2.0/24"}, dry_run=True)
            assert count() == before, "a minority accepts nothing"

    harms: list[Callable[[], None]] = [a_member_is_killed, the_leader_is_killed, the_leader_stands_still, the_leader_is_unheard]
    harms += [a_majority_is_killed, a_majority_stands_still, all_are_killed, the_service_is_killed]
    try:
        for round_ in rounds:
            harms[round_ % len(harms)]()
            goes_on(8)
    finally:
        writers.send_signal(signal.SIGKILL)
        writers.wait()
        registry.signal(signal.SIGTERM)
        registry.kill()
    file = tmp_path / "held.sqlite"
    three.history(file, three.leader())
    assert faults(notes, file) == []
    with contextlib.closing(sqlite3.connect(file)) as database:
        lost = database.execute("SELECT key FROM items WHERE key LIKE 'history/%' ORDER BY key DESC LIMIT 20").fetchall()
        database.executemany("DELETE FROM versions WHERE key = ?", lost)
        database.commit()
    assert faults(notes, file) != [], "what would be lost is seen"
    assert count() > 8 * len(rounds) and sum(line.startswith("enter ") for line in (notes / "watcher").read_text().splitlines()) > 50
