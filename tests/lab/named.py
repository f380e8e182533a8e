"""Names of consoles in a Ganeti cluster with an underlay: whatever is done to a guest, its name leads to the node where it is.

    tests/lab/underlay [--rounds N] [--out FOLDER] [--busy] LABORATORY

LABORATORY is as tests/lab/registry wants it. Beside what that has there is an underlay with a zone, which Knot serves on the wire, routes
to each node's prefix, and on both nodes the forwarder of examples/endpoints; ``endpoints = ["console"]`` in the settings. Two guests, one
with NICs of all modes and one with a routed NIC alone, of which Ganeti 3.0 says nothing before it has arrived, are added, started,
migrated, failed over, stopped, started and removed; their node is killed, one of them fails over before it is fenced, the other afterwards;
at last the nodes are forgotten.

Somebody asks for all names every 20 ms. After each step they are asked by kdig, too, the address is looked for in the nodes' kernels by
ip(8), and the guest's own shell answers at its console there. Exit status 0: all of that was as it should be (``--busy``: however long it
took), no name ever led to two addresses, or to none while its guest was to have one, and nothing of ours is left.
"""

from __future__ import annotations

import ipaddress
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.lab import arguments
from tests.lab.cluster import DOMAIN, Cluster
from tests.lab.leftovers import leftovers
from tests.lab.nodes import PYTHON, SETTINGS, Failed, until
from tests.lab.zoned import NAMES, SITE, Answers, Zoned, held, prepared

TTL, AGE = 5, 10  #: seconds for which resolvers remember names, and for which what is retired stays at least
PROMPT, IMPORTED, LEASE = 3.0, 12.0, 18.0  #: bars, in seconds: a name follows; a guest's removal is read twice; a node's lease ends
LONGEST = 120.0
RESETS, BOOTED, ANSWERED = 4, 40.0, 10.0
#: The guest's first program is a shell on its console; what the laboratory's guests do besides goes on behind it.
SHELL = (
    'kernel_args=console=ttyS0 quiet rdinit=/bin/busybox -- sh -c "/bin/busybox mount -t devtmpfs dev /dev; /init & exec /bin/busybox sh"'
)
ADD = ("add", "-t", "diskless", "-o", "nil+default", "--no-install", "--no-start", "--no-name-check", "--no-ip-check")
AT_ONCE = "--shutdown-timeout=0"


class Guest(NamedTuple):
    """Describe an instance. ``told``: Ganeti says on the target of a migration that it comes."""

    instance: str
    mac: str
    nics: tuple[str, ...]
    told: bool

    @property
    def name(self) -> str:
        return f"{self.instance}.console.{NAMES}"

    @property
    def moving(self) -> str:
        return f"{self.instance}-migrating.console.{NAMES}"


ALL = Guest(
    f"inst1{DOMAIN}",
    "aa:77:0a:4d:01:32",
    (
        "mode=bridged,link=br0,ip=10.77.1.50,mac=aa:77:0a:4d:01:32",
        "mode=routed,link=gntroute,ip=10.77.31.50,mac=ae:77:0a:4d:1f:32",
        "mode=openvswitch,link=ovs0,vlan=.10,mac=aa:77:0a:4d:02:32",
    ),
    told=True,
)
ROUTED = Guest(f"inst2{DOMAIN}", "ae:77:0a:4d:1f:3c", ("mode=routed,link=gntroute,ip=10.77.31.60,mac=ae:77:0a:4d:1f:3c",), told=False)
GUESTS = (ALL, ROUTED)


class Row(NamedTuple):
    """A time that a step took. Seconds; no ``bar``: none is asked for."""

    step: str
    what: str
    took: float
    bar: float = math.inf


class Named:
    """``busy``: the machine has other things to do, so that times are no faults."""

    def __init__(self, laboratory: str, out: str, busy: bool, rounds: int) -> None:
        self._laboratory, self._out, self._busy, self._rounds = laboratory, out, busy, rounds
        settings = f'{SETTINGS}[nic]\nendpoints = ["console"]\n{prepared(out)}'
        self.cluster = Cluster(laboratory, out, settings)
        self.zone = Zoned(self.cluster.wire, out)
        self.answers: Answers | None = None
        self.prefixes: dict[str, ipaddress.IPv6Network] = {}
        self.rows: list[Row] = []
        self.faults: list[str] = []
        self.resets = self.steps = 0
        self._seen: dict[str, int] = {}  # by name: how many of its answers are judged

    # -- one step

    def step(
        self,
        what: str,
        guest: Guest,
        action: Callable[[], object],
        to: str,
        *,
        running: bool = True,
        gap: bool = False,
        bar: float = PROMPT,
    ) -> None:
        """Do something to a guest, and wait until its name is where it should be; then look at all of it. Raises Failed.

        ``to``: the node to which its name leads then, "" for none; ``running``: the guest runs there; ``gap``: the name may lead nowhere
        meanwhile; ``bar``: seconds from the command's end on.
        """
        say(f"\n{what}: {guest.instance}")
        self.steps += 1
        before, begun = self.now(guest.name), time.monotonic()
        moves = bool(before and to) and not self.on(before[0], to)
        action()
        ended = time.monotonic()
        say(f"  Ganeti's command: {ended - begun:.1f} s")

        def settled() -> bool:
            found = self.now(guest.name)
            there = len(found) == 1 and self.on(found[0], to) if to else not found
            return there and not self.now(guest.moving)

        try:
            until(f"its name leads to {to or 'nothing'}, and no name of a migration is there", LONGEST, settled, 0.02)
        except Failed as error:
            raise Failed(f"{what}: {guest.instance}: {error}: {self.told(guest)}") from None
        self.timed(what, guest, begun, ended, bar if moves or bool(before) != bool(to) else math.inf)
        self.judged(what, guest, gap, "migrate" in what)
        self.looked(f"{what}: {guest.instance}", guest, to, running)

    def now(self, name: str) -> tuple[str, ...]:
        assert self.answers
        return self.answers.now(name)

    def on(self, address: str, node: str) -> bool:
        """Tell whether an address is of a node's prefix."""
        return ipaddress.IPv6Address(address) in self.prefixes[node]

    def told(self, guest: Guest) -> str:
        """Say how it stands, for a message."""
        assert self.answers
        where = self.cluster.nodes["node1"].attempt("netcommon", "registry", "underlay", "where", guest.instance)
        return f"{self.now(guest.name)}, {self.now(guest.moving)}; {where.stdout}{where.stderr}"

    def timed(self, what: str, guest: Guest, begun: float, ended: float, bar: float) -> None:
        """Take the figures of a step."""
        assert self.answers
        last = self.answers.said[guest.name][-1]
        if last.at > begun:
            self.took(
                Row(
                    what,
                    "the command's end, to the name there" if last.addresses else "the command's end, to no name",
                    last.at - ended,
                    bar,
                )
            )
        moved = [each for each in self.answers.said[guest.moving] if each.at > begun]
        if moved and moved[0].addresses:
            self.took(Row(what, "the command's begin, to the name of the migration", moved[0].at - begun))
            self.took(Row(what, "the name there, to none of the migration", moved[-1].at - last.at, PROMPT))
        if "migrate" in what and last.at > begun:
            gone = [
                each["at"] for node in self.cluster.nodes.values() if node.watch for each in node.watch.told if each.get("at", 0.0) > begun
            ]
            if gone:
                self.took(Row(what, "the source's last tap is gone, to the name there", last.at - max(gone), PROMPT))

    def took(self, row: Row) -> None:
        """Keep a figure; it is a fault where it is above its bar."""
        self.rows.append(row)
        say(f"  {row.what}: {row.took:.2f} s")
        if row.took > row.bar and not self._busy:
            self.faults.append(f"{row.step}: {row.what}: {row.took:.1f} s, and not {row.bar:g}")

    def fault(self, text: str) -> None:
        say(f"  FAULT: {text}")
        self.faults.append(text)

    def judged(self, what: str, guest: Guest, gap: bool, migrates: bool) -> None:
        """Hold each answer since the step before against what may be told."""
        assert self.answers
        for name, said in self.answers.said.items():
            began = self._seen.get(name, 0)
            self._seen[name] = len(said) - 1  # the answer that holds now is the first one of the next step
            told = [each.addresses for each in said[began:]]
            found = [each for index, each in enumerate(told) if index == 0 or each != told[index - 1]]
            wrong = [each for each in said[began:] if each.rcode not in ("NOERROR", "NXDOMAIN") or len(each.addresses) > 1]
            if name == guest.name:
                some = [each for each in found if each]
                allowed = {(*some,), ((), *some), (*some, ())} | ({(some[0], (), *some[1:])} if gap and some else set())
                right = len(some) <= 2 and tuple(found) in allowed
                right &= bool(found[0] and found[-1]) <= (gap or () not in found)
            elif name == guest.moving and migrates and (guest.told or len(found) > 1):
                right = found == [(), self.now(guest.name), ()]
            else:
                right = len(found) == 1
            if wrong or not right:
                self.fault(f"{what}: {name}: {found} {wrong or ''}")

    def looked(self, what: str, guest: Guest, to: str, running: bool) -> None:
        """Look at a guest's name by kdig, at the kernels by ip(8), and at the console by the guest's own shell."""
        there = {name: held(node) for name, node in self.cluster.nodes.items()}
        runs = [name for name, node in self.cluster.nodes.items() if not node.dead and node.qemu(guest.instance)]
        found = self.zone.addresses(guest.name)
        if runs != ([to] if running and to else []):
            self.fault(f"{what}: it runs on {runs}")
        if found != list(self.now(guest.name)) or self.zone.addresses(guest.moving):
            self.fault(f"{what}: kdig says {found}, and {self.zone.addresses(guest.moving)} of a migration")
        if not to:
            return
        having = [name for name, addresses in there.items() if found[0] in addresses]
        if having != [to] and not self.cluster.nodes[to].dead:
            self.fault(f"{what}: {found[0]} is on {having}: {there}")
        if running:
            begun = time.monotonic()
            self.boots(guest, found[0])
            say(f"  {guest.name} is {found[0]} on {to}, and its guest says {guest.mac} there ({time.monotonic() - begun:.1f} s)")

    def boots(self, guest: Guest, address: str) -> None:
        """Wait until a guest's shell answers at its console. Raises Failed."""
        for _attempt in range(RESETS):
            end = time.monotonic() + BOOTED * (4 if self._busy else 1)
            while time.monotonic() < end:
                said = self.zone.console(address, ANSWERED)
                if said and said != guest.mac:
                    raise Failed(f"at the console of {guest.instance} speaks {said}")
                if said:
                    return
            self.resets += 1  # an emulated guest's kernel hangs now and then while it boots
            self.running(guest).monitor(guest.instance, "system_reset")
        raise Failed(f"{guest.instance}: nobody speaks at its console, {address}")

    def running(self, guest: Guest):  # type: ignore[no-untyped-def]
        return next(node for node in self.cluster.nodes.values() if not node.dead and node.qemu(guest.instance))

    def gnt(self, guest: Guest, *words: str) -> Callable[[], object]:
        """Give a command about an instance, to be done."""
        return lambda: self.cluster.ganeti("gnt-instance", *words, guest.instance)

    # -- the steps

    def all(self) -> None:
        """All steps. Raises Failed."""
        for guest in GUESTS:
            nics = [word for index, nic in enumerate(guest.nics) for word in ("--net", f"{index}:{nic}")]
            self.step("add", guest, self.gnt(guest, *ADD, "-H", f"kvm:{SHELL}", "-n", f"node1{DOMAIN}", *nics), "")
            self.step("start", guest, self.gnt(guest, "start"), "node1")
        for _round in range(self._rounds):
            for guest in GUESTS:
                self.round(guest)
        self.crash()
        for guest in GUESTS:
            self.removed(guest)
        self.forgotten()

    def round(self, guest: Guest) -> None:
        for node in ("node2", "node1"):
            self.step("migrate", guest, self.gnt(guest, "migrate", "--force"), node)
        for node in ("node2", "node1"):
            self.step("failover", guest, self.gnt(guest, "failover", "--force", AT_ONCE), node)
        self.step("shutdown", guest, self.gnt(guest, "shutdown", "--timeout=0"), "node1", running=False)
        self.step("start again", guest, self.gnt(guest, "start"), "node1")

    def crash(self) -> None:
        """The guests' node dies; one fails over before the node is fenced, the other afterwards; then the node comes back."""
        for guest in GUESTS:
            self.step("migrate", guest, self.gnt(guest, "migrate", "--force"), "node2")
        master, node, dead = self.cluster.master, self.cluster.nodes["node2"], f"node2{DOMAIN}"
        before, died = {guest: self.now(guest.name) for guest in GUESTS}, time.monotonic()
        node.die()
        self.zone.lost("node2")
        for guest in GUESTS:
            self.step("its node is dead", guest, lambda: None, "node2", running=False)
        self.cluster.ganeti("gnt-node", "modify", "--force", "--offline=yes", dead)
        failover = ("failover", "--force", "--ignore-consistency", AT_ONCE)
        left = max(0.0, LEASE - (time.monotonic() - died))
        self.step("failover, its node is dead", ALL, self.gnt(ALL, *failover), "node1", bar=left + PROMPT)
        fence = ("registry", "underlay", "fence", "node2", "--yes")
        self.step("fence its node", ROUTED, lambda: master.type(*fence), "", running=False)
        self.step("failover, its node is fenced", ROUTED, self.gnt(ROUTED, *failover), "node1")
        self.step("its node comes back", ROUTED, self.revive, "node1")
        self.step("its node comes back", ALL, lambda: None, "node1")
        self.gone([address for found in before.values() for address in found], "its node comes back", "back, to no address of before")

    def revive(self) -> None:
        """Let the dead node boot. Raises Failed."""
        done = subprocess.run([f"{self._laboratory}/setup"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Failed(f"setup: {done.stdout}{done.stderr}")
        self.cluster.ganeti("gnt-node", "modify", "--force", "--offline=no", f"node2{DOMAIN}")
        self.zone.served(self.cluster.back("node2"), str(self.prefixes["node2"]))

    def removed(self, guest: Guest) -> None:
        """Its name goes; its address rests, and then goes, too."""
        found, words = self.now(guest.name), ("remove", "--force", AT_ONCE)
        self.step("remove", guest, self.gnt(guest, *words), "", running=False, bar=IMPORTED)
        resting = self.resting()
        if resting.get(found[0]) != "retired" or found[0] not in held(self.cluster.nodes["node1"]):
            self.fault(f"remove: {guest.instance}: {found[0]} is not in quarantine: {resting}")
        self.gone(found, "remove", "no name, to no address", TTL + AGE + PROMPT)

    def resting(self) -> dict[str, str]:
        """Give the addresses in quarantine, and what they wait for, as the command says."""
        said = json.loads(self.cluster.master.type("registry", "underlay", "quarantine", "--json"))
        return {item["address"]: item["state"] for item in said["items"] if "address" in item}

    def gone(self, addresses: Sequence[str], step: str, what: str, bar: float = math.inf) -> None:
        """Wait until nobody has addresses any more. Raises Failed."""

        def none() -> bool:
            there = {each for node in self.cluster.nodes.values() for each in held(node)} | {*self.resting()}
            return there.isdisjoint(addresses)

        self.took(Row(step, what, until(f"{', '.join(addresses)} are gone", LONGEST, none, 0.2), bar))

    def forgotten(self) -> None:
        """Nothing but the nodes' own addresses is left, and nothing at all when they are forgotten."""
        alone = {name: [str(prefix[1])] for name, prefix in self.prefixes.items()}
        until("the nodes have their own addresses alone", LONGEST, lambda: self.have() == alone)
        for node in self.cluster.nodes.values():
            if alarms := node.agent_status()["alarms"]:
                self.fault(f"{node.name}: alarms: {alarms}")
        for name in self.prefixes:
            self.cluster.master.type("registry", "node", "forget", "--force", name)
        took = until("no node has an address of the underlay", LONGEST, lambda: self.have() == {name: [] for name in alone})
        self.took(Row("forget the nodes", "to no address of the underlay", took))

    def have(self) -> Mapping[str, list[str]]:
        return {name: held(node) for name, node in self.cluster.nodes.items()}

    # -- all

    def run(self) -> None:
        """The laboratory as it was, in the end too. Raises Failed."""
        before, nodes = set(leftovers()), self.whole()
        try:
            self.zone.start()
            self.cluster.start()
            self.laid()
            self.answers = Answers(self.cluster.wire, [name for guest in GUESTS for name in (guest.name, guest.moving)])
            self.all()
        except Failed as error:
            self.fault(str(error))
        finally:
            self.ended()
        for node in self.cluster.nodes.values():
            if left := node.leftovers():
                self.fault(f"{node.name}: left behind: {left}")
        if more := set(leftovers()) - before:
            self.fault(f"left behind on the machine: {sorted(more)}")
        for name, lines in self.whole().items():
            if more := set(lines) ^ set(nodes[name]):
                self.fault(f"{name} is another one: {sorted(more)[:12]}")

    def whole(self) -> dict[str, list[str]]:
        """Give what the network of each node is, and of the wire."""
        places = {"wire": self.cluster.wire, **self.cluster.nodes}
        words = ("address ", "route ", "rule ", "link ")
        return {
            name: [line for line in each.run(PYTHON, "tests.lab.whole").splitlines() if line.startswith(words)]
            for name, each in places.items()
        }

    def laid(self) -> None:
        """Begin with the underlay. Raises Failed."""
        times = ("--ttl", str(TTL), "--minimum-age", str(AGE))
        self.cluster.master.type("registry", "underlay", "init", SITE, "--zone", NAMES, *times)
        for item in self.cluster.client.all("prefixes"):
            self.prefixes[item["name"]] = ipaddress.IPv6Network(item["prefix"]["prefix"])
        for name, node in self.cluster.nodes.items():
            self.zone.served(node, str(self.prefixes[name]))
        own = {name: [str(prefix[1])] for name, prefix in self.prefixes.items()}
        took = until("each node has its own address", LONGEST, lambda: self.have() == own)
        say(f"the nodes have {own} ({took:.1f} s)")

    def ended(self) -> None:
        """End everything. Raises Failed."""
        if any(node.dead for node in self.cluster.nodes.values()):
            self.revive()
        for guest in GUESTS:
            self.cluster.master.attempt("gnt-instance", "remove", "--force", AT_ONCE, "--ignore-failures", guest.instance)
        if self.answers:
            self.answers.close()
        self.zone.stop()
        self.cluster.stop()


def say(text: str) -> None:
    print(text, flush=True)


def table(rows: Sequence[Row]) -> str:
    """Give all figures, as Markdown: medians, and the longest."""
    lines = ["| step | times | from, to | median | longest |", f"|{' --- |' * 5}"]
    for step, what in dict.fromkeys((row.step, row.what) for row in rows):
        took = [row.took for row in rows if (row.step, row.what) == (step, what)]
        lines.append(f"| {step} | {len(took)} | {what} | {statistics.median(took):.2f} s | {max(took):.2f} s |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("tests/lab/underlay", __doc__)
    parser.add_argument("--busy", action="store_true", help="the machine is busy: how long something takes is no fault")
    given = arguments.given(parser, words)
    named = Named(given.laboratory, given.out, given.busy, given.rounds)
    try:
        named.run()
    except Failed as error:
        named.faults.append(str(error))
    say("\n" + table(named.rows))
    if named.answers:
        say(f"{named.steps} steps; the name server: {named.answers.total}; guests that hung in their boot and were reset: {named.resets}")
    for fault in named.faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    print(f"logs: {given.out}")
    return 1 if named.faults else 0
