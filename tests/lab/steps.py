"""A registry beside a Ganeti cluster: whatever is done to an instance, what is wanted, seen and there in kernels agrees soon after.

    tests/lab/registry [--rounds N] [--out FOLDER] [--busy] LABORATORY

LABORATORY is as tests/lab/agent wants it, and besides has a program `setup` that brings a node back which was killed, with its disk as it
was, and nothing in /run. On the master runs a registry's service; each node has our hooks, an agent that has joined, and an importer. One
instance with two bridged NICs, a routed one and one of Open vSwitch is added, started, tagged while it runs, moved, changed with and
without hot-plugging, failed over from a dead node, and removed; then the cluster has another master.

Tags, migrations, stop and start are done N times. After each step the three are printed side by side, with the seconds from what the step
did until all agree. Exit status 0: all agreed, in time (``--busy``: however long it took), nothing of ours is left where no NIC is, and in
the end nowhere.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from netregistry.client import Problem
from tests.lab.cluster import DOMAIN, Cluster
from tests.lab.guest import Guest
from tests.lab.leftovers import leftovers
from tests.lab.nodes import Failed, Node, until
from tests.lab.picture import Expected, Kernel, Watching, side_by_side
from tests.lab.ping import Ping

UP, STOP, REMOVED, VERDICT = 6.0, 6.0, 15.0, 4.0  #: seconds
LEASE = 15.0  #: for which a node that is dead is not known to be
REAPED = 300.0  #: until the agent of a node that had no power has found what is of ours in Open vSwitch's file, in two inventories
LONGEST = 120.0
INSTANCE = "inst1" + DOMAIN
BRIDGED, ROUTED = "10.77.1.50", "10.77.31.50"
FORGED, OUTSIDE = "10.77.5.51", "10.77.5.9/24"  #: what the guest sends from on its NIC 3, and the world's address there
TAG = "netcommon:3:allow_ip_spoofing"
NICS = {
    0: Expected("aa:77:0a:4d:01:32", BRIDGED, ("br0",)),
    1: Expected("ae:77:0a:4d:1f:32", ROUTED, (f"to {ROUTED}",)),
    2: Expected("aa:77:0a:4d:02:32", "", ("switch",)),
    3: Expected("aa:77:0a:4d:05:33", "10.77.5.52", ("br0",)),
}
ARGUMENTS = (
    f"0:mode=bridged,link=br0,ip={BRIDGED},mac={NICS[0].mac}",
    f"1:mode=routed,link=gntroute,ip={ROUTED},mac={NICS[1].mac}",
    f"2:mode=openvswitch,link=ovs0,vlan=.10,mac={NICS[2].mac}",
    f"3:mode=bridged,link=br0,ip={NICS[3].ip},mac={NICS[3].mac}",
)
ADDED = Expected("aa:77:0a:4d:01:3c", "10.77.1.60", ("br0",))
CHANGED = Expected("aa:77:0a:4d:01:3d", "10.77.1.61", ("br0",))


class Row(NamedTuple):
    """What a step took. Seconds."""

    step: str
    command: float  #: Ganeti's command
    what: str  #: from what until what
    took: float
    bar: float


class Steps:
    """``busy``: the machine has other things to do, so that times are no faults."""

    def __init__(self, laboratory: str, out: str, busy: bool, rounds: int) -> None:
        self._laboratory, self._out, self._busy, self._rounds = laboratory, out, busy, rounds
        self.cluster = Cluster(laboratory, out)
        self.guest = Guest(self.cluster.nodes, self.cluster.wire, INSTANCE, lambda node: f"check says: {node.check()!r}")
        self.kernels: dict[str, Kernel] = {}
        self.rows: list[Row] = []
        self.faults: list[str] = []
        self.free = False  #: whether the tag is on

    # -- one step

    def on(self, node: str, nics: Mapping[int, Expected] = NICS) -> dict[int, Expected]:
        """Give the NICs as they are to be on a node; "": on none."""
        return {index: one._replace(node=node, free=self.free and index == 3) for index, one in nics.items()}

    def step(
        self,
        name: str,
        action: Callable[[], object],
        expected: Mapping[int, Expected],
        bar: float = UP,
        grace: float = 0.0,
        start: str = "kernel",
        clean: float = UP,
    ) -> float:
        """Do something, wait until all agree, and give when the command had ended.

        ``bar``: the seconds from ``start`` on: when it is wanted and kernels have it ("kernel"), when it is wanted, or the command's end
        ("end"); ``grace``: more of them; ``clean``: those until nothing is left on nodes that have no NIC.
        """
        say(f"\n{name}")
        watching = Watching(self.cluster.asked(), self.kernels, expected)
        try:
            begun = time.time()
            action()
            ended = time.time()
            since = watching.agreed(LONGEST)
        except Failed as error:
            if watching.last:
                say(side_by_side(watching.last))
            say(f"  FAULT: {error}")
            raise Failed(f"{name}: {error}") from None
        finally:
            watching.close()
        assert watching.last
        say(side_by_side(watching.last))
        agreed = max(since.values())
        starts = {
            "kernel": (max(since["wanted"], since["kernel"]), "wanted and there, to reported"),
            "wanted": (since["wanted"], "wanted, to there and reported"),
            "end": (ended, "the command's end, to wanted, there and reported"),
        }
        at, what = starts[start]
        self.took(Row(name, ended - begun, what, agreed - at, bar + grace))
        parts = ", ".join(f"{part} {at - ended:+.1f}" for part, at in since.items())
        say(f"  agreed {agreed - ended:+.1f} s from the command's end ({parts})")
        self.tidy(expected, clean)
        return ended

    def took(self, row: Row) -> None:
        """Keep a figure; it is a fault where it is above its bar."""
        self.rows.append(row)
        say(f"  {row.what}: {row.took:.1f} s of {row.bar:g}")
        if row.took > row.bar and not self._busy:
            self.faults.append(f"{row.step}: {row.what}: {row.took:.1f} s, and not {row.bar:g}")

    def tidy(self, expected: Mapping[int, Expected], seconds: float) -> None:
        """Wait until nothing of ours is on nodes on which there is no NIC. Raises Failed."""
        used = {one.node for one in expected.values()}
        for name, node in self.cluster.nodes.items():
            if name not in used and name in self.kernels:
                self.cleaned(node, seconds)

    def cleaned(self, node: Node, seconds: float) -> None:
        """Wait until nothing of ours is on a node, and say after how long if there was something. Raises Failed."""
        begun, last = time.time(), []
        while left := node.leftovers():
            if time.time() > begun + seconds:
                raise Failed(f"{node.name}: after {seconds:g} s there is left: {left}")
            last = left
            time.sleep(0.2)
        if last:
            say(f"  the last of ours on {node.name} that went: {', '.join(last)}")
            self.took(Row(f"{node.name} has no NIC", 0.0, "all agree, to nothing left there", time.time() - begun, seconds))

    def gnt(self, *words: str) -> Callable[[], object]:
        """Give a command about the instance, to be done."""
        return lambda: self.cluster.ganeti("gnt-instance", *words, INSTANCE)

    def up(self) -> None:
        self.guest.up((BRIDGED, ROUTED), 6.0 if self._busy else 1.0)

    # -- the steps

    def all(self) -> None:
        """All steps. Raises Failed."""
        words = [word for nic in ARGUMENTS for word in ("--net", nic)]
        add = ["add", "-t", "diskless", "-o", "nil+default", "--no-install", "--no-start", "--no-name-check", "--no-ip-check"]
        self.step("add", self.gnt(*add, "-n", f"node1{DOMAIN}", *words), self.on(""), start="end")
        self.step("start", self.gnt("start"), self.on("node1"))
        self.up()
        for _round in range(self._rounds):
            self.tagged("tag")
            self.moved()
            self.step("shutdown", self.gnt("shutdown", "--timeout=0"), self.on(""), STOP)
            self.step("start", self.gnt("start"), self.on("node1"))
            self.up()
        self.cold()
        self.dead()
        self.mastered()
        self.hot()
        ended = self.step("remove", self.gnt("remove", "--force", "--shutdown-timeout=0"), {}, REMOVED, start="end")
        until("its addresses are free", REMOVED, self.all_free)
        self.took(Row("remove", 0.0, "the command's end, to a free address", time.time() - ended, REMOVED))

    def all_free(self) -> bool:
        """Tell whether the registry would give the addresses and MACs to somebody else."""
        for one in NICS.values():
            fields = {"cluster": self.cluster.name, "instance": "other", "mac": one.mac, **({"ip": one.ip} if one.ip else {})}
            try:
                self.cluster.client.change("POST", "nics", fields, dry_run=True)
            except Problem:
                return False
        return True

    def tagged(self, name: str) -> None:
        """A tag on the running guest, and off: from the configuration's writing to another verdict about its forged frames."""
        ping, other = (Ping(self.cluster.wire, address, f"{self._out}/ping-{address}") for address in (FORGED, BRIDGED))
        try:
            until("the untouched NIC answers", LONGEST, lambda: bool(other.answers()))
            if ping.answers():
                raise Failed(f"{name}: a forged frame of the guest has passed: {FORGED} answers")
            for verb, free in (("add-tags", True), ("remove-tags", False)):
                self.free = free
                self.step(f"{name}: {verb}", lambda verb=verb: self.tag(verb), self.on(self.guest.at().name), VERDICT, start="wanted")  # type: ignore[misc]
                written = os.stat(self.cluster.master.path("/var/lib/ganeti/config.data")).st_mtime
                self.verdict(name, ping, written, free)
            silence = max((later - sooner for sooner, later in zip(other.answers(), other.answers()[1:], strict=False)), default=0.0)
            say(f"  the untouched NIC's longest silence meanwhile: {silence:.2f} s")
        finally:
            ping.close()
            other.close()

    def tag(self, verb: str) -> None:
        self.cluster.ganeti("gnt-instance", verb, INSTANCE, TAG)

    def verdict(self, name: str, ping: Ping, written: float, free: bool) -> None:
        """Wait until forged frames pass, or pass no more."""
        if free:
            until(f"{name}: forged frames pass", LONGEST, lambda: any(at > written for at in ping.answers()))
            at = next(at for at in ping.answers() if at > written)
        else:
            until(f"{name}: forged frames pass no more", LONGEST, lambda: time.time() - ping.answers()[-1] > VERDICT, 0.2)
            at = ping.answers()[-1]
        self.took(Row(name, 0.0, f"configuration written, to forged frames that {'pass' if free else 'do not'}", at - written, VERDICT))

    def moved(self) -> None:
        """A migration there, and one back."""
        for node in ("node2", "node1"):
            self.step(f"migrate to {node}", self.gnt("migrate", "--force"), self.on(node))
            self.up()

    def hot(self) -> None:
        """NICs that come, change and go while the guest runs."""

        def plugged(words: str) -> Callable[[], object]:
            return lambda: self.plug(words)

        net = "mode=bridged,link=br0,ip={},mac={}"
        self.step("hot-plug", plugged(f"add:{net.format(ADDED.ip, ADDED.mac)}"), self.on("node1", {**NICS, 4: ADDED}))
        changed = plugged(f"4:modify,ip={CHANGED.ip},mac={CHANGED.mac}")
        self.step("hot modify", changed, self.on("node1", {**NICS, 4: CHANGED}))
        self.step("hot-unplug", plugged("4:remove"), self.on("node1"))

    def plug(self, words: str) -> None:
        """Change a NIC while the guest runs. Raises Failed where the guest is slower than the five seconds that Ganeti waits."""
        done = self.cluster.master.attempt("gnt-instance", "modify", "--hotplug", "--force", "--net", words, INSTANCE)
        if done.returncode or "Could not hotplug device" in done.stdout + done.stderr:
            raise Failed(f"Ganeti: {done.stdout}{done.stderr}")

    def cold(self) -> None:
        """What Ganeti's configuration has, and the guest only after its next start."""
        modify = ("modify", "--force", "--net")
        changed = NICS[0]._replace(ip=CHANGED.ip, pending=("ip",), has=(NICS[0].mac, NICS[0].ip))
        self.step("modify without hot-plug", self.gnt(*modify, f"0:modify,ip={CHANGED.ip}"), self.on("node1", {**NICS, 0: changed}))
        waiting = self.on("node1", {**NICS, 0: changed}) | {4: ADDED}
        self.step("add a NIC without hot-plug", self.gnt(*modify, f"add:mode=bridged,link=br0,ip={ADDED.ip},mac={ADDED.mac}"), waiting)
        changed = NICS[0]._replace(ip=CHANGED.ip)
        self.step("stop for the changes", self.gnt("shutdown", "--timeout=0"), self.on("", {**NICS, 0: changed, 4: ADDED}), STOP)
        self.step("start with the changes", self.gnt("start"), self.on("node1", {**NICS, 0: changed, 4: ADDED}))
        self.step("stop to undo them", self.gnt("shutdown", "--timeout=0"), self.on("", {**NICS, 0: changed, 4: ADDED}), STOP)
        self.step("undo them", self.gnt(*modify, "4:remove", "--net", f"0:modify,ip={BRIDGED}"), self.on(""), REMOVED, start="end")
        self.step("start as before", self.gnt("start"), self.on("node1"))
        self.up()

    def dead(self) -> None:
        """The primary node dies; its instance fails over; then it comes back."""
        self.step("migrate to node2", self.gnt("migrate", "--force"), self.on("node2"))
        node = self.cluster.nodes["node2"]
        self.kernels.pop("node2").close()
        died = time.time()
        node.die()

        def failover() -> None:
            self.cluster.ganeti("gnt-node", "modify", "--force", "--offline=yes", f"node2{DOMAIN}")
            self.cluster.ganeti("gnt-instance", "failover", "--force", "--shutdown-timeout=0", INSTANCE)

        self.step("failover, primary dead", failover, self.on("node1"), grace=max(0.0, LEASE - (time.time() - died)))
        self.up()
        self.step("node2 comes back", self.revive, self.on("node1"), start="end", clean=REAPED)

    def revive(self) -> None:
        done = subprocess.run([f"{self._laboratory}/setup"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Failed(f"setup: {done.stdout}{done.stderr}")
        self.cluster.ganeti("gnt-node", "modify", "--force", "--offline=no", f"node2{DOMAIN}")
        self.kernels["node2"] = Kernel(self.cluster.back("node2"))

    def mastered(self) -> None:
        """The other node becomes the master; its importer takes over."""
        for name in ("node2", "node1"):
            self.step(f"master failover to {name}", lambda name=name: self.cluster.mastered(name), self.on("node1"))  # type: ignore[misc]
            self.tagged(f"tag, {name} is the master")

    # -- all

    def run(self) -> None:
        """The laboratory as it was, in the end too. Raises Failed."""
        wire, before = self.cluster.wire, set(leftovers())
        wire.run("ip", "address", "add", OUTSIDE, "dev", "seg1")
        try:
            self.cluster.start()
            self.kernels = {name: Kernel(node) for name, node in self.cluster.nodes.items()}
            self.all()
            for node in self.cluster.nodes.values():
                self.alarms(node)
        finally:
            wire.attempt("ip", "address", "del", OUTSIDE, "dev", "seg1")
            remove = ("gnt-instance", "remove", "--force", "--shutdown-timeout=0", "--ignore-failures", INSTANCE)
            if any(node.dead for node in self.cluster.nodes.values()):
                self.revive()
            self.cluster.master.attempt(*remove)
            for kernel in self.kernels.values():
                kernel.close()
            self.cluster.stop()
        for node in self.cluster.nodes.values():
            if left := node.leftovers():
                self.faults.append(f"{node.name}: left behind: {left}")
        if more := set(leftovers()) - before:
            self.faults.append(f"left behind on the machine: {sorted(more)}")

    def alarms(self, node: Node) -> None:
        """What an agent has to say that it should not."""
        if alarms := node.agent_status()["alarms"]:
            self.faults.append(f"{node.name}: alarms: {alarms}")


def say(text: str) -> None:
    print(text, flush=True)


def table(rows: Sequence[Row]) -> str:
    """Give all figures, as Markdown: medians, and the longest."""
    lines = ["| step | times | command | from, to | median | longest | at most |", f"|{' --- |' * 7}"]
    for step, what in dict.fromkeys((row.step, row.what) for row in rows):
        of = [row for row in rows if (row.step, row.what) == (step, what)]
        command = statistics.median(row.command for row in of)
        took = [row.took for row in of]
        figures = f"{statistics.median(took):.1f} s | {max(took):.1f} s | {of[0].bar:.0f} s"
        lines.append(f"| {step} | {len(of)} | {f'{command:.1f} s' if command else ''} | {what} | {figures} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests/lab/registry", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--busy", action="store_true", help="the machine is busy: how long something takes is no fault")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--out", default="", metavar="FOLDER", help="where logs and state are kept; the nodes have to see it")
    parser.add_argument("laboratory", nargs="?", default=os.environ.get("NETCOMMON_LAB", ""), metavar="LABORATORY")
    given = parser.parse_args(arguments)
    if not os.path.exists(f"{given.laboratory}/lib.sh"):
        parser.error("LABORATORY, or the variable NETCOMMON_LAB, is to be a folder with a lib.sh")
    out = os.path.abspath(given.out or tempfile.mkdtemp(prefix="netcommon-lab-"))
    os.makedirs(out, exist_ok=True)
    steps = Steps(os.path.abspath(given.laboratory), out, given.busy, given.rounds)
    try:
        steps.run()
    except Failed as error:
        steps.faults.append(str(error))
    say("\n" + table(steps.rows))
    say(f"guests that hung in their boot and were reset: {steps.guest.resets}")
    for fault in steps.faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    print(f"logs: {out}")
    return 1 if steps.faults else 0
