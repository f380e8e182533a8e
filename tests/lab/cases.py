"""The agent on both nodes of a Ganeti cluster that calls no script on the way down: however an instance goes, both nodes come out clean.

    tests/lab/agent [--without-hooks | --with-hooks] [--rounds N] [--out FOLDER] LABORATORY

LABORATORY (or the variable NETCOMMON_LAB) is the folder of a running laboratory (tests/lab/nodes.py says what that is). Its node1 and node2
have bridge br0, Open vSwitch's ovs0, and the table gntroute that the uplink eth3 is looked up in; guests have 10.77.x.y from their MAC. One
instance with a bridged, a routed and an Open vSwitch NIC is stopped, moved and killed in all ways; each time the moment that the
kernel told of a tap's end, and the moment that nothing of ours was left, are taken by a process of the tests' own (tests.lab.watch).

Prints tables of seconds. Exit status 0: each time both nodes were clean within a second, nothing was disturbed, and both are in the end as
they were at first.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from tests.lab.guest import Guest
from tests.lab.nodes import Failed, Node, until
from tests.lab.ping import Ping

BAR = 1.0  #: seconds from a tap's end to a clean node, and from a migration's end to the routed guest's first answer
LONGEST = 30.0
AFTERWARDS = 2.0  #: seconds after a migration in which a silence is still taken for its own
INSTANCE = "inst1.gnt.example"
OTHER_DOMAIN = ".gnt.example"
BRIDGED, ROUTED = "10.77.1.50", "10.77.31.50"
NICS = (
    f"0:mode=bridged,link=br0,ip={BRIDGED},mac=aa:77:0a:4d:01:32",
    f"1:mode=routed,link=gntroute,ip={ROUTED},mac=ae:77:0a:4d:1f:32",
    "2:mode=openvswitch,link=ovs0,vlan=.10,mac=aa:77:0a:4d:02:32",
)
EXTRA = (
    "mode=bridged,link=br0,mac=aa:77:0a:4d:01:33",
    "mode=openvswitch,link=ovs0,mac=aa:77:0a:4d:02:33",
    "mode=routed,link=gntroute,ip=10.77.31.60,mac=ae:77:0a:4d:1f:3c",
)
TAGS = "netcommon:1:addresses:fd77:31::50,netcommon:1:uplink_proxy:both,netcommon:1:limited,netcommon:0:static_fdb"
#: What is ours for the three: that it is not there afterwards only says something if it was there before.
EXPECTED = ("rule iif", "route ", "proxy neighbour ", "ovs port", "alias ", "nftables 5 ", "nftables 1 ", "file /run/netcommon/nics/")


class Sample:
    """One measurement. Seconds."""

    def __init__(self, case: str, source: str) -> None:
        self.case, self.source = case, source
        self.nics: dict[str, float] = {}  #: mode -> from its tap's end until nothing of the NIC is left
        self.node = 0.0  #: from the last tap's end until nothing is left on the node
        self.end = 0.0  #: from the end of Ganeti's command until then; negative: before it
        self.answer: float | None = None  #: from the end of a migration until the routed guest answers on the target; negative: before it
        self.silence: float | None = None


class Cases:
    def __init__(self, laboratory: str, out: str) -> None:
        self._laboratory, self._out = laboratory, out
        self.nodes = {name: Node(laboratory, name, f"{out}/agent-{name}.log") for name in ("node1", "node2")}
        self.wire = Node(laboratory, "wire", f"{out}/wire.log")
        self.samples: list[Sample] = []
        self.faults: list[str] = []
        self.guest = Guest(self.nodes, self.wire, INSTANCE, self.silent)

    # -- Ganeti

    def ganeti(self, *command: str) -> None:
        self.nodes["node1"].run(*command)

    def add(self) -> None:
        nics = [word for nic in NICS for word in ("--net", nic)]
        self.ganeti(
            *("gnt-instance", "add", "-t", "diskless", "-o", "nil+default", "--no-install", "--no-start"),
            *("--no-name-check", "--no-ip-check", "-n", f"node1{OTHER_DOMAIN}", "--tags", TAGS, *nics, INSTANCE),
        )

    def start(self) -> Node:
        """Starts the instance, and waits for its guest; the node that it is on."""
        self.ganeti("gnt-instance", "start", INSTANCE)
        node = self.guest.at()
        self.settled(node, 3)
        self.guest.up((BRIDGED, ROUTED))
        return node

    def other(self, node: Node) -> Node:
        return next(each for each in self.nodes.values() if each is not node)

    def silent(self, node: Node) -> str:
        """Keep the state of a node whose guest does not answer, and say what has drifted there."""
        self.keep(f"{node.name}.silent", self.state(node))
        return f"check says: {node.check()!r}"

    # -- what must hold

    def settled(self, node: Node, nics: int) -> None:
        """So many NICs are up on ``node``, nothing of them has drifted, and what is ours is there."""
        wanted = [("up", False)] * nics  # and nothing is owed to a guest that has migrated in

        def up() -> bool:
            return [(each["state"], each["incoming"]) for each in node.records().values()] == wanted

        try:
            until(f"{node.name}: {nics} NICs up", 5, up)
        except Failed as error:
            self.keep(f"{node.name}.not-up", self.state(node))
            found = [(key, each["nic"]["INTERFACE"], each["state"], each["incoming"]) for key, each in node.records().items()]
            raise Failed(f"{error}; on record: {found}") from None
        until(f"{node.name}: check: {node.check()}", 5, lambda: not node.check())
        there = node.leftovers()
        missing = [what for what in EXPECTED if not any(thing.startswith(what) for thing in there)]
        if missing:
            raise Failed(f"{node.name}: not there while the instance runs: {', '.join(missing)}; but {there}")

    def nothing(self, *nodes: Node) -> None:
        for node in nodes:
            left = node.leftovers()
            if left:
                raise Failed(f"{node.name}: left behind: {left}")

    # -- one measurement

    def measure(self, case: str, source: Node, action: Callable[[], object], move: bool = False) -> Sample:
        """Does ``action``, after which nothing is left on ``source``, and all is on the other node if it is a ``move``."""
        assert source.watch
        modes = {uuid: record["nic"]["MODE"] for uuid, record in source.records().items()}
        sample, told = Sample(case, source.name), source.watch.told
        first = len(told)
        action()
        end = time.monotonic()
        try:
            until("it is clean", LONGEST, lambda: len(told) > first and set(told[-1]) == {"clean"}, 0.01)
        except Failed:
            raise Failed(f"{case}: after {LONGEST:g} s there is left on {source.name}: {source.leftovers()}") from None
        gone = {event["uuid"]: event["at"] for event in told[first:] if "gone" in event}
        clean = {event["nic"]: event["clean"] for event in told[first:] if "nic" in event}
        if set(gone) != set(modes) or set(clean) != set(modes):
            raise Failed(f"{case}: {modes} were to go, but: {told[first:]}")
        sample.nics = {modes[uuid]: clean[uuid] - gone[uuid] for uuid in modes}
        sample.node = told[-1]["clean"] - max(gone.values())
        sample.end = told[-1]["clean"] - end
        self.samples.append(sample)
        self.nothing(source)
        arrived = ""
        if move:
            self.settled(self.other(source), len(modes))
            arrived = f"; all is done on {self.other(source).name} at {time.monotonic() - end:+.2f} s at the latest"
        else:
            self.nothing(self.other(source))
        if max(sample.node, *sample.nics.values()) > BAR:
            self.faults.append(f"{case} on {source.name}: clean only after {sample.node:.3f} s ({sample.nics})")
        figures = f"clean {sample.node * 1000:.0f} ms after the last tap, {sample.end:+.2f} s from the command's end"
        say(f"  {case} on {source.name}: {figures}{arrived}")
        return sample

    def migrate(self, source: Node) -> None:
        """A migration, with the routed guest pinged from outside."""
        ping = Ping(self.wire, ROUTED, f"{self._out}/ping")
        ended: list[float] = []

        def action() -> None:
            self.ganeti("gnt-instance", "migrate", "--force", INSTANCE)
            ended.append(time.time())

        try:
            until("the routed guest answers before its migration", LONGEST, lambda: bool(ping.answers()))
            sample = self.measure("migration", source, action, move=True)
            until("the routed guest answers after its migration", LONGEST, lambda: ping.answers()[-1] > ended[0] + AFTERWARDS)
        finally:
            ping.close()
        replies = ping.answers()
        near = [(later - sooner, later) for sooner, later in pairwise(replies) if later > ended[0] - 8]
        sample.silence, answered = max(near, default=(float("inf"), float("inf")))
        sample.answer = answered - ended[0]
        say(f"    routed guest silent for {sample.silence:.2f} s, answers {sample.answer:+.2f} s from the command's end")
        if sample.answer > BAR:
            self.faults.append(f"migration from {source.name}: the routed guest answers only {sample.answer:.2f} s after the end")

    # -- the cases

    def once(self) -> None:
        """All ways for an instance to go."""
        node = self.start()
        self.measure("shutdown", node, lambda: self.ganeti("gnt-instance", "shutdown", "--timeout=60", INSTANCE))
        node = self.start()
        self.measure("crash", node, lambda: node.signal(9, node.qemu(INSTANCE)))
        self.ganeti("gnt-instance", "shutdown", "--timeout=0", INSTANCE)
        node = self.start()
        self.measure("poweroff", node, lambda: self.poweroff(node))
        self.ganeti("gnt-instance", "shutdown", "--timeout=0", INSTANCE)
        node = self.start()
        for _there_and_back in range(2):
            self.migrate(node)
            node = self.guest.at()
        for _there_and_back in range(2):
            self.measure("failover", node, self.failover, move=True)
            node = self.guest.at()
            self.guest.up((BRIDGED, ROUTED))
        self.measure("remove", node, lambda: self.ganeti("gnt-instance", "remove", "--force", "--shutdown-timeout=0", INSTANCE))
        self.add()

    def failover(self) -> None:
        self.ganeti("gnt-instance", "failover", "--force", "--shutdown-timeout=0", INSTANCE)

    def poweroff(self, node: Node) -> None:
        """The guest powers off by itself: Ganeti knows nothing of it."""
        for _press in range(12):  # as Ganeti does: the guest may not listen yet
            node.monitor(INSTANCE, "system_powerdown")
            try:
                until("the guest powers off", 5, lambda: not node.qemu(INSTANCE), 0.01)
                return
            except Failed:
                continue
        raise Failed("the guest does not power off")

    def hot(self) -> None:
        """Hot-plugging: what comes is not disturbed, what goes is cleaned up."""
        node = self.start()
        modify = ("gnt-instance", "modify", "--hotplug", "--force", "--net")
        for number, nic in enumerate(EXTRA):
            self.ganeti(*modify, f"add:{nic}", INSTANCE)
            self.settled(node, 4 + number)
        self.ganeti(*modify, "5:modify,ip=10.77.31.61,mac=ae:77:0a:4d:1f:3d", INSTANCE)
        self.settled(node, 6)
        assert node.watch
        for number in (5, 4, 3):
            first = len(node.watch.told)
            before = node.records()
            self.ganeti(*modify, f"{number}:remove", INSTANCE)
            told = node.watch.told
            until("the NIC is clean", LONGEST, lambda: any("nic" in event for event in told[first:]))  # noqa: B023
            gone = next(event for event in told[first:] if "gone" in event)
            clean = next(event for event in told[first:] if "nic" in event)
            sample = Sample("hot-remove", node.name)
            sample.node = clean["clean"] - gone["at"] if clean["clean"] else float("inf")
            sample.nics = {before[gone["uuid"]]["nic"]["MODE"]: sample.node}
            sample.end = (clean["clean"] or 0) - time.monotonic()
            self.samples.append(sample)
            if sample.node > BAR:
                self.faults.append(f"hot-remove on {node.name}: {sample.nics}, left {clean.get('left')}")
            self.settled(node, number)
        self.measure("shutdown", node, lambda: self.ganeti("gnt-instance", "shutdown", "--timeout=60", INSTANCE))

    # -- all

    def state(self, node: Node) -> str:
        """The node's network as the laboratory shows it, without what comes and goes by itself."""
        with open(f"{self._laboratory}/netstate", "rb") as script:
            done = subprocess.run(node.command("sh", "-s"), stdin=script, capture_output=True, check=True)
        lines, skip = [], False
        for line in done.stdout.decode().splitlines():
            if line.startswith("== "):
                skip = bool(re.search("ovs-vsctl|tc qdisc|ip -br|bridge fdb", line))
            if not skip and not re.match("(33:33|01:00:5e)|local fe80|fe80::/64", line):
                lines.append(line)
        return "\n".join(lines)

    def keep(self, name: str, text: str) -> None:
        """Leaves a file beside the logs."""
        with open(f"{self._out}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, hooks: bool, rounds: int) -> None:
        """One run with, or without, Ganeti's hooks. Raises Failed."""
        say(f"{'With' if hooks else 'Without'} our hooks in Ganeti:")
        begin = time.monotonic()
        for node in self.nodes.values():
            node.install(hooks)
            self.nothing(node)
        before = {node.name: self.state(node) for node in self.nodes.values()}
        try:
            for node in self.nodes.values():
                node.start()
            self.add()
            self.hot()
            for number in range(rounds):
                self.once()
                self.cost(f"after round {number + 1}", time.monotonic() - begin)
            for node in self.nodes.values():
                self.counted(node)
            say(f"  guests that hung in their boot and were reset: {self.guest.resets}")
        finally:
            self.nodes["node1"].attempt("gnt-instance", "remove", "--force", "--shutdown-timeout=0", "--ignore-failures", INSTANCE)
            for node in self.nodes.values():
                node.stop()
                node.uninstall()
        for node in self.nodes.values():
            self.nothing(node)
            after = self.state(node)
            if after != before[node.name]:
                self.keep(f"{node.name}.before", before[node.name])
                self.keep(f"{node.name}.after", after)
                self.faults.append(f"{node.name} is not as it was: compare {self._out}/{node.name}.before and .after")

    def cost(self, when: str, seconds: float) -> None:
        """What the agents have used so far."""
        for node in self.nodes.values():
            found = node.metrics()
            cpu, memory = found["process_cpu_seconds_total"], found["process_resident_memory_bytes"] / (1 << 20)
            opened, gone = found["process_open_fds"], found.get('netcommon_device_gone_total{outcome="clean"}', 0)
            used = f"{cpu:.2f} s of CPU, {memory:.1f} MiB, {opened:g} descriptors"
            say(f"  {node.name} {when}, {seconds:.0f} s: {gone:g} NICs cleaned up; {used}")

    def counted(self, node: Node) -> None:
        """What the agent did that it should not have."""
        wrong = ("netcommon_drift_total", "netcommon_repairs_total", "netcommon_reaped_total", "netcommon_overruns_total")
        for name, value in node.metrics().items():
            if value and (name.startswith(wrong) or (name.startswith("netcommon_device_gone_total") and '"clean"' not in name)):
                self.faults.append(f"{node.name}: {name} is {value:g}")
        status = node.agent_status()
        if status["alarms"]:
            self.faults.append(f"{node.name}: alarms: {status['alarms']}")
        say(f"  {node.name}: {status['agent']}")


def say(text: str) -> None:
    print(text, flush=True)


def table(samples: Sequence[Sample]) -> str:
    """Milliseconds, median and maximum, as Markdown."""
    lines = ["| | times | bridged | routed | openvswitch | the node | from the command's end |", f"|{' --- |' * 7}"]
    for case in dict.fromkeys(sample.case for sample in samples):
        of = [sample for sample in samples if sample.case == case]
        columns = [_both([sample.nics[mode] for sample in of if mode in sample.nics]) for mode in ("bridged", "routed", "openvswitch")]
        ends = [sample.end for sample in of]
        columns += [_both([sample.node for sample in of]), f"{min(ends):+.2f} to {max(ends):+.2f} s"]
        lines.append(f"| {case} | {len(of)} | {' | '.join(columns)} |")
    answers = [sample.answer for sample in samples if sample.answer is not None]
    if answers:
        lines.append(f"\nThe routed guest's first answer: {min(answers):+.2f} to {max(answers):+.2f} s from the end of a migration.")
    return "\n".join(lines)


def _both(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f}, {max(seconds) * 1000:.0f} ms" if seconds else "-"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests/lab/agent", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--with-hooks", action="store_true", help="only with our hooks in Ganeti")
    parser.add_argument("--without-hooks", action="store_true", help="only without them")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--out", default="", metavar="FOLDER", help="where logs are kept")
    parser.add_argument("laboratory", nargs="?", default=os.environ.get("NETCOMMON_LAB", ""), metavar="LABORATORY")
    given = parser.parse_args(arguments)
    if not os.path.exists(f"{given.laboratory}/lib.sh"):
        parser.error("LABORATORY, or the variable NETCOMMON_LAB, is to be a folder with a lib.sh")
    out = given.out or tempfile.mkdtemp(prefix="netcommon-lab-")
    os.makedirs(out, exist_ok=True)
    faults = []
    for hooks in (False, True):
        if (given.with_hooks and not hooks) or (given.without_hooks and hooks):
            continue
        cases = Cases(os.path.abspath(given.laboratory), out)
        try:
            cases.run(hooks, given.rounds)
        except Failed as error:
            cases.faults.append(str(error))
        say(table(cases.samples))
        faults += cases.faults
    for fault in faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    print(f"logs: {out}")
    return 1 if faults else 0
