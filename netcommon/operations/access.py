"""What a guest reaches of the node itself (docs/node-access.md): a table of family inet, for bridged NICs also one of family bridge."""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.nftables import BRIDGE, INET, MARK, Drop, NftElement, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.operations import access_rules
from netcommon.operations.access_rules import NAMES, NICS, PING, SERVICES, SETS, WITHOUT
from netcommon.operations.base import Operation, Owned
from netcommon.operations.link import device_link, link_of
from netcommon.operations.shared_table import FAMILIES, Contents, SharedTable, own_elements, own_table
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.nftables import Step
    from netcommon.host.api.requests import Request

INDEX = Struct("=I")  #: as the kernel holds a device's index
PROTOCOLS = {"tcp": 6, "udp": 17}


def place_of(family: int) -> tuple[int, str]:
    """A table's family and name; of another family than ours that of inet."""
    return (family, NAMES[family]) if family in NAMES else (INET, NAMES[INET])


class AccessTableFields(NamedTuple):
    """The fields of AccessTable."""

    device: str
    nfproto: int  #: netcommon.host.api.nftables.INET or BRIDGE
    now: bool = False


class AccessTable(AccessTableFields, SharedTable):
    """The constant rules of one family."""

    __slots__ = ()
    KIND = "access-table"
    REPAIRED = "the nftables tables of what guests reach of the node"
    MIGRATION = "of the node"
    PURPOSE = "rules of node_access"
    WITHOUT = WITHOUT

    def confines(self) -> str:
        return "the node"

    def place_of(self) -> tuple[int, str]:
        return place_of(self.nfproto)

    def contents(self) -> Contents:
        family, name = self.place_of()
        table = NftTable(family, name, f"{MARK} node_access")
        return Contents(table, access_rules.sets(family), access_rules.chains(family), access_rules.rules(family))

    def sentence(self) -> str:
        return "The packet filter has the table that keeps guests away from the node itself."

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for family, name in NAMES.items():
            there = view.nft_table(family, name)
            if there is not None and there.ours:
                links = (view.link_at(_index(each)) for each in view.nft_elements(family, name, SETS))
                alive = next((link.name for link in links if link is not None), "")
                made, text = cls("no device", family), f"nftables table {FAMILIES[family]} {name}"
                yield Owned(made.identity(), text, tuple(made.revert(view)), device=alive, shared=made.shared())


class NodeAccessFields(NamedTuple):
    """The fields of NodeAccess."""

    device: str
    nfproto: int  #: BRIDGE for a port of a bridge, else INET
    services: tuple[str, ...] = ()  #: "icmp", "tcp/80", "udp/53"
    ifindex: int = 0
    now: tuple[tuple[str, str], ...] = ()  #: of this device, and not wanted: table and set, with a space between, and key


class NodeAccess(NodeAccessFields, Operation):
    """Limit what one guest reaches: its device's elements, put in place and replaced in one transaction."""

    __slots__ = ()
    KIND = "access"
    REPAIRED = "the NIC's entries in them"
    MIGRATION = "for packets from the tap"
    CHOSEN = frozenset({"ifindex", "now"})
    BEFORE = frozenset[str]()

    def confines(self) -> str:
        return "the node"

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self._replace(ifindex=device_link(view, self.device).index)
        for family in self._families():
            own_table(view, *place_of(family))
        wanted = set(made.elements())
        surplus = [(f"{each.table} {each.set}", each.key.hex()) for each in made._there(view) if each not in wanted]
        return [made._replace(now=tuple(surplus))]

    def _families(self) -> tuple[int, ...]:
        return (INET, BRIDGE) if self.nfproto == BRIDGE else (INET,)

    def elements(self) -> list[NftElement]:
        """Its elements. What link-local groups' frames bring comes in by a bridged tap itself: inet has those of every NIC."""
        index, found = INDEX.pack(self.ifindex), []
        for family in self._families():
            place = place_of(family)
            found.append(NftElement(*place, NICS, index))
            for service in self.services:
                protocol, _, port = service.partition("/")
                if protocol in PROTOCOLS:
                    key = bytes((PROTOCOLS[protocol], 0, 0, 0)) + int(port).to_bytes(2, "big") + bytes(2)
                    found.append(NftElement(*place, SERVICES, index + key))
                else:
                    found.append(NftElement(*place, PING, index))
        return found

    def _there(self, view: View) -> list[NftElement]:
        """Its elements that are there, but for those that rules add."""
        index = INDEX.pack(self.ifindex)
        return [each for family in NAMES for each in own_elements(view, *place_of(family), index, SETS)]

    def apply(self) -> Sequence[Request]:
        steps: list[Step] = []
        for place, key in self.now:
            table, _, name = place.partition(" ")
            family = BRIDGE if table == NAMES[BRIDGE] else INET
            steps.append(Drop(NftElement(*place_of(family), name, bytes.fromhex(key))))
        return [self._change(*steps, *map(Put, self.elements()))]

    def _change(self, *steps: Step) -> NftChange:
        return NftChange(f"node_access of {self.device}", steps, WITHOUT)

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        now, wanted = set(self._there(view)), set(self.elements())
        if now == wanted:
            return ""
        return "sets differ: " + ", ".join(sorted({each.set for each in now ^ wanted}))

    def revert(self, view: View) -> Sequence[Request]:
        there = self._there(view) if self.ifindex > 0 else []
        return [self._change(*map(Drop, there))] if there else []

    def identity(self) -> str:
        return f"access {self.ifindex}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"Of the node itself the guest reaches {', '.join(self.services) or 'nothing'}, and what its mode needs."

    def describe(self) -> str:
        reached = ", ".join(self.services) or "nothing"
        return f"nft: of the node itself the guest on {self.device} reaches {reached}, and what its mode needs"

    def undo(self) -> str:
        return f"nft: the guest on {self.device} reaches of the node what the node's own rules allow"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        found: dict[int, list[NftElement]] = {}
        for family in NAMES:
            there = view.nft_table(*place_of(family))
            for element in view.nft_elements(*place_of(family), SETS) if there is not None and there.ours else ():
                found.setdefault(_index(element), []).append(element)
        for index, elements in found.items():
            link = view.link_at(index)
            device = "" if link is None else link.name
            change = NftChange(f"node_access of {device or index}", tuple(map(Drop, elements)), WITHOUT)
            text = f"what the guest on {device or f'device {index}'} reaches of the node, in nftables table {elements[0].table}"
            yield Owned(f"access {index}", text, (change,), device=device)


def _index(element: NftElement) -> int:
    found: int = INDEX.unpack(element.key[:4])[0]
    return found
