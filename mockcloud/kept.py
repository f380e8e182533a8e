"""Hold what a node keeps of networks on its disk, by which its hooks go while the registry is away, against what the registry says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mockcloud import raw
from mockcloud.wanted import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mockcloud.node import MockNode

FOLDER = "wanted/networks"  #: below /var/lib/netcommon


def of_networks(machine: MockNode, own: Iterable[str], networks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Say what is otherwise. ``own``: UUIDs of networks of NICs that are the node's; ``networks``: all of the registry's by UUID."""
    kept = {path.stem: raw.fields(path) for path in Path(machine.paths.lib, FOLDER).glob("*.json")}
    for uuid in sorted({*own} & networks.keys() - kept.keys()):
        yield f"nothing of network {networks[uuid]['name']} lies on {machine.name}'s disk"
    for uuid, has in kept.items():
        if uuid not in networks:
            yield f"what was said of network {uuid} lies still on {machine.name}'s disk"
            continue
        for field in ("name", *FIELDS):
            value = networks[uuid][field]
            if has.get(field) != value:
                yield f"{field} of network {networks[uuid]['name']} is {has.get(field)} on {machine.name}'s disk, not {value}"
