"""Rehearse changes on copies of a real Ganeti cluster, then make them: what was foretold is what happens, NIC by NIC.

    tests/lab/rehearsal [--out FOLDER] LABORATORY

LABORATORY is as tests/lab/registry wants it. Guests with NICs of all modes run on both nodes, and one stands still (tests.lab.populated).
The registry is filled by the importer. For each of several changes it is exported, copied by `mockcloud import` together with what nodes
have said, and the change is rehearsed; once from Ganeti's config.data, too. Nodes and registry are to be as they were by then: kernel,
Open vSwitch, folders. Then the change is made: both nodes get the new config.toml and `netcommon change --all`, or Ganeti gets a tag,
which importer and agent take up; the instance that stands still starts.

Prints what was foretold of each NIC and what happened: which operations its record lost and got, and whether anything that names the NIC
became another in its node's kernel. Exit status 0: they were the same, what was refused is as it was, and nothing has drifted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.lab import arguments
from tests.lab.cluster import DOMAIN, Cluster, Member
from tests.lab.foretold import Became, differences, foretold, happened, of_nic
from tests.lab.leftovers import leftovers
from tests.lab.nodes import NETCOMMON, PYTHON, Failed, until
from tests.lab.populated import FIRST, SHOWN, TOLD_MORE, Populated, settings
from tests.support.bootstrap import ROOT, VENV

TENTATIVE = '"tentative": true'  #: of an address that its kernel still looks for on others (ip-address(8))
TAG = "netcommon:1:rate_in:8mbit"
AT_FIRST = settings('dhcp = "dnsmasq"', "[networks.blue]\nmtu = 1400")
ROUTES = 'uplink_proxy = "both"\nrp_filter = "strict"\nblackhole = true\n'
MULTICAST = "allow_mcast_router = true\nmcast_flood = false\nmcast_fast_leave = true\nmcast_to_unicast = true\n"
GATEWAYS = (
    'gateway_arp = true\ngateway_link_local = true\naccept_local = true\nannounce = false\nuplink_proxy = "off"\nrp_filter = "loose"\n'
)
#: What is changed, by name: a whole config.toml, or (none) TAG. What this kernel lacks is in none: no rehearsal tells that.
CHANGES = {
    "a rate, a MAC, any address, no DHCP, and a profile that one NIC cannot have": settings(
        'rate_in = "50mbit"\nallow_ip_spoofing = true\ntap_mac = "fe:00:00:00:00:01"', '[networks.green]\nfirewall = "limited"'
    ),
    "routes, ports, access, and another DHCP server": settings(
        f'rate_in = "50mbit"\nisolated = true\nstatic_fdb = true\ndhcp = "nfdhcpd"\n{ROUTES}',
        '[networks.red]\nfirewall = "protected"\nnode_access = ["tcp/22"]\n[networks.green]\nrate_out = "20mbit"',
        "preference = 700",
    ),
    "no guard, and marks instead of rules": settings("spoof_guard = false", rules="mark = 0xff00"),
    "multicast, gateways, sources and uplinks": settings(
        f'eui64 = true\nnew_sources = 8\nlink_local = "eui64"\nallow_restricted_traffic = true\n{MULTICAST}{GATEWAYS}',
        '[networks.blue]\nallow_unfiltered_promisc = true\n[bridges.br0]\nuplinks = ["eth1"]',
    ),
    "as at first": AT_FIRST,
    "a tag": "",
}
#: What no copy tells, and a rehearsal has names and numbers of its own for: the nodes' own.
OTHERS = {"uplink": "eth3", "netcommon-mark-1-ff00": "netcommon-mark-100-ff00", "0x100/0xff00": "0x6400/0xff00"}


class Happened(NamedTuple):
    """Say what a change has come to. By UUID: of each NIC, and the lines of its node's that differ, of those that were up.

    ``counted``: by node how many NICs its agent says that the settings would change; of a tag it is not asked.
    """

    came: Mapping[str, Became]
    lines: Mapping[str, set[str]]
    counted: Mapping[str, int]


class Rehearsal:
    """Rehearse, change, compare. ``out``: where logs and copies are kept."""

    def __init__(self, laboratory: str, out: str) -> None:
        self._out = out
        self.cluster = Cluster(laboratory, out)
        self.populated = Populated(self.cluster, AT_FIRST)
        self.faults: list[str] = []

    def whole(self) -> dict[str, list[str]]:
        """Give all that each node has, in lines, as soon as its kernel has settled its own IPv6 addresses. Raises Failed."""
        found: dict[str, list[str]] = {}

        def settled() -> bool:
            found.update((name, node.run(PYTHON, "tests.lab.whole").splitlines()) for name, node in self.cluster.nodes.items())
            return not any(TENTATIVE in line for lines in found.values() for line in lines)

        until("no address is tentative", SHOWN, settled)
        return found

    # -- a copy

    def rehearsed(self, name: str, text: str, ganeti: bool = False) -> dict[str, dict[str, Any]]:
        """Copy the cluster to a new folder, rehearse there, and give what is said of each NIC by UUID. Raises Failed."""
        folder, seen = f"{self._out}/{name}", list[str]()
        os.makedirs(folder)
        files = {"config.toml": self.cluster.master.settings, "new.toml": text}
        if ganeti:
            with open(self.cluster.master.path("/var/lib/ganeti/config.data"), encoding="utf-8") as source:
                files["source"] = source.read()
        else:
            files["source"] = self.exported()
            for kind in ("nic", "node"):
                files[f"{kind}s.json"] = self.cluster.master.type("registry", kind, "list", "--json")
                seen += ["--seen", f"{folder}/{kind}s.json"]
        for file, content in files.items():
            keep(f"{folder}/{file}", content)
        said = self.mockcloud("import", f"{folder}/copy", f"{folder}/source", "--settings", f"{folder}/config.toml", *seen)
        say(f"  {said['nics']} NICs, {said['placed']} of them placed, on {said['nodes']} nodes, from {said['origin']}")
        new = ("--settings", f"{folder}/new.toml") if text else ("--tags", f"{FIRST}={TAG}")
        said = self.mockcloud("rehearse", f"{folder}/copy", *new)
        say(f"  foretold: {', '.join(f'{count} {said[count]}' for count in ('change', 'recorded', 'refused', 'requests'))}")
        keep(f"{folder}/rehearse.json", json.dumps(said, indent=1))
        return {one["uuid"]: one for one in said["results"]}

    def exported(self) -> str:
        return self.cluster.master.type("registry", "export")

    def mockcloud(self, *words: str) -> dict[str, Any]:
        """Run mockcloud where there is no node, nor any network. Raises Failed where it does not print JSON."""
        command = ["unshare", "--net", f"{VENV}/bin/python", "-m", "mockcloud", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT, check=False)
        try:
            said: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = {}
        if not said.get("schema", "").startswith("mockcloud-"):
            raise Failed(f"mockcloud {words[0]}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return said

    # -- a change

    def change(self, number: int, name: str, text: str) -> None:
        """Rehearse a change, make it, and hold both together. Raises Failed."""
        say(f"\n{number}. {name}")
        before, exported = self.whole(), self.exported()
        told = self.rehearsed(f"{number}-registry", text)
        also = self.rehearsed(f"{number}-ganeti", text, ganeti=True) if number == 1 else {}
        self.untouched(name, before, exported)
        found = self.made(text, before)
        rows = [("NIC", "node", "foretold", "happened", "its node's state")]
        for uuid, one in sorted(told.items(), key=lambda pair: (pair[1]["node"], pair[1]["nic"])):
            foreseen, became = foretold(one, OTHERS), found.came[uuid]
            kernel = "starts" if uuid not in found.lines else "another" if found.lines[uuid] else "the same"
            rows.append((one["nic"].replace(DOMAIN, ""), one["node"], foreseen.words, became.words, kernel))
            self.compared(f"{number}. {one['nic']}", one, foreseen, became, found.lines.get(uuid))
        say(side_by_side(rows))
        self.by_ganeti(number, also, found)
        self.counted(name, told, found.counted)
        for node in self.cluster.nodes.values():
            if drifted := node.check():
                self.faults.append(f"{name}: {node.name}: check says: {drifted}")

    def untouched(self, name: str, before: Mapping[str, Sequence[str]], exported: str) -> None:
        """Hold nodes and registry against what they were before a rehearsal."""
        after = self.whole()
        found = [f"{node}: {sorted({*before[node]} ^ {*after[node]})[:6]}" for node in before if before[node] != after[node]]
        found += ["the registry's export"] if self.exported() != exported else []
        self.faults += [f"{name}: another after its rehearsal: {text}" for text in found]
        if not found:
            say(f"  nodes and registry are as they were: {sum(map(len, after.values()))} lines of kernels, Open vSwitch and folders")

    def made(self, text: str, before: Mapping[str, Sequence[str]]) -> Happened:
        """Make a change. Raises Failed."""
        had, errors, counted = self.populated.on_nodes(), dict[str, str](), dict[str, int]()
        for node in self.cluster.nodes.values() if text else ():
            counted[node.name] = self.taken(node, text)
            done = node.attempt(NETCOMMON, "change", "--all", "--json")
            try:
                errors |= {row["uuid"]: row["error"] for row in json.loads(done.stdout)["nics"]}
            except ValueError:
                raise Failed(f"{node.name}: netcommon change: status {done.returncode}: {done.stdout}{done.stderr}") from None
        if not text:
            self.populated.tagged(FIRST, TAG)
        after, has = self.whole(), self.populated.on_nodes()
        came, lines = {}, {}
        for uuid, (node, record) in had.items():
            came[uuid] = happened(record, has[uuid][1], errors.get(uuid, ""))
            nic = record["nic"]
            words = (nic["INTERFACE"], uuid, nic.get("IP", "").partition("/")[0], nic.get("MAC", ""))
            lines[uuid] = of_nic(before[node.name], words) ^ of_nic(after[node.name], words)
        idle = self.populated.start_idle()
        came |= {uuid: happened(record, self.populated.on_nodes()[uuid][1], "") for uuid, record in idle.items()}
        return Happened(came, lines, counted)

    def taken(self, node: Member, text: str) -> int:
        """Give a node its new settings, and how many NICs would be others by them, as its agent counts. Raises Failed."""
        node.configure(text)
        since = node.agent_status()["uptime"]
        node.signal(signal.SIGHUP, int(node.agent_status()["pid"]))

        def count() -> tuple[object, bool]:
            """Give the number, and whether it was counted after ``since``."""
            said = node.agent_status()
            ago = said["agent"]["seconds since those were counted"]
            return said["agent"]["NICs that the settings would change"], ago != "never" and said["uptime"] - ago > since

        until(f"{node.name}: the agent counts the NICs", SHOWN, lambda: count()[1], 0.2)
        number = count()[0]
        assert isinstance(number, int)
        return number

    # -- how they differ

    def by_ganeti(self, number: int, also: Mapping[str, Mapping[str, Any]], found: Happened) -> None:
        """Hold what was foretold from Ganeti's configuration against what happened; of some NICs that says less."""
        labels = {item["nic"]["uuid"]: (item["nic"]["instance"], item["nic"]["index"]) for item in self.populated.nics()}
        for uuid, one in also.items():
            foreseen = foretold(one, OTHERS)
            if labels[uuid] in TOLD_MORE:
                say(f"  from Ganeti's configuration, which says less of {one['nic'].replace(DOMAIN, '')}: {foreseen.words}")
            else:
                self.compared(f"{number}. from Ganeti: {one['nic']}", one, foreseen, found.came[uuid], None)

    def counted(self, name: str, told: Mapping[str, Mapping[str, Any]], counted: Mapping[str, int]) -> None:
        """Hold how many NICs would change against what the agents have counted: those that are refused are among these."""
        for node, number in counted.items():
            of = [one for one in told.values() if one["node"] == node and one["running"]]
            foreseen = sum(bool(one["changed"] or one["refused"]) for one in of)
            say(f"  {node}: {foreseen} that run would change, or be refused; its agent counts {number}")
            if foreseen != number:
                self.faults.append(f"{name}: {node}: the agent counts {number} NICs, and foretold were {foreseen}")

    def compared(self, name: str, one: Mapping[str, Any], told: Became, came: Became, lines: set[str] | None) -> None:
        """Keep how a NIC became another than was foretold. ``lines``: of its node's, that differ; None where it was not up."""
        found = differences(told, came)
        if one["refused_today"]:  # it has not what its settings say, but what it had before those: no copy tells that
            found = [f"refused: {came.refused!r}, and foretold was {told.refused!r}"] if came.refused != told.refused else []
        if lines is not None and came.visible != bool(lines):
            found.append(f"its record {'changes' if came.visible else 'stays'}, and on its node differ {sorted(lines)[:4]}")
        self.faults += [f"{name}: {text}" for text in found]

    # -- all

    def run(self) -> None:
        """Leave the laboratory as it was, in the end too. Raises Failed."""
        before = set(leftovers())
        try:
            self.populated.start()
            for number, (name, text) in enumerate(CHANGES.items(), 1):
                self.change(number, name, text)
            for node in self.cluster.nodes.values():
                if alarms := node.agent_status()["alarms"]:
                    self.faults.append(f"{node.name}: alarms: {alarms}")
        finally:
            self.populated.remove()
        if more := set(leftovers()) - before:
            self.faults.append(f"left behind on the machine: {sorted(more)}")


def say(text: str) -> None:
    print(text, flush=True)


def keep(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def side_by_side(rows: Sequence[Sequence[str]]) -> str:
    """Give rows as columns; what was the same as foretold is said so."""
    short = [(*row[:3], "as foretold" if row[2] == row[3] else row[3], row[4]) for row in rows]
    widths = [max(len(row[place]) for row in short) for place in range(len(short[0]))]
    return "\n".join("    " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in short)


def main(words: Sequence[str]) -> int:
    given = arguments.given(arguments.parser("tests/lab/rehearsal", __doc__), words)
    rehearsal = Rehearsal(given.laboratory, given.out)
    try:
        rehearsal.run()
    except Failed as error:
        rehearsal.faults.append(str(error))
    for fault in rehearsal.faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    print(f"logs: {given.out}")
    return 1 if rehearsal.faults else 0
