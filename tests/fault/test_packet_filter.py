"""nftables that is slow or locked, and netlink sockets that lose answers: the hook is back in time, its status is true, one gc or the next
up sets right what is left, and nobody ever sees a part of a table.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import collect, environment, leftovers
from tests.support import figures, strace
from tests.support.agent import agent, watched
from tests.support.cases import BRIDGED, Host, network
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL, sample
from tests.support.snapshot import Snapshot, diff, snapshot

NIC = {**BRIDGED, "IP": "10.0.0.5", "TAGS": ""}
DOORS: Mapping[str, tuple[str, ...]] = {"kvm-ifup": ("tap0",), "kvm-ifdown": ("tap0", "hot-remove")}

#: What is done to a system call on a netlink socket, and whether what was meant has happened all the same (the answer is lost).
EFFECTS = ("error=ENOBUFS", "error=EAGAIN", "delay_enter=1500000")
LIMIT = 1.0  #: of a service, in the sweep (seconds)

#: Somebody's transaction that takes long: so many addresses at once.
MANY = 150_000 if FULL else 20_000
LOOKS = 3  #: so many times at least the reader has seen all of it


@pytest.fixture
def host(node: Node) -> Host:
    """A bridge, and a guarded NIC that has been up and down."""
    Path("/etc/netcommon/config.toml").write_text(f"[hook]\nservice_timeout = {LIMIT}\n")
    node.bridge("br0")
    return Host(node, environment(0, **NIC))


def parts(ruleset: list[str]) -> dict[str, int]:
    """How many rules each chain of each table of ours has; chains that are named for the device have its name."""
    found: Counter[str] = Counter()
    for item in map(json.loads, ruleset):
        for kind, thing in item.items():
            table = thing.get("name", "") if kind == "table" else thing.get("table", "")
            if table.startswith("netcommon") and kind in ("chain", "rule"):
                chain = re.sub(r"^(in|out)-\w+$", r"\1", thing["name"] if kind == "chain" else thing["chain"])
                found[f"{table} {chain}"] += kind == "rule"
    return dict(found)


def listed() -> dict[str, int]:
    return parts([json.dumps(item) for item in json.loads(run("nft", "-j", "list", "ruleset"))["nftables"]])


def torn(seen: Mapping[str, int], whole: Mapping[str, int]) -> list[str]:
    """Chains that have other rules than they have in a whole table; and tables of which only some chains are there.

    The chains of a device come and go by a transaction of their own.
    """
    wrong = [f"{chain} has {count} rules" for chain, count in seen.items() if count != whole.get(chain)]
    tables = {chain.split()[0] for chain in seen}
    lasting = [chain for chain in whole if chain.split()[0] in tables and chain.split()[1] not in ("in", "out")]
    return wrong + [f"{chain} is missing" for chain in lasting if chain not in seen]


def asked(door: str, nic: Mapping[str, str]) -> list[tuple[str, int]]:
    """The system calls of an undisturbed run on netlink sockets: each by its name and number."""
    ended, lines = strace._traced(door, nic, DOORS[door], "-yy", "-e", "trace=sendto,recvfrom")
    assert ended.status == 0, ended
    counts: Counter[str] = Counter()
    found = []
    for line in lines:
        call, bracket, rest = line.partition("(")
        counts[call] += 1
        if bracket and "<NETLINK:" in rest.partition(",")[0]:
            found.append((call, counts[call]))
    return found


def test_lost_and_late_answers(host: Host) -> None:
    """Each word on a netlink socket: no room for it (an overrun), no answer, or a late one."""
    whole = parts(host.whole["nft"])
    assert whole, "a guarded NIC has rules"
    words = {"kvm-ifup": asked("kvm-ifup", host.nic), "kvm-ifdown": asked("kvm-ifdown", host.nic)}
    failures: list[str] = []
    tried = 0
    for door in DOORS:
        points = [(call, number, effect) for effect in EFFECTS for call, number in words[door]]
        for position, (call, number, effect) in enumerate(sample(points, 6)):
            if door == "kvm-ifdown":
                host.up()
            begun = time.monotonic()
            ended, disturbed = strace.disturbed(door, host.nic, DOORS[door], call, effect, str(number))
            seconds = time.monotonic() - begun
            # of those that are only late strace does not say so
            wrong = [] if disturbed == effect.startswith("error") else [f"{disturbed} calls were disturbed"]
            if ended.status not in (0, 69, 75) or (ended.status == 0) == ("error" in ended.stderr):
                wrong.append(f"status {ended.status}")
            if seconds > 3 * LIMIT + 4 * slowness():
                wrong.append(f"took {seconds:.1f} s")
            wrong += torn(listed(), whole)
            if position % 2 or (door == "kvm-ifup" and ended.status == 0):
                if ended.status or door == "kvm-ifdown":
                    host.up()
                wrong += diff(host.whole, network())
            else:
                collect()
            host.down()
            wrong += [*leftovers(), *diff(host.bare, snapshot())]
            tried += 1
            if wrong:
                failures.append(f"{door}, {call} {number}, {effect}: {wrong}: {ended.stderr}")
    figures.add("nftables", tried, len(failures), len(failures), "answers lost and late")
    assert not failures, "\n".join(failures)


class Looks:
    """How often somebody has read it all. nft begins anew whenever something changes while it reads: who changes lets it come to an end,
    however slow the machine: each reading begins among changes, and would go on for ever among them."""

    def __init__(self) -> None:
        self.count = 0
        self._over = False
        self._ended = threading.Condition()

    def end(self) -> None:
        with self._ended:
            self.count += 1
            self._ended.notify_all()

    def await_next(self) -> None:
        """Until one more has ended, or there is none any more; not for ever, should that hang."""
        with self._ended:
            count = self.count
            self._ended.wait_for(lambda: self._over or self.count > count, 30 * slowness())

    def over(self) -> None:
        """Nobody reads any more."""
        with self._ended:
            self._over = True
            self._ended.notify_all()


@contextmanager
def long_transactions(looks: Looks) -> Iterator[None]:
    """Somebody loads a large set again and again: each time nftables is locked for a while (its commit mutex)."""
    elements = ", ".join(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(MANY))
    text = "add table ip large\nadd set ip large hosts { type ipv4_addr; }\nflush set ip large hosts\n"
    Path("/run/large.nft").write_text(f"{text}add element ip large hosts {{ {elements} }}\n")
    stop, loaded = threading.Event(), threading.Event()

    def load() -> None:
        while not stop.is_set():
            run("nft", "-f", "/run/large.nft")
            loaded.set()
            looks.await_next()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert loaded.wait(60), "the large set"
        yield
    finally:
        stop.set()
        looks.over()
        thread.join()
        run("nft", "delete", "table", "ip", "large")
        Path("/run/large.nft").unlink()


def test_a_table_is_whole_or_not_there(host: Host) -> None:
    """Somebody else's long transactions before ours, and a reader who looks all the time: ups and downs succeed, and no part is seen."""
    whole = parts(host.whole["nft"])
    failures: list[str] = []
    longest, rounds = 0.0, 0
    stop, looks = threading.Event(), Looks()

    def change() -> None:
        nonlocal longest, rounds
        try:
            # whoever reads waits for the long transactions too
            while rounds < (10 if FULL else 2) or (looks.count <= LOOKS and rounds < 20):
                rounds += 1
                looks.await_next()
                for door in DOORS:
                    outcome = rundoor(door, host.nic, *DOORS[door])
                    longest = max(longest, outcome.seconds)
                    if outcome.status:
                        failures.append(f"{door}: {outcome}")
        finally:
            stop.set()

    with long_transactions(looks):
        worker = threading.Thread(target=change)
        worker.start()
        while not stop.is_set():
            failures += torn(own_tables(), whole)
            looks.end()
        worker.join()
    failures += diff(host.bare, snapshot())
    if longest > 10.0 * slowness():
        failures.append(f"a hook took {longest:.1f} s")
    note = f"beside long transactions: {looks.count} looks, longest hook {longest:.1f} s"
    figures.add("nftables", 2 * rounds, len(failures), len(failures), note)
    assert not failures and looks.count > LOOKS, "\n".join(failures[:20])


def own_tables() -> dict[str, int]:
    """What a reader sees of ours: each table by itself, as the large set need not be printed."""
    found: dict[str, int] = {}
    for item in json.loads(run("nft", "-j", "list", "tables"))["nftables"]:
        table = item.get("table")
        if table and table["name"].startswith("netcommon"):
            text = run("nft", "-j", "list", "table", table["family"], table["name"], check=False)
            with suppress(json.JSONDecodeError):  # it has gone meanwhile, or was changed while nft read it: it says so, in words
                found |= parts([json.dumps(each) for each in json.loads(text)["nftables"]])
    return found


def test_somebody_owns_a_table_of_that_name(host: Host) -> None:
    """Locked by its owner (nft(8), flags owner): an up is refused, with nothing changed; when the owner has gone, it succeeds."""
    host.up()
    there = {(one["family"], one["name"]) for one in tables()}
    host.down()
    for table in sorted(there):
        _owned_by_somebody(host, table)
    host.up()
    assert diff(host.whole, network()) == []
    host.down()
    figures.add("nftables", len(there), 0, 0)


def _owned_by_somebody(host: Host, table: tuple[str, str]) -> None:
    owner = subprocess.Popen(["nft", "-i"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert owner.stdin is not None
    try:
        owner.stdin.write(f"add table {table[0]} {table[1]} {{ flags owner; }}\n")
        owner.stdin.flush()
        wait_until(lambda: "owner" in run("nft", "list", "ruleset"), 5, "somebody's table")
        before = run("nft", "list", "ruleset")  # nft's JSON of such a table is none
        outcome = rundoor("kvm-ifup", host.nic)
        assert outcome.status in (69, 75) and outcome.stderr, outcome
        collect()
        assert run("nft", "list", "ruleset") == before
    finally:
        owner.stdin.close()
        owner.wait(10)
    assert diff(host.bare, snapshot()) == []


def tables() -> list[dict[str, str]]:
    listed = json.loads(run("nft", "-j", "list", "tables"))["nftables"]
    return [item["table"] for item in listed if "table" in item and item["table"]["name"].startswith("netcommon")]


@pytest.mark.no_agent("starts agents of its own")
def test_the_agent_whose_socket_overran(host: Host) -> None:
    """It is held while more happens than its sockets have room for; then it looks at everything, and mends what was lost meanwhile."""
    Path("/run/flood").write_text("".join(f"link set dev br0 alias flood-{number}\n" for number in range(30_000)))
    with agent() as running, watched() as seen:
        host.up()
        wait_until(lambda: not seen.drift(), 5, running.output)
        running.signal(signal.SIGSTOP)
        run("ip", "-batch", "/run/flood")
        run("ip", "link", "set", "dev", "br0", "alias", "")
        run("nft", "flush", "ruleset")
        run("ip", "link", "set", "tap0", "nomaster")
        assert seen.drift()
        running.signal(signal.SIGCONT)
        begun = time.monotonic()
        wait_until(lambda: not seen.drift(), 5, running.output)
        took = time.monotonic() - begun
        running.logged("were lost")
        assert nft(host.whole) == nft(network())
        host.down()
    Path("/run/flood").unlink()
    assert nft(host.bare) == nft(snapshot())
    figures.add("nftables", 1, 0, 0, f"an agent whose socket overran is through after {took:.2f} s")


def nft(found: Snapshot) -> dict[str, int]:
    return parts(found["nft"])
