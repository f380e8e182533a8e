"""The spoof guard of bridged and routed NICs (docs/spoof-guard.md): a table with the constant rules, and each NIC's own part of it.

Tables are several since the kernel validates a table as a whole whenever a chain is added to it. A NIC has one base chain: with each
of them every transaction of the node, and every new device, costs more.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.nftables import BRIDGE, INGRESS, MARK, NETDEV, Clear, Drop, NftChain, NftElement, NftRule, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.expressions import GOTO, META_IIF, compare, meta, verdict
from netcommon.host.rtnetlink.attributes import as_bytes
from netcommon.operations.base import Operation, Owned
from netcommon.operations.guard import egress_filter
from netcommon.operations.guard import rules as guard_rules
from netcommon.operations.guard.keys import exact, family_of, mac, padded, widest
from netcommon.operations.guard.rules import WITHOUT
from netcommon.operations.link import device_link, link_of, marked
from netcommon.operations.shared_table import Contents, SharedTable, own_elements, own_table
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.effects.base import Effect
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.nftables import Step
    from netcommon.host.api.requests import Request

PREFIX = "netcommon-guard-"
TABLES = 19
EVERY_TABLE = tuple(f"{PREFIX}{number:02}" for number in range(TABLES))
PRIORITY = -300
INDEX = Struct("=I")  #: as the kernel holds a device's index


def table_of(device: str) -> str:
    """The table in which the device is guarded."""
    return EVERY_TABLE[int.from_bytes(as_bytes(device), "big") % TABLES]


def in_front(view: View, bridge: str) -> bool:
    """Tell whether frames meet this guard before a bridge of Open vSwitch; ``bridge`` "": the NIC is of another mode."""
    if not bridge:
        return True
    from netcommon.operations.guard import flows  # only that mode needs it

    return flows.in_front(view, bridge)


class GuardTableFields(NamedTuple):
    """The fields of GuardTable."""

    device: str
    name: str
    now: bool = False
    bridge: str = ""  #: of Open vSwitch; see in_front


class GuardTable(GuardTableFields, SharedTable):
    """The constant rules of one of the tables."""

    __slots__ = ()
    KIND = "guard-table"
    REPAIRED = "the nftables table of the spoof guard"
    MIGRATION = "of the node"
    PURPOSE = "rules of the spoof guard"
    WITHOUT = WITHOUT
    LAYOUT = guard_rules.LAYOUT

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        return super().resolve(view, warnings) if in_front(view, self.bridge) else []

    def renamed(self, before: str, now: str) -> Operation:
        return self._replace(device=now, name=table_of(now)) if self.device == before else self

    def place_of(self) -> tuple[int, str]:
        return NETDEV, self.name

    def confines(self) -> str:
        return "its addresses"

    def unbroken(self) -> bool:
        """The guard of a name that the device had before stands until that of its new name does."""
        return True

    def contents(self) -> Contents:
        name = self.name
        table = NftTable(NETDEV, name, f"{MARK} spoof guard")
        return Contents(table, guard_rules.sets(name), guard_rules.chains(name), guard_rules.rules(name))

    def sentence(self) -> str:
        return f"The packet filter has the table {self.name}, in which the spoof guards of several NICs are."

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        chains = view.nft_chains(NETDEV)
        for table in view.nft_tables(NETDEV):
            if table.ours and table.name.startswith(PREFIX):
                alive = [name for chain in chains if chain.table == table.name and (name := _guarded(view, index_of(chain.name)))]
                made = cls("no device", table.name)
                text = f"nftables table netdev {table.name}"
                device = alive[0] if alive else ""
                yield Owned(made.identity(), text, tuple(made.revert(view)), device=device, shared=made.shared())


LEARNT = (("", ""),)


class NicGuardFields(NamedTuple):
    """The fields of NicGuard."""

    device: str
    owner: str  #: the NIC's UUID
    mac: str
    addresses: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    vlans: tuple[int, ...] = ()  #: those that the guest may tag with
    free: tuple[str, ...] = ()  #: the sets of guard_rules.FLAGS that it is in
    filtered: bool = False  #: it is delivered only what is for it (netcommon.operations.guard.egress_filter)
    new_sources: int = 0  #: so many addresses that are not known by themselves it may begin to use in a minute; 0: any number
    ifindex: int = 0
    #: Of this device, and not wanted: sets and keys; chains of an earlier guest, with no key. A space follows the name of another table.
    #: LEARNT where its bridge may have learnt MACs from the guest that it may send from no more.
    now: tuple[tuple[str, str], ...] = ()
    bridge: str = ""  #: of Open vSwitch; see in_front


class NicGuard(NicGuardFields, Operation):
    """What one guest may send: its base chain and its elements, put in place and replaced in one transaction."""

    __slots__ = ()
    KIND = "guard"
    REPAIRED = "the NIC's entries in them"
    MIGRATION = "for packets from and to the tap"
    CHOSEN = frozenset({"ifindex", "now"})
    BEFORE = frozenset[str]()

    @property
    def table(self) -> str:
        return table_of(self.device)

    def anywhere(self) -> Operation:
        return self._replace(vlans=(), bridge="")

    def confines(self) -> str:
        return "its addresses"

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        if not self.ifindex and (strange := self._strange(view, link)):
            warnings.append(strange)
        if not in_front(view, self.bridge):
            return []
        if self.ifindex:  # a repair, which goes on with this where it is the table that is refused
            for place in ((NETDEV, self.table), *([(BRIDGE, egress_filter.NAME)] if self.filtered else [])):
                own_table(view, *place)
        made = self._replace(ifindex=link.index)
        there = view.nft_chain(NETDEV, made.table, made._in.name)
        port = link.port_kind == "bridge" and bool(self.mac) and guard_rules.FREE_MAC not in self.free
        if there is None and not (self.ifindex or marked(link)):
            return [made._replace(now=LEARNT if port else ())]  # an index that is new has no elements
        # another guest's, or one that somebody has hooked elsewhere: the kernel changes neither
        foreign = [] if there in (None, made._in) else [(made._in.name, "")]
        wanted = {_place(element) for element in made.elements()}  # a range of another length is another one, which the new one overlaps
        surplus = [(each.set, _hex(each)) for each in made._there(view) if _place(each) not in wanted]
        elsewhere = made._elsewhere(view) if there is None else []
        free = there != made._in or any(name in (guard_rules.FREE_MAC, guard_rules.MACS) for name, _key in surplus)
        learnt = port and (free or list(view.nft_rules_of(NETDEV, made.table, made._in.name)) != [made._rule()])
        return [made._replace(now=(*foreign, *surplus, *elsewhere, *(LEARNT if learnt else ())))]

    def effects(self) -> Sequence[Effect]:
        if not set(LEARNT) & {*self.now}:
            return ()
        from netcommon.effects.forget import Forget  # few guards have stood open

        return (Forget(self.device, self.ifindex),)

    def _strange(self, view: View, link: Link) -> str:
        """Say where the device's MAC tells of another guest: hypervisors make it of the guest's, with the first octet fe (libvirt).

        One that the kernel has made up begins so by chance, one time in 64, also when a down has put it back; so another guest's counts
        only where it is of the same manufacturer's prefix, as the guests of a cluster are.
        """
        checked = self.mac and guard_rules.FREE_MAC not in self.free and not marked(link)
        another = link.address.startswith(f"fe:{self.mac[3:8]}:") and link.address[3:] != self.mac[3:]
        if not (checked and another and view.assigned(link)):
            return ""
        text = f"{self.device} has the MAC {link.address}, which seems to be made of that of a guest other than {self.mac}"
        return f"{text}: if so, the spoof guard drops all that it sends; correct the NIC's MAC"

    def _elsewhere(self, view: View) -> list[tuple[str, str]]:
        """Find the device's chain and elements in another table than its own: it had another name when they were made."""
        found: list[tuple[str, str]] = []
        for table in EVERY_TABLE:
            chain = view.nft_chain(NETDEV, table, self._in.name) if table != self.table else None
            if chain is not None and chain.comment == self.owner:
                elements = own_elements(view, NETDEV, table, INDEX.pack(self.ifindex), guard_rules.SETS)
                found += [(f"{table} {chain.name}", ""), *((f"{table} {each.set}", _hex(each)) for each in elements)]
        return found

    @property
    def _in(self) -> NftChain:
        return NftChain(NETDEV, self.table, f"in-{self.ifindex}", INGRESS, PRIORITY, self.device, self.owner)

    def _rule(self) -> NftRule:
        """That of its chain: it holds for this index alone, should a device of another take the chain over by its name."""
        index = compare(INDEX.pack(self.ifindex))
        return NftRule(NETDEV, self.table, self._in.name, meta(META_IIF) + index + verdict(GOTO, "guard"))

    def elements(self) -> list[NftElement]:
        """Its elements in the sets of the tables."""
        index, found = INDEX.pack(self.ifindex), egress_filter.elements(self.ifindex, mac(self.mac)) if self.filtered else []
        table = self.table

        def add(name: str, key: bytes = b"", end: bytes = b"", limit: int = 0) -> None:
            found.append(NftElement(NETDEV, table, name, index + padded(key), index + padded(end) if end else b"", 0, b"", limit))

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
        if self.new_sources:
            add(guard_rules.NEW_SOURCES, limit=self.new_sources)
            add(guard_rules.counter_of(guard_rules.SOURCES))
        return found

    def apply(self) -> Sequence[Request]:
        """Nothing of what is allowed before and after is dropped in between."""
        steps: list[Step] = [Drop(self._thing(name, key)) for name, key in self.now if name]
        steps += [Put(self._in), Clear(self._in), Put(self._rule()), *map(Put, self.elements())]
        return [NftChange(f"spoof guard of {self.device}", tuple(steps), WITHOUT)]

    def _thing(self, name: str, key: str) -> NftChain | NftElement:
        table, _, name = name.rpartition(" ")
        if not key:
            return NftChain(NETDEV, table or self.table, name)
        first, _, last = key.partition("-")
        place = (BRIDGE, egress_filter.NAME) if name in egress_filter.SETS else (NETDEV, table or self.table)
        return NftElement(*place, name, bytes.fromhex(first), bytes.fromhex(last))

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        there, name = view.nft_chain(NETDEV, self.table, self._in.name), self._in.name
        if there is None or there.device != self.device:
            return f"chain {name} is gone"
        if there != self._in:
            return f"chain {name} is not as we made it: hook {there.hook}, priority {there.priority}"
        if list(view.nft_rules_of(NETDEV, self.table, name)) != [self._rule()]:
            return "its rules are not as we made them"
        now, wanted = {_place(each) for each in self._there(view)}, {_place(each) for each in self.elements()}
        if now == wanted:
            return ""
        return "sets differ: " + ", ".join(sorted({name for name, *_ in now ^ wanted}))

    def _there(self, view: View) -> list[NftElement]:
        """Its elements, without those that the rules add."""
        index = INDEX.pack(self.ifindex)
        found = own_elements(view, NETDEV, self.table, index, guard_rules.SETS)
        return [*found, *own_elements(view, BRIDGE, egress_filter.NAME, index, egress_filter.SETS)]

    def revert(self, view: View) -> Sequence[Request]:
        if self.ifindex <= 0:
            return []
        chain = view.nft_chain(NETDEV, self.table, self._in.name)
        if chain is not None and chain.comment != self.owner:
            return []  # a device that stays has another guest by now
        tables = [view.nft_table(NETDEV, self.table), view.nft_table(BRIDGE, egress_filter.NAME) if self.filtered else None]
        ours = {table[:2] for table in tables if table is not None and table.ours}
        steps: list[Step] = [Drop(self._in)] if chain is not None and (NETDEV, self.table) in ours else []
        steps += [Drop(element) for element in self.elements() if element[:2] in ours]
        steps += [Drop(self._thing(*each)) for each in (self._elsewhere(view) if chain is None else ())]
        return [NftChange(f"spoof guard of {self.device}", tuple(steps), WITHOUT)] if steps else []

    def identity(self) -> str:
        return f"guard {self.ifindex}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        macs = "any MAC" if guard_rules.FREE_MAC in self.free or not self.mac else f"the MAC {self.mac}"
        known = [*self.addresses, *self.prefixes]
        free = (("IPv4", guard_rules.FREE_IPV4), ("IPv6", guard_rules.FREE_IPV6))
        known += [f"any {family} address" for family, name in free if name in self.free]
        return f"The guest may send from {macs} and from {', '.join(known) or 'no address'}; what else it sends is dropped."

    def describe(self) -> str:
        words = [f"MAC {self.mac or 'unknown, not checked'}", *self.addresses, *self.prefixes, *(f"VLAN {vid}" for vid in self.vlans)]
        for family, name, free in FAMILIES:
            if not any(family_of(each) == family for each in (*self.addresses, *self.prefixes)):
                words.append(f"no {name} address known, MAC checks only" if free in self.free else f"no {name}")
        if guard_rules.FREE_IPV6 in self.free and guard_rules.ANY_LINK_LOCAL not in self.free:
            words.append("no other IPv6 address known, only link-local ones are checked")
        words += [name.replace("-", " ") for name in self.free if name not in QUIET]
        words += [f"{self.new_sources} new addresses a minute"] if self.new_sources else []
        where = f", if the kernel forwards for {self.bridge}" if self.bridge and not self.ifindex else ""
        return f"nft: {self.device} is guarded in netdev {self.table}{where}: " + ", ".join(words)

    def undo(self) -> str:
        return f"nft: {self.device} is not guarded any more in netdev {self.table}"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        """Every device that has a chain or elements in a table of ours."""
        tables = [table for table in view.nft_tables(NETDEV) if table.name.startswith(PREFIX)]
        tables += [table for table in (view.nft_table(BRIDGE, egress_filter.NAME),) if table is not None]
        places = {table[:2]: table.name for table in tables if table.ours}
        parts: dict[int, list[NftChain | NftElement]] = {}
        for chain in view.nft_chains(NETDEV):
            if chain[:2] in places and chain.hook == INGRESS and index_of(chain.name):
                parts.setdefault(index_of(chain.name), []).append(chain)
        for place in places:
            for element in view.nft_elements(*place, egress_filter.SETS if place[0] == BRIDGE else guard_rules.SETS):
                parts.setdefault(INDEX.unpack(element.key[:4])[0], []).append(element)
        for index, things in parts.items():
            device = _guarded(view, index)
            owner = next((thing.comment for thing in things if isinstance(thing, NftChain)), "")
            text = f"spoof guard of {device or f'device {index}'} in nftables table {things[0].table}"
            change = NftChange(f"spoof guard of {device or index}", tuple(map(Drop, things)), WITHOUT)
            yield Owned(f"guard {index}", text, (change,), owner, device)


#: The families, and the sets of those that may use any address of one.
FAMILIES = ((AF_INET, "IPv4", guard_rules.FREE_IPV4), (AF_INET6, "IPv6", guard_rules.FREE_IPV6))
QUIET = frozenset({guard_rules.FREE_IPV4, guard_rules.FREE_IPV6, guard_rules.NO_MAC})


def index_of(chain: str) -> int:
    """The device's index in the name of a NIC's base chain, 0 for another chain."""
    prefix, _, index = chain.partition("-")
    return int(index) if prefix == "in" and index.isascii() and index.isdecimal() else 0


def _guarded(view: View, index: int) -> str:
    link = view.link_at(index) if index else None
    return "" if link is None else link.name


def _place(element: NftElement) -> tuple[str, bytes, bytes, int]:
    return element.set, element.key, element.end, element.limit


def _hex(element: NftElement) -> str:
    """Its key for a record; of a range the first and the last."""
    return element.key.hex() + (f"-{element.end.hex()}" if element.end else "")
