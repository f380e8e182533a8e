"""Follow a guest's console by its name through one step: what a name server, kernels and the guest itself say is to agree."""

from __future__ import annotations

import ipaddress
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.lab.cluster import Cluster
from tests.lab.nodes import Failed, Node, until
from tests.lab.zoned import NAMES, Answers, Zoned, held

PROMPT, LONGEST = 3.0, 120.0  #: seconds: a name follows; nothing is waited for any longer
MIGRATE = "migrate"  #: the step that is measured by the source's taps
RESETS, BOOTED, ANSWERED = 4, 40.0, 10.0


class Guest(NamedTuple):
    """Describe an instance. ``mac``: of its first NIC."""

    instance: str
    mac: str
    nics: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.instance}.console.{NAMES}"

    @property
    def moving(self) -> str:
        return f"{self.instance}-migrating.console.{NAMES}"


class Row(NamedTuple):
    """A time that a step took. Seconds; no ``bar``: none is asked for."""

    step: str
    what: str
    took: float
    bar: float = math.inf


class Followed:
    """``busy``: the machine has other things to do, so that times are no faults."""

    def __init__(self, cluster: Cluster, zone: Zoned, busy: bool) -> None:
        self.cluster, self.zone, self.busy = cluster, zone, busy
        self.answers: Answers | None = None
        self.prefixes: dict[str, ipaddress.IPv6Network] = {}  #: by nodes' names
        self.rows: list[Row] = []
        self.faults: list[str] = []
        self.resets = self.steps = 0
        self._seen: dict[str, int] = {}  # by name: how many of its answers are judged

    def step(
        self,
        what: str,
        guest: Guest,
        action: Callable[[], object],
        to: str,
        *,
        running: bool = True,
        comes: str = "",
        bar: float = PROMPT,
    ) -> None:
        """Do something to a guest, and wait until its name is where it should be; then look at all of it. Raises Failed.

        ``to``: the node to which its name leads then, "" for none; ``running``: the guest runs there; ``comes``: the node to which it is
        migrated, whatever becomes of that; ``bar``: seconds from the command's end on.
        """
        say(f"\n{what}: {guest.instance}")
        self.steps += 1
        before, begun = self.now(guest.name), time.monotonic()
        moves, heard = bool(before and to) and not self.on(before[0], to), len(self.zone.told(to, guest.instance))
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
        self.judged(what, guest, moves, comes)
        self.looked(f"{what}: {guest.instance}", guest, to, running)
        self.heard(what, guest, self.zone.told(to, guest.instance)[heard:], not before or moves)

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
            self.took(Row(what, f"the command's end, to {'the name there' if last.addresses else 'no name'}", last.at - ended, bar))
        moved = [each for each in self.answers.said[guest.moving] if each.at > begun]
        watched = (each for node in self.cluster.nodes.values() if node.watch for each in node.watch.told)
        gone = max((each["at"] for each in watched if each.get("at", 0.0) > begun), default=0.0)
        if what == MIGRATE and last.at > begun and gone:
            if moved:
                self.took(Row(what, "the name of the migration there, to no tap on the source", gone - moved[0].at))
                self.took(Row(what, "the name on the target, to no name of the migration", moved[-1].at - last.at, PROMPT))
            self.took(Row(what, "no tap on the source any more, to the name on the target", last.at - gone, PROMPT))
        elif moved and gone:
            self.took(Row(what, "no tap on the target any more, to no name of the migration", moved[-1].at - gone, PROMPT))

    def took(self, row: Row) -> None:
        """Keep a figure; it is a fault where it is above its bar."""
        self.rows.append(row)
        say(f"  {row.what}: {row.took:.2f} s")
        if row.took > row.bar and not self.busy:
            self.faults.append(f"{row.step}: {row.what}: {row.took:.1f} s, and not {row.bar:g}")

    def fault(self, text: str) -> None:
        say(f"  FAULT: {text}")
        self.faults.append(text)

    def judged(self, what: str, guest: Guest, moves: bool, comes: str) -> None:
        """Hold each answer since the step before against what may be told."""
        assert self.answers
        for name, said in self.answers.said.items():
            began = self._seen.get(name, 0)
            self._seen[name] = len(said) - 1  # the answer that holds now is the first one of the next step
            told = [each.addresses for each in said[began:]]
            found = [each for index, each in enumerate(told) if index == 0 or each != told[index - 1]]
            wrong = [each for each in said[began:] if each.rcode not in ("NOERROR", "NXDOMAIN") or len(each.addresses) > 1]
            if name == guest.name:  # it begins, ends, stays, or leads from one address to another one at once
                right = len(found) == 1 or (len(found) == 2 and (moves or () in found))
            elif name == guest.moving and comes and not (self.busy and len(found) == 1):  # a guest may be faster than its name
                right = len(found) == 3 and found[0] == found[2] == () and self.on(found[1][0], comes)
                right = right and (not moves or found[1] == self.now(guest.name))
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

    def heard(self, what: str, guest: Guest, told: Sequence[str], first: bool) -> None:
        """Look at what the site's scripts were told at the ups of a step: nothing, or where the guest's console is now.

        ``first``: its console was not there before, so that nothing could be told at a start.
        """
        now = self.now(guest.name)
        if any(each not in ("", *now) for each in told) or ("" in told and not first):
            self.fault(f"{what}: {guest.instance}: scripts were told {told}, and it is {now}")
        elif told:
            say(f"  of {len(told)} scripts {len(told) - told.count('')} were told its address")

    def boots(self, guest: Guest, address: str) -> None:
        """Wait until a guest's shell answers at its console. Raises Failed."""
        for _attempt in range(RESETS):
            end = time.monotonic() + BOOTED * (4 if self.busy else 1)
            while time.monotonic() < end:
                said = self.zone.console(address, ANSWERED)
                if said and said != guest.mac:
                    raise Failed(f"at the console of {guest.instance} speaks {said}")
                if said:
                    return
            self.resets += 1  # an emulated guest's kernel hangs now and then while it boots
            self.running(guest).monitor(guest.instance, "system_reset")
        raise Failed(f"{guest.instance}: nobody speaks at its console, {address}")

    def running(self, guest: Guest) -> Node:
        return next(node for node in self.cluster.nodes.values() if not node.dead and node.qemu(guest.instance))

    def gnt(self, guest: Guest, *words: str) -> Callable[[], object]:
        """Give a command about an instance, to be done."""
        return lambda: self.cluster.ganeti("gnt-instance", *words, guest.instance)


def say(text: str) -> None:
    print(text, flush=True)


def table(rows: Sequence[Row]) -> str:
    """Give all figures, as Markdown: medians, and the longest."""
    lines = ["| step | times | from, to | median | longest |", f"|{' --- |' * 5}"]
    for step, what in dict.fromkeys((row.step, row.what) for row in rows):
        took = [row.took for row in rows if (row.step, row.what) == (step, what)]
        lines.append(f"| {step} | {len(took)} | {what} | {statistics.median(took):.2f} s | {max(took):.2f} s |")
    return "\n".join(lines)
