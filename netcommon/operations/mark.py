"""Packets that come in by the taps of a routing table bear its mark (``[rules] mark``), and one policy rule serves all of its NICs.

With a rule for each NIC the kernel compares every packet that it routes, of the node's own and of anybody's, with thousands of them one by
one. A mark is set once, by a set that is looked up as fast with 5000 devices as with one: in prerouting of family inet, and in family arp,
where the kernel looks up a route too before it answers for a guest's gateway (proxy_arp), but no packet of inet passes.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.facts import AF_INET, AF_INET6, DROPPING
from netcommon.host.api.nftables import (
    ARP,
    ARP_IN,
    IFINDEX_TYPE,
    INET,
    INET_PREROUTING,
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
from netcommon.host.nftables.expressions import META_IIF, META_MARK, altered, assign, meta, within
from netcommon.operations.base import Operation, Owned, replaced
from netcommon.operations.link import device_link, link_of
from netcommon.operations.rule import MAIN_PREFERENCE, refuse_strange
from netcommon.operations.shared_table import FAMILIES, Contents, SharedTable, own_elements, own_table
from netcommon.operations.table import MAIN, called, renumbered, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

PREFIX = "netcommon-mark-"
TAPS = "taps"
SETS = frozenset({TAPS})
PRIORITY = -150  #: NF_IP_PRI_MANGLE: after connection tracking, before the route is looked up
HOOKS = {INET: ("prerouting", INET_PREROUTING, PRIORITY), ARP: ("input", ARP_IN, 0)}
INDEX, WORD = Struct("=I"), Struct("=I")
WITHOUT = "or have a policy rule for each NIC, [rules] mark = 0"


def name_of(number: int, mask: int) -> str:
    """The nftables tables' name for a routing table: another mask makes another mark."""
    return f"{PREFIX}{number}-{mask:x}"


def shifted(number: int, mask: int) -> int:
    """``number`` where the bits of ``mask`` begin."""
    return number << ((mask & -mask).bit_length() - 1)


def value_of(number: int, mask: int) -> int:
    """The mark of routing table ``number``: its number in the bits of ``mask``. Raises HostRefused where it has no room there."""
    value = shifted(number, mask)
    if value & ~mask:
        raise HostRefused(
            f"routing table {number} has no room in the mark's bits {mask:#x}",
            "give it a lower number in /etc/iproute2/rt_tables.d/, or [rules] mark more bits",
        )
    return value


def kept_from_main(view: View, family: int) -> bool:
    """Tell whether what comes in by a device and is looked up in no other table is dropped, instead of in main.

    That is the administrator's to say, by one rule for all devices: ``not iif lo blackhole``. Who else forwards by main he alone knows.
    """
    rules = [rule for rule in view.rules(family, "lo") if rule.inverted and rule.preference < MAIN_PREFERENCE]
    return any(rule.action in DROPPING for rule in rules)


def unmarked(view: View) -> str:
    """Say what becomes of what guests send while nothing marks it."""
    forwarded = (AF_INET, AF_INET6) if view.sysctl("net/ipv6/conf/all/forwarding") == "1" else (AF_INET,)
    kept = all(kept_from_main(view, family) for family in forwarded)
    return "what the guest sends is dropped meanwhile" if kept else "what the guest sends goes by table main meanwhile"


class MarkTableFields(NamedTuple):
    """The fields of MarkTable."""

    device: str
    nfproto: int  #: INET or ARP
    table: str  #: the routing table's name or number
    mask: int
    number: int = 0
    now: bool = False


class MarkTable(MarkTableFields, SharedTable):
    """The nftables table of one family that marks what comes in by the taps of a routing table."""

    __slots__ = ()
    KIND = "mark-table"
    REPAIRED = "the nftables tables that mark what routed guests send"
    MIGRATION = "of the node"
    PURPOSE = "rule of the mark"
    WITHOUT = WITHOUT
    CHOSEN = frozenset({"number", "now"})

    def place_of(self) -> tuple[int, str]:
        return self.nfproto, name_of(self.number, self.mask)

    def shared(self) -> tuple[str, ...]:
        return (_key(self.nfproto, name_of(self.number, self.mask) if self.number else ""),)

    def unbroken(self) -> bool:
        return True

    def taking_over(self, view: View, before: Operation) -> Sequence[Request]:
        """The mark does what a rule did."""
        from netcommon.operations.ganeti_rule import unmarked  # where a NIC is adopted

        return [*unmarked(view, (AF_INET, AF_INET6), self.device, self.number), *(self.apply() if self != before else ())]

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        number = table_number(view, self.table, warnings)
        if number == MAIN:
            return []
        value_of(number, self.mask)
        return SharedTable.resolve(replaced(self, number=number), view, warnings)  # type: ignore[arg-type]

    def differs(self, view: View) -> str:
        text = SharedTable.differs(self, view)
        return renumbered(view, self.table, self.number) or (text and f"{text}: {unmarked(view)}")

    def contents(self) -> Contents:
        family, name = self.place_of()
        chain, hook, priority = HOOKS[family]
        taps = NftSet(family, name, TAPS, ((IFINDEX_TYPE, 4),))
        kept, value = WORD.pack(~self.mask & 0xFFFFFFFF), WORD.pack(value_of(self.number, self.mask))
        rule = meta(META_IIF) + within(TAPS) + meta(META_MARK) + altered(kept, value) + assign(META_MARK)
        return Contents(
            NftTable(family, name, f"{MARK} mark of routing table {self.number}"),
            (taps,),
            (NftChain(family, name, chain, hook, priority),),
            (NftRule(family, name, chain, rule),),
        )

    def identity(self) -> str:
        return _identity(*self.place_of())

    def sentence(self) -> str:
        return f"The packet filter marks what the guests of {called(self.table, self.number)} send."

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for family in HOOKS:
            for table in view.nft_tables(family):
                if table.ours and table.name.startswith(PREFIX):
                    links = (view.link_at(INDEX.unpack(each.key)[0]) for each in view.nft_elements(family, table.name, SETS))
                    alive = next((link.name for link in links if link is not None), "")
                    change = NftChange("mark of no device", (Drop(table),), WITHOUT)
                    text = f"nftables table {FAMILIES[family]} {table.name}"
                    yield Owned(_identity(family, table.name), text, (change,), device=alive, shared=(_key(family, table.name),))


def _key(family: int, name: str) -> str:
    return f"mark-table-{FAMILIES[family]}" + (f"@{name}" if name else "")


def _identity(family: int, name: str) -> str:
    return f"mark-table {FAMILIES[family]} {name}"


class TapMarkFields(NamedTuple):
    """The fields of TapMark."""

    device: str
    table: str  #: the routing table's name or number
    mask: int
    arp: bool  #: the guest has IPv4 addresses: the kernel looks up routes for its ARP requests
    preference: int  #: of the rule that takes the mark
    number: int = 0
    ifindex: int = 0


class TapMark(TapMarkFields, Operation):
    """What comes in by the device is marked."""

    __slots__ = ()
    KIND = "mark"
    REPAIRED = "the NIC's entries in them"
    MIGRATION = "for packets from the tap"
    CHOSEN = frozenset({"number", "ifindex"})
    BEFORE = frozenset[str]()

    def network(self) -> tuple[object, ...]:
        return ("table", self.number)

    def unbroken(self) -> bool:
        return True

    def _bits(self, number: int) -> tuple[int, int]:
        """Return the mark of table ``number``, and which bits of a packet's are it."""
        return (value_of(number, self.mask), self.mask) if number != MAIN else (0, 0)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        number = table_number(view, self.table, warnings)
        for family in (AF_INET, AF_INET6):
            refuse_strange(view, family, self.device, number, self.preference, warnings, *self._bits(number))
        if number == MAIN:
            return []
        made = self._replace(number=number, ifindex=device_link(view, self.device).index)
        for each in made._elements():
            own_table(view, each.family, each.table)
        return [made]

    def _families(self) -> tuple[int, ...]:
        return (INET, ARP) if self.arp else (INET,)

    def _elements(self) -> list[NftElement]:
        return [NftElement(family, name_of(self.number, self.mask), TAPS, INDEX.pack(self.ifindex)) for family in self._families()]

    def apply(self) -> Sequence[Request]:
        return [NftChange(f"mark of {self.device}", tuple(map(Put, self._elements())), WITHOUT)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        if moved := renumbered(view, self.table, self.number):
            return moved
        gone = [each for each in self._elements() if each not in _of(view, each)]
        text = " and ".join(f"it is not in nftables table {FAMILIES[each.family]} {each.table}" for each in gone)
        return text and f"{text}: {unmarked(view)}"

    def revert(self, view: View) -> Sequence[Request]:
        there = [each for each in self._elements() if self.ifindex > 0 and each in _of(view, each)]
        return [NftChange(f"mark of {self.device}", tuple(map(Drop, there)), WITHOUT)] if there else []

    def identity(self) -> str:
        return f"mark {self.ifindex} {name_of(self.number, self.mask)}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"What the guest sends bears the mark of {called(self.table, self.number)}."

    def describe(self) -> str:
        name = f"{PREFIX}{self.number or self.table}-{self.mask:x}"
        return "; ".join(f'nft add element {FAMILIES[family]} {name} {TAPS} {{ "{self.device}" }}' for family in self._families())

    def undo(self) -> str:
        return self.describe().replace("nft add ", "nft delete ")

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for family in HOOKS:
            for table in view.nft_tables(family):
                if table.ours and table.name.startswith(PREFIX):
                    for element in view.nft_elements(family, table.name, SETS):
                        index = INDEX.unpack(element.key)[0]
                        link = view.link_at(index)
                        device = "" if link is None else link.name
                        change = NftChange(f"mark of {device or index}", (Drop(element),), WITHOUT)
                        text = f"{device or index} in nftables table {FAMILIES[family]} {table.name}"
                        yield Owned(f"mark {index} {table.name}", text, (change,), device=device)


def _of(view: View, element: NftElement) -> Sequence[NftElement]:
    return own_elements(view, element.family, element.table, element.key, SETS)
