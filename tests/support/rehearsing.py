"""A copy of a small cluster for rehearsals, and nodes that are really changed, to hold a rehearsal against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mockcloud.rehearsal import report
from mockcloud.rehearsal.copied import GANETI, Copy, Place, SettingsFile
from mockcloud.rehearsal.rehearsing import Foretold, rehearse, tasks
from mockcloud.rehearsal.settings import Given, load
from mockcloud.variables import variables
from netcommon.host.api.facts import Link
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle.context import Call, Clock
from netcommon.lifecycle.execute import decode
from netcommon.lifecycle.up import up
from netcommon.log import recording
from netcommon.operations.base import Operation, intent
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from runtime.environment import nic_from_environment
from runtime.errors import NicInvalid
from tests.support.cli import Cli

UUIDS = tuple(f"{number:08x}-3333-4333-8333-333333333333" for number in range(20))
BLUE = "11111111-0000-4000-8000-00000000000e"
NODES = tuple(Node(f"60c5bd2c-7f0e-4a7c-9d38-{number:012d}", f"node{number}") for number in (1, 2))
NETWORK = Network(BLUE, "blue", subnet="10.0.0.0/24", gateway="10.0.0.1")


def nic(number: int, mode: str, link: str, ip: str = "", **more: object) -> Nic:
    """The NIC web<number>/0."""
    mac = f"aa:00:00:00:00:{number:02x}"
    made = Nic(UUIDS[number], "", "ganeti:c", instance=f"web{number}", index=0, mac=mac, ip=ip, mode=mode, link=link)  # type: ignore[arg-type]
    return made._replace(**more)  # type: ignore[arg-type]


#: One of each mode, and two that share what a firewall profile and a routing table are.
NICS = (
    nic(1, "bridged", "br0", "10.0.0.5", network=BLUE),
    nic(2, "bridged", "brv", vlan=".10:20:30"),
    nic(3, "routed", "guests", "10.1.0.5"),
    nic(4, "routed", "guests", "10.1.0.6"),
    nic(5, "openvswitch", "ovs0", "10.2.0.5", tags=("netcommon:0:rate_out:4mbit",)),
)


def copy(nics: Sequence[Nic] = NICS, origin: str = GANETI, node: str = "node1", **more: object) -> Copy:
    """A copy in which all NICs are on one node."""
    found = Copy(origin, "", {BLUE: NETWORK}, NODES, tuple(nics), {each.uuid: Place(node) for each in nics})
    return found._replace(**more)  # type: ignore[arg-type]


def settings(text: str, name: str = "new.toml") -> Given:
    return load(SettingsFile("", name, text.encode()))


def rehearsed(
    found: Copy, before: str, after: str, tags: Mapping[str, Sequence[str]] | None = None, clock: Clock | None = None
) -> dict[str, Foretold]:
    """Give what becomes of each NIC, by its label."""
    old, new = settings(before).settings, settings(after).settings
    parts = tasks(found, lambda _node: old, lambda _node: new)
    return {
        one.nic.label: one for number, task in enumerate(parts, 1) for one in rehearse(found, task, tags or {}, clock or Clock(), number)
    }


class Came(NamedTuple):
    """Give what of a NIC's operations goes and comes, in words."""

    gone: Mapping[str, int] = {}
    made: Mapping[str, int] = {}


def foretold(one: Foretold) -> Came:
    assert one.difference is not None
    found = report.operations(one.difference)
    gone = Counter(each.undo() for word in ("undone", "released", "replaced") for each in found[word])
    return Came(gone, Counter(each.describe() for each in found["done"]))


class RealNode:
    """A simulated node that nothing of mockcloud makes, on which NICs are up and whose settings file is then another."""

    def __init__(self, root: Path, found: Copy, text: str) -> None:
        self.cli = Cli(root)
        self.cli.host = host = MemoryHost({"guests": 1})
        for bridge, aware in (("br0", False), ("brv", True)):
            made = host.add_bridge(bridge, vlan_filtering=aware)
            host.add_link(Link(0, f"eth-{bridge}", "", up=True, master=made.index))
        host.add_ovs_bridge("ovs0")
        for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/all/proxy_ndp"):
            host.kernel.settings.write(f"net/{setting}", "1")
        host.files.folders |= {"/var/lib/nfdhcpd", "/var/lib/netcommon/dnsmasq", "/var/lib/netcommon/dnsmasq-options"}
        self.configure(text)
        node = self.cli.app().node()
        for number, each in enumerate(found.nics):
            host.add_tap(f"tap{number}", holder=77)
            said = nic_from_environment(variables(each, found.networks.get(each.network), f"tap{number}"))
            with suppress(NicInvalid):  # what a rehearsal says of it is compared with that
                up(node, said, Call(recording()[0], node.clock.now() + 60, "kvm"))
        node.store.close()

    def configure(self, text: str) -> None:
        path = Path(self.cli.paths.config)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)

    def operations(self) -> dict[str, list[Operation]]:
        """Give what is on record of each NIC."""
        node = self.cli.app().node()
        records, problems = node.store.all()
        assert problems == []
        found = {each.nic.label: decode(each)[0] for each in records}
        node.store.close()
        return found

    def changed(self) -> dict[str, Came]:
        """Give what ``netcommon change --all`` makes of each NIC's operations."""
        before = self.operations()
        self.cli("change", "--all", status=None)
        after = self.operations()
        return {label: _came(before[label], after[label]) for label in before}


def _came(before: list[Operation], after: list[Operation]) -> Came:
    """Compare what was meant; what was found on the host when it was done is another matter."""
    had, has = ({intent(each) for each in part} for part in (before, after))
    gone, made = (each for each in before if intent(each) not in has), (each for each in after if intent(each) not in had)
    return Came(Counter(each.undo() for each in gone), Counter(each.describe() for each in made))
