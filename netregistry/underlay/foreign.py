"""Know which /64s of the site's prefix are of networks that nodes are in, by the addresses that they report: they are given to nobody."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.underlay import EACH
from netregistry.underlay import healing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.draft import Draft
    from netregistry.model.underlay import NodePrefix, Underlay

MOST = 8  #: /64s that one node can keep from being given: what it says of itself is believed within bounds


def addresses(draft: Draft, underlay: Underlay) -> Iterator[tuple[str, str, int]]:
    """Give the addresses of the prefix that nodes report, of no /64 which the node has or says it has: node, address, number of the /64."""
    first, start = int(underlay.network.network_address), underlay.prefix.partition(":")[0] + ":"
    for key, reports in draft.view.all("reports").items():
        found = [each for each in reports.about.addresses if each.startswith(start)]
        if not found or draft.node(node := key.partition("/")[2]) is None:
            continue
        prefix: NodePrefix | None = draft.get(keys.prefix(node))
        own = {healing.said_by(draft, node), prefix.prefix if prefix is not None else ""}
        for address in found:
            number = int(IPv6Address(address)) - first >> EACH
            if 0 <= number < underlay.most and underlay.of(number) not in own:
                yield node, address, number


def numbers(draft: Draft, underlay: Underlay) -> set[int]:
    """Give the numbers of /64s of which nodes have addresses that are none of the underlay's: their own network's. A node is in few."""
    of: dict[str, set[int]] = {}
    for node, _address, number in addresses(draft, underlay):
        if len(found := of.setdefault(node, set())) < MOST:
            found.add(number)
    return set[int]().union(*of.values())
