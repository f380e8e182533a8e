"""Who is measured: our hooks warm and cold, with the spoof guard and without, Ganeti's script, and the kernel alone, through our host."""

from __future__ import annotations

import os
import subprocess
import time
from typing import NamedTuple

from netcommon.host.api.facts import AF_INET, OVS_MARK, OvsPort, Route, Rule
from netcommon.host.api.requests import (
    AddRoute,
    AddRule,
    DeleteOvsPort,
    DeleteRoute,
    DeleteRule,
    PutOvsPort,
    Request,
    SetLink,
    SetSysctl,
)
from tests.bench.nics import BRIDGE, SWITCH, TABLE, Measured
from tests.bench.place import COLD, SCRIPTS, WARM, Place, Spent
from tests.support.netns import run
from tests.support.ovs import rows

MTU, MAIN, PREFERENCE = 1500, 254, 500


class Subject(NamedTuple):
    """``folder``: of its hooks; "" for the kernel alone. ``downs``: whether it has a down."""

    name: str
    folder: str = ""
    guard: bool = False
    downs: bool = True

    def up(self, place: Place, nic: Measured) -> Spent:
        """Brings the NIC up. Raises RuntimeError if that fails."""
        if not self.folder:
            return carry(place, upward(place, nic))
        return place.hook([f"{self.folder}/kvm-ifup", f"b'{nic.tap}'"], nic.variables)

    def down(self, place: Place, nic: Measured) -> Spent:
        """Takes it out, as QEMU's end does. Raises RuntimeError if that fails."""
        if not self.folder:
            return carry(place, downward(place, nic))
        return place.hook([f"{self.folder}/kvm-ifdown", nic.tap, "hot-remove"], nic.variables)


BASH = Subject("bash", str(SCRIPTS), downs=False)
FLOOR = Subject("kernel")
WARM_ONE, COLD_ONE = Subject("warm", WARM), Subject("cold", COLD)
WARM_GUARD, COLD_GUARD = Subject("warm, guard", WARM, guard=True), Subject("cold, guard", COLD, guard=True)
SUBJECTS = (BASH, FLOOR, WARM_ONE, COLD_ONE, WARM_GUARD, COLD_GUARD)


def carry(place: Place, requests: list[Request]) -> Spent:
    """The kernel's own work (and Open vSwitch's): no program is started."""
    begin, cpu = time.perf_counter(), time.process_time()
    answers = place.host.execute(requests, stop=False)
    spent = Spent((time.perf_counter() - begin) * 1000, (time.process_time() - cpu) * 1000)
    if not all(answer.ok for answer in answers):
        raise RuntimeError(f"the kernel refused: {answers}")
    place.quiet()
    return spent


def index(name: str) -> int:
    with open(f"/sys/class/net/{name}/ifindex", encoding="ascii") as file:
        return int(file.read())


def upward(place: Place, nic: Measured) -> list[Request]:
    """What Ganeti's script asks of the kernel, in as few messages as the kernel takes."""
    own = index(nic.tap)
    if nic.mode == "bridged":
        return [SetLink(own, address=f"fe{nic.mac[2:]}", mtu=MTU, up=True, master=index(BRIDGE))]
    if nic.mode.startswith("ovs"):
        return [SetLink(own, up=True), PutOvsPort(port(nic))]
    table, rules = selected(nic)
    switches: list[Request] = [SetSysctl(f"net/ipv4/conf/{nic.tap}/{name}", "1", own) for name in ("proxy_arp", "forwarding")]
    return [SetLink(own, up=True), *(AddRule(rule) for rule in rules), AddRoute(Route(AF_INET, table, f"{nic.ip}/32", own)), *switches]


def downward(place: Place, nic: Measured) -> list[Request]:
    own = index(nic.tap)
    if nic.mode == "bridged":
        return [SetLink(own, up=False, master=0)]
    if nic.mode.startswith("ovs"):
        return [DeleteOvsPort(nic.tap, nic.uuid), SetLink(own, up=False)]
    table, rules = selected(nic)
    route = DeleteRoute(Route(AF_INET, table, f"{nic.ip}/32", own))
    return [route, *(DeleteRule(rule) for rule in rules), SetLink(own, up=False)]


def selected(nic: Measured) -> tuple[int, list[Rule]]:
    """The routing table, and the rule that leads to it."""
    if nic.mode == "routed":
        return MAIN, []
    return int(TABLE), [Rule(AF_INET, PREFERENCE, nic.tap, int(TABLE))]


def port(nic: Measured) -> OvsPort:
    tag = 10 if nic.mode != "ovs" else None
    return OvsPort(nic.tap, SWITCH, tag, (20, 30) if nic.mode == "ovs trunk" else (), external_ids=((OVS_MARK, nic.uuid),))


def there(nic: Measured) -> bool:
    """Whether the NIC is in the network, by other eyes than ours."""
    if nic.mode == "bridged":
        return os.path.exists(f"/sys/class/net/{nic.tap}/master")
    if nic.mode.startswith("ovs"):
        wanted = {"ovs": (["set", []], ["set", []]), "ovs tag": (10, ["set", []]), "ovs trunk": (10, ["set", [20, 30]])}[nic.mode]
        found = [row for row in rows("Port", ("name", "tag", "trunks")) if row["name"] == nic.tap]
        return bool(found) and (found[0]["tag"], found[0]["trunks"]) == wanted
    table, rules = selected(nic)
    route = run("ip", "route", "show", nic.ip, "table", str(table), "dev", nic.tap)
    return bool(route) and (not rules or f"iif {nic.tap} lookup" in run("ip", "rule"))


def tidy(nic: Measured) -> None:
    """After who has no down: what would be left when the tap is gone."""
    if nic.mode == "routed + table":
        run("ip", "rule", "del", "iif", nic.tap)
    if nic.mode.startswith("ovs"):
        subprocess.run(["ovs-vsctl", "--if-exists", "del-port", nic.tap], check=True)
