"""What a bridge delivers to a guarded guest (docs/spoof-guard.md): a table of family bridge with two rules, and elements for each NIC.

Routed guests need none: the node sends them what it routes to them, and nothing is flooded.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.nftables import (
    BRIDGE,
    BRIDGE_POSTROUTING,
    ETHER_TYPE,
    IFINDEX_TYPE,
    MARK,
    NftChain,
    NftElement,
    NftRule,
    NftSet,
    NftTable,
)
from netcommon.host.nftables.expressions import (
    DROP,
    LINK_HEADER,
    META_OIF,
    META_PROTOCOL,
    NETWORK_HEADER,
    compare,
    load,
    mask,
    meta,
    store,
    verdict,
    within,
)
from netcommon.operations.base import Owned
from netcommon.operations.guard.rules import WITHOUT, counter_of
from netcommon.operations.shared_table import Contents, SharedTable
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.host import View

NAME = "netcommon-delivery"
PROMISC = "promisc"  #: why a frame is not delivered
PRIORITY = -300
INDEX = Struct("=I")
DEVICE = (IFINDEX_TYPE, 4)
OWN = NftSet(BRIDGE, NAME, "own", (DEVICE, (ETHER_TYPE, 6)))  #: devices, and whom they serve
FILTERED = NftSet(BRIDGE, NAME, counter_of(PROMISC), (DEVICE,), counter=True)  #: who gets nothing else; a match counts as a drop
SETS = frozenset({OWN.name, FILTERED.name})
POSTROUTING = NftChain(BRIDGE, NAME, "postrouting", BRIDGE_POSTROUTING, PRIORITY)
UNICAST = load(LINK_HEADER, 0, 1) + mask(b"\x01") + compare(b"\0")
FOREIGN = meta(META_OIF) + load(LINK_HEADER, 0, 6, 1) + within(OWN.name, True)
RULE = NftRule(BRIDGE, NAME, POSTROUTING.name, UNICAST + FOREIGN + meta(META_OIF) + within(FILTERED.name) + verdict(DROP))
#: Writing a byte of the IPv6 header over itself: a frame that goes to several ports gets data of its own for each. For a guest's frame of
#: UDP fragmentation offload the kernel moves the headers by eight bytes (udp6_ufo_fragment()), also for the other ports, where the frame
#: would begin with bytes that the guard has not seen as addresses.
OWN_DATA = meta(META_PROTOCOL) + compare(b"\x86\xdd") + load(NETWORK_HEADER, 0, 1) + store(NETWORK_HEADER, 0, 1, 0)
COPY = NftRule(BRIDGE, NAME, POSTROUTING.name, OWN_DATA)


class DeliveryTableFields(NamedTuple):
    """The fields of DeliveryTable."""

    device: str
    now: bool = False


class DeliveryTable(DeliveryTableFields, SharedTable):
    """The rule, which every frame passes that a bridge of the node hands to a port."""

    __slots__ = ()
    KIND = "delivery-table"
    REPAIRED = "the nftables table of what bridges deliver to guarded guests"
    MIGRATION = "of the node"
    PURPOSE = "delivery rule of the spoof guard"
    WITHOUT = WITHOUT
    LAYOUT = "layout-2"

    def confines(self) -> str:
        return "its addresses"

    def place_of(self) -> tuple[int, str]:
        return BRIDGE, NAME

    def contents(self) -> Contents:
        return Contents(NftTable(BRIDGE, NAME, f"{MARK} spoof guard"), (OWN, FILTERED), (POSTROUTING,), (COPY, RULE))

    def sentence(self) -> str:
        return "The packet filter has the table that keeps frames for others away from guests."

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        there = view.nft_table(BRIDGE, NAME)
        if there is not None and there.ours:
            links = (view.link_at(INDEX.unpack(each.key[:4])[0]) for each in view.nft_elements(BRIDGE, NAME, SETS))
            alive = next((link.name for link in links if link is not None), "")
            made = cls("no device")
            yield Owned(made.identity(), f"nftables table bridge {NAME}", tuple(made.revert(view)), device=alive, shared=made.shared())


def elements(ifindex: int, mac: bytes) -> list[NftElement]:
    """Those of a NIC that is delivered only what is for its MAC, besides broadcasts and multicasts."""
    index = INDEX.pack(ifindex)
    return [NftElement(BRIDGE, NAME, FILTERED.name, index), NftElement(BRIDGE, NAME, OWN.name, index + mac + bytes(2))]
