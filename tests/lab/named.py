"""Names of consoles in a Ganeti cluster with an underlay: whatever is done to a guest, its name leads to the node where it is.

    tests/lab/underlay [--rounds N] [--out FOLDER] [--busy] LABORATORY

LABORATORY is as tests/lab/registry wants it. Beside what that has there is an underlay with a zone, which Knot serves on the wire, routes
to each node's prefix, and on both nodes the forwarder of examples/endpoints; ``endpoints = ["console"]`` in the settings. Two guests, one
with NICs of all modes and one with a routed NIC alone, of which Ganeti 3.0 says nothing before it has arrived, are added, started,
migrated, failed over, stopped, started and removed, also where the target's QEMU is killed on the way; their node is killed, one of them
fails over before it is fenced, the other afterwards, which is then renamed; at last the nodes are forgotten.

Somebody asks for all names every 20 ms. After each step they are asked by kdig, too, the address is looked for in the nodes' kernels by
ip(8), and the guest's own shell answers at its console there. Exit status 0: all of that was as it should be (``--busy``: however long it
took), no name ever led to two addresses, or to none while its guest was to have one, and nothing of ours is left.
"""

from __future__ import annotations

import ipaddress
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

from tests.lab import arguments
from tests.lab.cluster import DOMAIN, Cluster
from tests.lab.followed import LONGEST, MIGRATE, PROMPT, Followed, Guest, Row, say, table
from tests.lab.leftovers import leftovers
from tests.lab.nodes import PYTHON, SETTINGS, Failed, until
from tests.lab.zoned import LINK, NAMES, SITE, Answers, Zoned, held, prepared

TTL, AGE = 5, 10  #: seconds for which resolvers remember names, and for which what is retired stays at least
IMPORTED, LEASE = 12.0, 18.0  #: bars, in seconds: a removal is read twice; the lease of a node ends
REAPED = 300.0  #: seconds until what a boot has left in a file of Open vSwitch is found
#: The guest's first program is a shell on its console; what the laboratory's guests do besides goes on behind it.
SHELL = (
    'kernel_args=console=ttyS0 quiet rdinit=/bin/busybox -- sh -c "/bin/busybox mount -t devtmpfs dev /dev; /init & exec /bin/busybox sh"'
)
ADD = ("add", "-t", "diskless", "-o", "nil+default", "--no-install", "--no-start", "--no-name-check", "--no-ip-check")
OURS = (SITE.removesuffix("::/48"), LINK.format(""))  #: in what stands in kernels of the underlay, and of the routes to it
AT_ONCE = "--shutdown-timeout=0"


ALL = Guest(
    f"inst1{DOMAIN}",
    "aa:77:0a:4d:01:32",
    (
        "mode=bridged,link=br0,ip=10.77.1.50,mac=aa:77:0a:4d:01:32",
        "mode=routed,link=gntroute,ip=10.77.31.50,mac=ae:77:0a:4d:1f:32",
        "mode=openvswitch,link=ovs0,vlan=.10,mac=aa:77:0a:4d:02:32",
    ),
)
ROUTED = Guest(f"inst2{DOMAIN}", "ae:77:0a:4d:1f:3c", ("mode=routed,link=gntroute,ip=10.77.31.60,mac=ae:77:0a:4d:1f:3c",))
GUESTS = (ALL, ROUTED)
RENAMED = ROUTED._replace(instance=f"inst3{DOMAIN}")


class Named(Followed):
    """All of it. ``busy``: the machine has other things to do, so that times are no faults."""

    def __init__(self, laboratory: str, out: str, busy: bool, rounds: int) -> None:
        cluster = Cluster(laboratory, out, f'{SETTINGS}[nic]\nendpoints = ["console"]\n{prepared(out)}')
        super().__init__(cluster, Zoned(cluster.wire, out), busy)
        self._laboratory, self._out, self._rounds = laboratory, out, rounds

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
        self.renamed()
        for guest in (ALL, RENAMED):
            self.removed(guest)
        until("the nodes have their own addresses alone", LONGEST, lambda: self.have() == self.own)
        node = self.cluster.nodes["node2"]  # Open vSwitch's file outlives a boot, and what is in it is reaped two minutes later
        until("no port of a guest is on node2", REAPED, lambda: not any(line.startswith("ovs ") for line in node.leftovers()))
        for node in self.cluster.nodes.values():
            if alarms := node.agent_status()["alarms"]:
                self.fault(f"{node.name}: alarms: {alarms}")

    def round(self, guest: Guest) -> None:
        self.migrated(guest, "node2")
        self.migrated(guest, "node1")
        for node in ("node2", "node1"):
            self.step("failover", guest, self.gnt(guest, "failover", "--force", AT_ONCE), node)
        self.step("migrate, and the target's QEMU is killed", guest, partial(self.killed, guest), "node1", comes="node2")
        self.step("reboot", guest, self.gnt(guest, "reboot", AT_ONCE), "node1")
        self.step("shutdown", guest, self.gnt(guest, "shutdown", "--timeout=0"), "node1", running=False)
        self.step("start again", guest, self.gnt(guest, "start"), "node1")
        self.step("shutdown", guest, self.gnt(guest, "shutdown", "--timeout=0"), "node1", running=False)
        self.step("failover while it is off", guest, self.gnt(guest, "failover", "--force", AT_ONCE), "node1", running=False)
        self.step("start on the other node", guest, self.gnt(guest, "start"), "node2")
        self.migrated(guest, "node1")

    def migrated(self, guest: Guest, node: str) -> None:
        self.step(MIGRATE, guest, self.gnt(guest, "migrate", "--force"), node, comes=node)

    def killed(self, guest: Guest) -> None:
        """Begin to migrate a guest, kill its QEMU on the target, and let Ganeti clean up. Raises Failed."""
        source, target = self.cluster.nodes["node1"], self.cluster.nodes["node2"]
        command = source.command("gnt-instance", "migrate", "--force", guest.instance)
        with (
            open(f"{self._out}/killed.log", "ab") as log,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as done,
        ):
            until("its QEMU is on the target", LONGEST, lambda: bool(target.qemu(guest.instance)), 0.02)
            until("the name of the migration is there", LONGEST, lambda: bool(self.now(guest.moving)), 0.02)
            target.signal(signal.SIGKILL, target.qemu(guest.instance))
        if not done.returncode:
            raise Failed(f"Ganeti has migrated {guest.instance}, though its QEMU was killed")
        self.gnt(guest, "migrate", "--force", "--cleanup")()

    def renamed(self) -> None:
        """A guest is given another name, and its console with it. Raises Failed."""
        self.step("shutdown", ROUTED, self.gnt(ROUTED, "shutdown", "--timeout=0"), "node1", running=False)
        words = (
            "gnt-instance",
            "rename",
            "--no-ip-check",
            ROUTED.instance,
            RENAMED.instance,
        )  # without a check of the name it asks a terminal
        self.step("rename", ROUTED, lambda: self.cluster.ganeti(*words), "", running=False, bar=IMPORTED)
        self.step("start, renamed", RENAMED, self.gnt(RENAMED, "start"), "node1")

    def crash(self) -> None:
        """The guests' node dies; one fails over before it is fenced, the other afterwards; then it comes back. Raises Failed."""
        for guest in GUESTS:
            self.migrated(guest, "node2")
        master, node, dead = self.cluster.master, self.cluster.nodes["node2"], f"node2{DOMAIN}"
        before, died = {guest: self.now(guest.name) for guest in GUESTS}, time.monotonic()
        node.die()
        self.zone.lost("node2")
        for guest in GUESTS:
            self.step("its node is dead", guest, lambda: None, "node2", running=False)
        self.cluster.ganeti("gnt-node", "modify", "--force", "--offline=yes", dead)
        failover = ("failover", "--force", AT_ONCE)  # with --ignore-consistency, which diskless guests do not need, it asks a terminal
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
        """The nodes are forgotten, and nothing of the underlay is left on them. Raises Failed."""
        for name in self.prefixes:
            self.cluster.master.type("registry", "node", "forget", "--force", name)
        took = until("no node has an address of the underlay", LONGEST, lambda: not any(self.have().values()))
        self.took(Row("forget the nodes", "to no address of the underlay", took))

    @property
    def own(self) -> Mapping[str, list[str]]:
        """Give what nodes have where there are no guests."""
        return {name: [str(prefix[1])] for name, prefix in self.prefixes.items()}

    def have(self) -> Mapping[str, list[str]]:
        return {name: held(node) for name, node in self.cluster.nodes.items()}

    # -- all

    def run(self) -> None:
        """The laboratory as it was, in the end too. Raises Failed."""
        before = set(leftovers())
        try:
            self.zone.start()
            self.cluster.start()
            self.laid()
            self.answers = Answers(self.cluster.wire, [name for guest in (*GUESTS, RENAMED) for name in (guest.name, guest.moving)])
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
        for place in (self.cluster.wire, *self.cluster.nodes.values()):
            lines = place.run(PYTHON, "tests.lab.whole").splitlines()
            if still := [line for line in lines if any(each in line for each in OURS)]:
                self.fault(f"left behind on {place.name}: {still}")

    def laid(self) -> None:
        """Begin with the underlay. Raises Failed."""
        times = ("--ttl", str(TTL), "--minimum-age", str(AGE))
        self.cluster.master.type("registry", "underlay", "init", SITE, "--zone", NAMES, *times)
        for item in self.cluster.client.all("prefixes"):
            self.prefixes[item["name"]] = ipaddress.IPv6Network(item["prefix"]["prefix"])
        for name, node in self.cluster.nodes.items():
            self.zone.served(node, str(self.prefixes[name]))
        took = until("each node has its own address", LONGEST, lambda: self.have() == self.own)
        say(f"the nodes have {self.own} ({took:.1f} s)")

    def ended(self) -> None:
        """End everything. Raises Failed."""
        if any(node.dead for node in self.cluster.nodes.values()):
            self.revive()
        for guest in (*GUESTS, RENAMED):
            self.cluster.master.attempt("gnt-instance", "remove", "--force", AT_ONCE, "--ignore-failures", guest.instance)
        if self.answers:
            self.answers.close()
        try:
            self.forgotten()
        except Failed as error:
            self.fault(str(error))
        self.zone.stop()
        self.cluster.stop()


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
