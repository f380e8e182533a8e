"""ARP requests to a guest, asked in its gateway's name: a table of family arp with one rule, and an element for each NIC."""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.facts import AF_INET
from netcommon.host.api.nftables import (
    ARP,
    ARP_OUT,
    IFINDEX_TYPE,
    IPV4_TYPE,
    MARK,
    Drop,
    NftChain,
    NftElement,
    NftRule,
    NftSet,
    NftTable,
    Put,
)
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.expressions import META_OIF, NETWORK_HEADER, compare, found, load, meta, store
from netcommon.host.rtnetlink.attributes import pack_address
from netcommon.operations.base import Operation, Owned
from netcommon.operations.link import device_link, link_of
from netcommon.operations.shared_table import Contents, SharedTable, own_elements, own_table
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

NAME = "netcommon-arp"
TABLE = NftTable(ARP, NAME, f"{MARK} gateway_arp")
GATEWAYS = NftSet(ARP, NAME, "gateways", ((IFINDEX_TYPE, 4),), value=(IPV4_TYPE, 4))
SETS = frozenset({GATEWAYS.name})
OUTPUT = NftChain(ARP, NAME, "output", ARP_OUT, 0)
REQUEST = load(NETWORK_HEADER, 6, 2) + compare(b"\x00\x01")  #: ar$op (RFC 826)
SENDER = store(NETWORK_HEADER, 14, 4, 1)  #: ar$spa, of Ethernet and IPv4
RULE = NftRule(ARP, NAME, "output", REQUEST + meta(META_OIF) + found("gateways", 1) + SENDER)
INDEX = Struct("=I")
WITHOUT = "or switch it off, gateway_arp = false"


class ArpTableFields(NamedTuple):
    """The fields of ArpTable."""

    device: str
    now: bool = False


class ArpTable(ArpTableFields, SharedTable):
    """The rule, shared by all NICs that have the option."""

    __slots__ = ()
    KIND = "gateway-arp-table"
    REPAIRED = "the nftables table for ARP in the gateway's name"
    MIGRATION = "of the node"
    PURPOSE = "rule of gateway_arp"
    WITHOUT = WITHOUT

    def place_of(self) -> tuple[int, str]:
        return ARP, NAME

    def contents(self) -> Contents:
        return Contents(TABLE, (GATEWAYS,), (OUTPUT,), (RULE,))

    def sentence(self) -> str:
        return "The packet filter has the table that rewrites the node's ARP requests to guests."

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        there = view.nft_table(ARP, NAME)
        if there is not None and there.ours:
            change = NftChange("gateway_arp of no device", (Drop(TABLE),), WITHOUT)
            made = cls("no device")
            yield Owned(made.identity(), f"nftables table arp {NAME}", (change,), shared=made.shared())


class GatewayArpFields(NamedTuple):
    """The fields of GatewayArp."""

    device: str
    gateway: str
    ifindex: int = 0
    now: str = ""


class GatewayArp(GatewayArpFields, Operation):
    """The device's requests are asked in the name of ``gateway``."""

    __slots__ = ()
    KIND = "gateway-arp"
    REPAIRED = "the NIC's entries in it"
    MIGRATION = "for what the node asks on the tap"
    CHOSEN = frozenset({"ifindex", "now"})
    BEFORE = frozenset[str]()

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self._replace(ifindex=device_link(view, self.device).index)
        own_table(view, ARP, NAME)
        there = made._there(view)
        return [made._replace(now=there.value.hex() if there else "")]

    def _element(self) -> NftElement:
        value = pack_address(AF_INET, self.gateway)
        return NftElement(ARP, NAME, GATEWAYS.name, INDEX.pack(self.ifindex), value=value)

    def _there(self, view: View) -> NftElement | None:
        key = INDEX.pack(self.ifindex)
        return next(iter(own_elements(view, ARP, NAME, key, SETS)), None)

    def apply(self) -> Sequence[Request]:
        element = self._element()
        first = [Drop(element)] if self.now not in ("", element.value.hex()) else []
        return [NftChange(f"gateway_arp of {self.device}", (*first, Put(element)), WITHOUT)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        return "" if self._there(view) == self._element() else "it is not so"

    def revert(self, view: View) -> Sequence[Request]:
        there = self._there(view) if self.ifindex > 0 else None
        return [] if there is None else [NftChange(f"gateway_arp of {self.device}", (Drop(there),), WITHOUT)]

    def identity(self) -> str:
        return f"gateway-arp {self.ifindex}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"The guest is asked for its MAC in the name of its gateway {self.gateway}, never of the node."

    def describe(self) -> str:
        return f'nft add element arp {NAME} gateways {{ "{self.device}" : {self.gateway} }}'

    def undo(self) -> str:
        return f'nft delete element arp {NAME} gateways {{ "{self.device}" }}'

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        there = view.nft_table(ARP, NAME)
        for element in view.nft_elements(ARP, NAME, SETS) if there is not None and there.ours else ():
            index = INDEX.unpack(element.key)[0]
            link = view.link_at(index)
            device = "" if link is None else link.name
            change = NftChange(f"gateway_arp of {device or index}", (Drop(element),), WITHOUT)
            yield Owned(f"gateway-arp {index}", f"gateway of {device or index} in nftables table arp {NAME}", (change,), device=device)
