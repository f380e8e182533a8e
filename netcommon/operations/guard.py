"""The spoof guard of bridged and routed NICs (docs/spoof-guard.md): a table with the constant rules, and each NIC's own part of it.

Tables are several since the kernel validates a table as a whole whenever a chain is added to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from netcommon.host.attributes import as_bytes
from netcommon.host.base import View
from netcommon.host.facts import AF_INET, AF_INET6
from netcommon.host.nfexpr import DIFFERENT, GOTO, LINK_HEADER, META_IIF, META_OIF, compare, load, mask, meta, verdict
from netcommon.host.nftables import EGRESS, INGRESS, MARK, NETDEV, Clear, Drop, NftChain, NftElement, NftRule, NftTable, Put, Step
from netcommon.host.requests import NftChange, Request
from netcommon.operations import guard_rules
from netcommon.operations.base import Operation, Owned
from netcommon.operations.guard_keys import exact, family_of, mac, padded, widest
from netcommon.operations.link import device_link, link_of, marked
from runtime.errors import HostRefused

PREFIX = "netcommon-guard-"
TABLES = 19
PRIORITY = -300
INDEX = Struct("=I")  #: as the kernel holds a device's index
WITHOUT = "or switch the spoof guard off, spoof_guard = false in [nic] of the settings"


def table_of(device: str) -> str:
    """The table in which the device is guarded."""
    return f"{PREFIX}{int.from_bytes(as_bytes(device), 'big') % TABLES:02}"


def constant(name: str) -> NftTable:
    return NftTable(NETDEV, name, f"{MARK} spoof guard")


class GuardTableFields(NamedTuple):
    """The fields of GuardTable."""

    device: str
    name: str
    now: bool = False


class GuardTable(GuardTableFields, Operation):
    """The constant rules, shared by the NICs of one table; the last one's down removes it.

    For a NIC that is new the table's being there is taken for its being whole; ``check`` compares every rule.
    """

    __slots__ = ()
    KIND = "guard-table"
    CHOSEN = frozenset({"now"})
    BEFORE = frozenset[str]()

    def shared(self) -> tuple[str, ...]:
        return (f"nft-{self.name}",)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link, there = device_link(view, self.device), view.nft_table(NETDEV, self.name)
        if there is not None and not there.ours:
            raise HostRefused(f"nftables table netdev {self.name} is not ours: nft delete table netdev {self.name}")
        return [self._replace(now=there is not None and not (marked(link) and self.differs(view)))]

    def apply(self) -> Sequence[Request]:
        if self.now:
            return []
        chains, name = guard_rules.chains(self.name), self.name
        steps: list[Step] = [Put(constant(name)), *map(Put, guard_rules.sets(name)), *map(Put, chains)]
        return [
            NftChange(
                f"rules of the spoof guard of {self.device}", (*steps, *map(Clear, chains), *map(Put, guard_rules.rules(name))), WITHOUT
            )
        ]

    def differs(self, view: View) -> str:
        there = view.nft_table(NETDEV, self.name)
        if there is None:
            return "the table is gone"
        if not there.ours:
            return "the table is not ours"
        names = {chain.name for chain in guard_rules.chains(self.name)}
        now = [rule for rule in view.nft_rules(NETDEV, self.name) if rule.chain in names]
        return "" if sorted(now, key=_chain) == sorted(guard_rules.rules(self.name), key=_chain) else "its rules are not as we made them"

    def revert(self, view: View) -> Sequence[Request]:
        there = view.nft_table(NETDEV, self.name)
        return [] if there is None or not there.ours else [_drop_table(there, self.device)]

    def identity(self) -> str:
        return f"guard-table {self.name}"

    def place(self) -> str:
        return self.identity()

    def describe(self) -> str:
        return f"nft: table netdev {self.name} with the rules of the spoof guard"

    def undo(self) -> str:
        return f"nft delete table netdev {self.name}, with the last NIC that needs it"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        chains = view.nft_chains(NETDEV)
        for table in view.nft_tables(NETDEV):
            if table.ours and table.name.startswith(PREFIX):
                alive = [name for chain in chains if chain.table == table.name and (name := _guarded(view, index_of(chain.name)))]
                text = f"nftables table netdev {table.name}"
                yield Owned(f"guard-table {table.name}", text, (_drop_table(table, "no device"),), device=alive[0] if alive else "")


class NicGuardFields(NamedTuple):
    """The fields of NicGuard."""

    device: str
    owner: str  #: the NIC's UUID
    mac: str
    addresses: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    vlans: tuple[int, ...] = ()  #: those that the guest may tag with
    free: tuple[str, ...] = ()  #: the sets of guard_rules.FLAGS that it is in
    deliver_all: bool = False
    ifindex: int = 0
    now: tuple[tuple[str, str], ...] = ()  #: of this device, and not wanted: sets and keys; chains of an earlier guest, with no key


class NicGuard(NicGuardFields, Operation):
    """What one guest may send: its base chains and its elements, put in place and replaced in one transaction."""

    __slots__ = ()
    KIND = "guard"
    CHOSEN = frozenset({"ifindex", "now"})
    BEFORE = frozenset[str]()

    @property
    def table(self) -> str:
        return table_of(self.device)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self._replace(ifindex=device_link(view, self.device).index)
        first = view.nft_chain(NETDEV, made.table, made._in.name)
        if first is None:
            return [made]  # an index that is new has no elements
        there = (first, view.nft_chain(NETDEV, made.table, made._out.name))
        # another guest's, or one that somebody has hooked elsewhere: the kernel changes neither
        foreign = [(chain.name, "") for chain in there if chain is not None and chain not in (made._in, made._out)]
        wanted = {_place(element) for element in made.elements()}  # a range of another length is another one, which the new one overlaps
        surplus = [(each.set, _hex(each)) for each in made._there(view) if _place(each) not in wanted]
        return [made._replace(now=(*foreign, *surplus))]

    @property
    def _in(self) -> NftChain:
        return NftChain(NETDEV, self.table, f"in-{self.ifindex}", INGRESS, PRIORITY, self.device, self.owner)

    @property
    def _out(self) -> NftChain:
        return NftChain(NETDEV, self.table, f"out-{self.ifindex}", EGRESS, PRIORITY, self.device, self.owner)

    @property
    def filters_delivery(self) -> bool:
        """Whether frames for others are kept from the guest; who it is must be known for that."""
        return bool(self.mac) and not self.deliver_all

    def chains(self) -> list[NftChain]:
        """The NIC's own base chains."""
        return [self._in, self._out] if self.filters_delivery else [self._in]

    def rules(self) -> list[NftRule]:
        """The rules of those: they hold for this index alone, should a device of another take the chain over by its name."""
        index = compare(INDEX.pack(self.ifindex))
        found = [NftRule(NETDEV, self.table, self._in.name, meta(META_IIF) + index + verdict(GOTO, "guard"))]
        if self.filters_delivery:
            unicast = load(LINK_HEADER, 0, 1) + mask(b"\x01") + compare(b"\0")
            foreign = load(LINK_HEADER, 0, 6) + compare(mac(self.mac), DIFFERENT)
            drop = verdict(GOTO, guard_rules.chain_of("promisc"))
            found.append(NftRule(NETDEV, self.table, self._out.name, meta(META_OIF) + index + unicast + foreign + drop))
        return found

    def elements(self) -> list[NftElement]:
        """Its elements in the sets of the table."""
        index, found = INDEX.pack(self.ifindex), []

        def add(name: str, key: bytes = b"", end: bytes = b"") -> None:
            found.append(NftElement(NETDEV, self.table, name, index + padded(key), index + padded(end) if end else b""))

        for reason in guard_rules.REASONS:
            add(guard_rules.counter_of(reason))
        for name in self.free:
            add(name)
        if self.mac:
            add(guard_rules.MACS, mac(self.mac))
        for address in self.addresses:
            add(*exact(address))
        for prefix in widest(self.prefixes):
            add(*prefix)
        for vid in self.vlans:
            add(guard_rules.VLANS, vid.to_bytes(2, "big"))
        return found

    def apply(self) -> Sequence[Request]:
        """Nothing of what is allowed before and after is dropped in between."""
        chains = self.chains()
        steps: list[Step] = [Drop(self._thing(name, key)) for name, key in self.now]
        steps += [each for chain in chains for each in (Put(chain), Clear(chain))]
        steps += [] if self.filters_delivery else [Drop(self._out)]
        steps += map(Put, self.rules())
        return [NftChange(f"spoof guard of {self.device}", (*steps, *map(Put, self.elements())), WITHOUT)]

    def _thing(self, name: str, key: str) -> NftChain | NftElement:
        if not key:
            return NftChain(NETDEV, self.table, name)
        first, _, last = key.partition("-")
        return NftElement(NETDEV, self.table, name, bytes.fromhex(first), bytes.fromhex(last))

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        for chain in self.chains():
            there = view.nft_chain(NETDEV, self.table, chain.name)
            if there is None or there.device != self.device:
                return f"chain {chain.name} is gone"
            if there != chain:
                return f"chain {chain.name} is not as we made it: hook {there.hook}, priority {there.priority}"
        own = {self._in.name, self._out.name}
        if sorted(rule for rule in view.nft_rules(NETDEV, self.table) if rule.chain in own) != sorted(self.rules()):
            return "its rules are not as we made them"
        now, wanted = {_place(each) for each in self._there(view)}, {_place(each) for each in self.elements()}
        if now == wanted:
            return ""
        return "sets differ: " + ", ".join(sorted({name for name, *_ in now ^ wanted}))

    def _there(self, view: View) -> list[NftElement]:
        index = INDEX.pack(self.ifindex)
        return [element for element in view.nft_elements(NETDEV, self.table) if element.key[:4] == index]

    def revert(self, view: View) -> Sequence[Request]:
        there = view.nft_table(NETDEV, self.table)
        if there is None or not there.ours or self.ifindex <= 0:
            return []
        chain = view.nft_chain(NETDEV, self.table, self._in.name)
        if chain is not None and chain.comment != self.owner:
            return []  # a device that stays has another guest by now
        steps: list[Step] = [] if chain is None else [Drop(self._in)]
        if view.nft_chain(NETDEV, self.table, self._out.name) is not None:
            steps.append(Drop(self._out))
        return [NftChange(f"spoof guard of {self.device}", (*steps, *map(Drop, self.elements())), WITHOUT)]

    def identity(self) -> str:
        return f"guard {self.ifindex}"

    def place(self) -> str:
        return self.identity()

    def describe(self) -> str:
        words = [f"MAC {self.mac or 'unknown, not checked'}", *self.addresses, *self.prefixes, *(f"VLAN {vid}" for vid in self.vlans)]
        for family, name, free in FAMILIES:
            if free in self.free and not any(family_of(each) == family for each in (*self.addresses, *self.prefixes)):
                words.append(f"no {name} address known, MAC checks only")
        if guard_rules.FREE_IPV6 in self.free and guard_rules.ANY_LINK_LOCAL not in self.free:
            words.append("no other IPv6 address known, only link-local ones are checked")
        words += [name.replace("-", " ") for name in self.free if name not in QUIET]
        return f"nft: {self.device} is guarded in netdev {self.table}: " + ", ".join(words)

    def undo(self) -> str:
        return f"nft: {self.device} is not guarded any more in netdev {self.table}"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for table in view.nft_tables(NETDEV):
            if table.ours and table.name.startswith(PREFIX):
                yield from _owned(view, table.name)


#: The families, and the sets of those that may use any address of one.
FAMILIES = ((AF_INET, "IPv4", guard_rules.FREE_IPV4), (AF_INET6, "IPv6", guard_rules.FREE_IPV6))
QUIET = frozenset({guard_rules.FREE_IPV4, guard_rules.FREE_IPV6, guard_rules.NO_MAC})


def index_of(chain: str) -> int:
    """The device's index in the name of a NIC's base chain, 0 for another chain."""
    prefix, _, index = chain.partition("-")
    return int(index) if prefix in ("in", "out") and index.isascii() and index.isdecimal() else 0


def _owned(view: View, table: str) -> Iterator[Owned]:
    """Every device that has a chain or elements in the table."""
    parts: dict[int, list[Step]] = {}
    owners: dict[int, str] = {}
    for chain in view.nft_chains(NETDEV):
        index = index_of(chain.name) if chain.table == table else 0
        if index:
            parts.setdefault(index, []).append(Drop(chain))
            owners[index] = chain.comment
    for element in view.nft_elements(NETDEV, table):
        parts.setdefault(INDEX.unpack(element.key[:4])[0], []).append(Drop(element))
    for index, steps in parts.items():
        device = _guarded(view, index)
        text = f"spoof guard of {device or f'device {index}'} in nftables table netdev {table}"
        yield Owned(
            f"guard {index}", text, (NftChange(f"spoof guard of {device or index}", tuple(steps), WITHOUT),), owners.get(index, ""), device
        )


def _guarded(view: View, index: int) -> str:
    link = view.link_at(index) if index else None
    return "" if link is None else link.name


def _drop_table(table: NftTable, device: str) -> NftChange:
    return NftChange(f"rules of the spoof guard of {device}", (Drop(table),), WITHOUT)


def _chain(rule: NftRule) -> str:
    return rule.chain


def _place(element: NftElement) -> tuple[str, bytes, bytes]:
    return element.set, element.key, element.end


def _hex(element: NftElement) -> str:
    """Its key for a record; of a range the first and the last."""
    return element.key.hex() + (f"-{element.end.hex()}" if element.end else "")
