"""Know what guests have whose files nobody can read: they are left alone, and whatever is there of them is no violation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud import stored
from mockcloud.left_over import Running
from mockcloud.unread import unread
from mockcloud.wanted import Told, Wanted
from netcommon.options.addresses import Addresses
from netcommon.options.model import Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from netcommon.host.api.facts import Link

ANYTHING = Wanted(Options(), Addresses(), frozenset(Options._fields))  #: what they have was wanted once: nobody knows what


class Strange(NamedTuple):
    """Hold what is of such guests of one node. ``nics``: what the registry wants, by UUID."""

    nics: Mapping[str, Mapping[str, Any]]
    processes: frozenset[str]
    taps: frozenset[str]

    def running(self, links: Mapping[str, Link], networks: Mapping[str, Mapping[str, Any]]) -> list[Running]:
        """Give their NICs whose taps are among a node's devices. ``networks``: those of the registry by UUID."""
        of = {links[tap].alias.partition(" ")[0]: links[tap] for tap in self.taps if tap in links}
        return [
            Running(ANYTHING, item["nic"], of[uuid], Told(networks.get(uuid_of := item["nic"]["network"], {}).get("name", ""), uuid_of))
            for uuid, item in self.nics.items()
            if uuid in of
        ]


def strange(root: str, node: str, files: Iterable[str], wanted: Mapping[str, Mapping[str, Any]]) -> Strange:
    """Find it. ``files``: UUIDs of the instances of a node whose files are nothing that can be read."""
    vms = frozenset(files)
    if not vms:
        return Strange({}, frozenset(), frozenset())
    has = unread(root, node, f"{root}/servers/{node}/proc")
    nics = {uuid: item for uuid, item in wanted.items() if stored.vm_uuid(item["nic"]["instance"]) in vms}
    return Strange(nics, frozenset(map(str, has)), frozenset(tap for taps in has.values() for tap in taps))
