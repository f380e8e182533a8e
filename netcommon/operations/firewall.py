"""Firewall profiles: a table for each profile that some NIC has, and the NIC's place in it.

A table's name has a digest of its rules, so it never changes: when the template does, NICs that come up from then on get a table of
their own, and the last of the others takes the old one along.
"""

from __future__ import annotations

from struct import Struct

from netcommon.host.api.nftables import BRIDGE, INET, Drop, NftElement, NftTable, Put
from netcommon.host.api.requests import LoadRules, NftChange
from netcommon.host.nftables.profile_table import FAMILIES, MADE, MEMBERS, NEEDED, OWN, UNTRACKED, fingerprint, layouts, tracks
from netcommon.host.rtnetlink.attributes import MalformedError, attributes, each, string
from netcommon.operations.base import ABSENT, FINDINGS, OURS, Operation, Owned
from netcommon.operations.link import device_link, link_of
from netcommon.operations.shared_table import own_elements, own_table
from runtime.errors import HostRefused, TemplateInvalid
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

START = "netcommon-fw-"
OTHERWISE = "or give the NIC the firewall profile unprotected"
#: The families whose rules may look at connections (NFPROTO_*), and the expressions by which they do: also all that iptables-nft has of
#: its own, and objects, among which counters are: nothing tells what they need.
TRACKING = {INET: "inet", 2: "ip", 10: "ip6", BRIDGE: "bridge"}
LOOKING = frozenset({"ct", "nat", "masq", "redir", "connlimit", "synproxy", "flow_offload", "objref", "match", "target"})
SETS = frozenset({MEMBERS})
INDEX = Struct("=I")  #: as the kernel holds a device's index
LAYOUT = "3"  #: raised when netcommon.host.nftables.profile_table changes what is around the rules: that makes another table


def rules_of(view: View, profile: str, family: int) -> tuple[str, ...]:
    """Give what the template of a profile says now, one rule each. Raises TemplateInvalid."""
    from netcommon.templates import render  # dear, and few NICs have a firewall

    name = f"firewall/{profile}.j2"
    text = render(name, {"family": FAMILIES[family]}, view.template)
    rules = tuple(line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#"))
    for rule in rules:
        depth = 0
        for letter in rule:
            depth += (letter == "{") - (letter == "}")
            if depth < 0:
                break
        if depth or any(letter in ';"\\' or not letter.isprintable() for letter in rule) or rule.split()[0] in WORDS:
            raise TemplateInvalid(f"template {name}: expected one rule of nft(8) a line, without ; and quotes: {rule}")
    if not rules:
        raise TemplateInvalid(f"template {name} has no rule")
    return rules


#: What begins a command, or the scanner's own, and no rule.
WORDS = frozenset({"add", "chain", "create", "define", "delete", "destroy", "flush", "include", "insert", "list", "map", "redefine", "set"})
WORDS |= {"rename", "replace", "reset", "table", "type", "undefine"}


def table_of(profile: str, rules: Sequence[str]) -> str:
    """The name of the table that has these rules."""
    import hashlib

    return f"{START}{profile}-{hashlib.sha256(chr(10).join((LAYOUT, *rules)).encode()).hexdigest()[:8]}"


class FirewallTableFields(NamedTuple):
    """The fields of FirewallTable."""

    nfproto: int  #: netcommon.host.api.nftables.BRIDGE or INET
    profile: str
    table: str = ""
    rules: tuple[str, ...] = ()
    found: str = ABSENT
    alone: bool = False  #: no other rules of the node look at connections
    older: tuple[int, ...] = ()  #: devices in tables of earlier versions


class FirewallTable(FirewallTableFields, Operation):
    """The rules of a profile, shared by all NICs that have it."""

    __slots__ = ()
    KIND = "firewall"
    REPAIRED = "the firewall's tables"
    MIGRATION = "of the node"
    CHOSEN = frozenset({"table", "rules", "found", "alone", "older"})
    BEFORE = frozenset[str]()
    VALUES = (("found", FINDINGS),)

    def common(self) -> bool:
        return True

    def shared(self) -> tuple[str, ...]:
        return (_key(self.nfproto, self.profile, self.table),)

    def confines(self) -> str:
        return "its firewall"

    def unbroken(self) -> bool:
        """See that what two profiles both drop never passes while one takes the other's place."""
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self
        if not made.table:  # else it is on record: repaired is what was loaded, whatever the template says by now
            rules = rules_of(view, self.profile, self.nfproto)
            made = self._replace(table=table_of(self.profile, rules), rules=rules)
        for table in _tables(made.nfproto, made.table):
            there = view.nft_table(table.family, table.name)
            if there is not None and not there.ours:
                raise HostRefused(f"nftables has a table {FAMILIES[table.family]} {table.name} that is not ours", "delete or rename it")
        found = ABSENT if made.differs(view) else OURS
        if found == OURS or not tracks(made.rules):
            return [made._replace(found=found, alone=False, older=())]
        return [made._replace(found=found, alone=not trackers(view), older=tuple(sorted(_older(view))))]

    def apply(self) -> Sequence[Request]:
        return [] if self.found == OURS else [LoadRules(self.nfproto, self.table, self.rules, self.alone, self.older)]

    def differs(self, view: View) -> str:
        for table in _tables(self.nfproto, self.table):
            there = view.nft_table(table.family, table.name)
            if there is None or there.dormant:
                return f"table {FAMILIES[table.family]} {table.name} is {'gone' if there is None else 'dormant'}"
        made = view.nft_chain(self.nfproto, self.table, MADE)
        if made is None or made.comment != fingerprint(view, self.nfproto, self.table):
            return "its rules are not as they were loaded"
        where = _tables(self.nfproto, self.table)[-1]
        if tracks(self.rules) and view.nft_chain(where.family, where.name, UNTRACKED) is not None and (others := trackers(view)):
            return f"it keeps connections from being tracked that {others} may look at"
        return ""

    def revert(self, view: View) -> Sequence[Request]:
        found = [view.nft_table(table.family, table.name) for table in _tables(self.nfproto, self.table)] if self.table else []
        ours = tuple(Drop(table) for table in found if table is not None and table.ours)
        return [NftChange(self.describe(), ours, OTHERWISE)] if ours else []

    def identity(self) -> str:
        return _identity(self.nfproto, self.table)

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"The packet filter has the rules of the firewall profile {self.profile}."

    def describe(self) -> str:
        return f"nft table {FAMILIES[self.nfproto]} {self.table or '<of profile ' + self.profile + '>'}: {len(self.rules) or 'its'} rules"

    def undo(self) -> str:
        name = self.table or f"<of profile {self.profile}>"
        return f"nft delete table {FAMILIES[self.nfproto]} {name}, with the last NIC that has it"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for table in _ours(view):
            text = f"nft table {FAMILIES[table.family]} {table.name}"
            family, name = (BRIDGE, table.name.removesuffix(OWN)) if table.name.endswith(OWN) else table[:2]
            key = _key(family, name.removeprefix(START).rpartition("-")[0], name)
            yield Owned(_identity(family, name), text, (NftChange(text, (Drop(table),), OTHERWISE),), shared=(key,))


def _key(nfproto: int, profile: str, table: str) -> str:
    return f"firewall-{nfproto}-{profile}" + (f"@{table}" if table else "")


class FirewallMemberFields(NamedTuple):
    """The fields of FirewallMember."""

    device: str
    nfproto: int  #: netcommon.host.api.nftables.BRIDGE or INET
    profile: str
    table: str = ""
    ifindex: int = 0


class FirewallMember(FirewallMemberFields, Operation):
    """What is forwarded to the device goes through the profile's rules.

    The element is by index: it outlives the device, but never catches another one of that name.
    """

    __slots__ = ()
    KIND = "firewall-nic"
    REPAIRED = "the NIC's place in them"
    MIGRATION = "for packets from and to the tap"
    CHOSEN = frozenset({"table", "ifindex"})
    BEFORE = frozenset[str]()

    def shared(self) -> tuple[str, ...]:
        key = f"firewall-{self.nfproto}-{self.profile}-{self.device}"
        return (f"{key}@{self.table}" if self.table else key,)

    def confines(self) -> str:
        return "its firewall"

    def unbroken(self) -> bool:
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        table = self.table or table_of(self.profile, rules_of(view, self.profile, self.nfproto))
        own_table(view, self.nfproto, table)
        return [self._replace(table=table, ifindex=device_link(view, self.device).index)]

    def element(self) -> NftElement:
        """Its place in the table's set of devices."""
        return NftElement(self.nfproto, self.table, MEMBERS, INDEX.pack(self.ifindex))

    def apply(self) -> Sequence[Request]:
        return [NftChange(self.describe(), (Put(self.element()),), OTHERWISE)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        return "" if self._there(view) else "the device is not in the table's set"

    def _there(self, view: View) -> bool:
        there = own_elements(view, self.nfproto, self.table, INDEX.pack(self.ifindex), SETS)
        return any(found[:4] == self.element()[:4] for found in there)

    def revert(self, view: View) -> Sequence[Request]:
        there: NftTable | None = view.nft_table(self.nfproto, self.table) if self.table else None
        if there is None or not there.ours or self.ifindex <= 0 or not self._there(view):
            return []
        return [NftChange(self.describe(), (Drop(self.element()),), OTHERWISE)]

    def identity(self) -> str:
        return _member(self.nfproto, self.table, self.ifindex)

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"The firewall profile {self.profile} stands in front of the guest."

    def describe(self) -> str:
        where = f"{FAMILIES[self.nfproto]} {self.table or '<of profile ' + self.profile + '>'}"
        return f"nft add element {where} nics {{ {self.device} }}"

    def undo(self) -> str:
        return self.describe().replace(" add ", " delete ", 1)

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for table in _ours(view):
            for element in view.nft_elements(*table[:2], SETS):
                if len(element.key) == INDEX.size:
                    index = INDEX.unpack(element.key)[0]
                    link = view.link_at(index)
                    device = "" if link is None else link.name
                    text = f"{device or f'device {index}'} in nft table {FAMILIES[table.family]} {table.name}"
                    drop = NftChange(text, (Drop(element),), OTHERWISE)
                    yield Owned(_member(table.family, table.name, index), text, (drop,), device=device)


def _ours(view: View) -> Iterator[NftTable]:
    """All tables of profiles."""
    for family in FAMILIES:
        yield from (table for table in view.nft_tables(family) if table.ours and table.name.startswith(START))


def trackers(view: View) -> str:
    """The first table of others whose rules look at connections or translate addresses, for people; "" where there is none."""
    for family, name in TRACKING.items():
        for table in view.nft_tables(family):
            if table.ours:
                continue
            looks = any(_looks(rule.expressions) for rule in view.nft_rules(family, table.name))
            if looks or LOOKING & view.nft_set_statements(family, table.name):
                return f"table {name} {table.name}"
    legacy = view.legacy_tables()
    return f"the table {legacy[0]} of iptables-legacy" if legacy else ""


def _looks(expressions: bytes) -> bool:
    """Say if one of the expressions of a rule needs connection tracking; one that is not in nftables' form may.

    Of those within another, such as a limit of connections for each element of a set, the name alone is looked for.
    """
    try:
        names = [string(attributes(one).get(1)) for _, one in each(expressions)]
    except MalformedError:
        return True
    return any(name in LOOKING for name in names) or ("dynset" in names and any(name.encode() + b"\0" in expressions for name in LOOKING))


def _older(view: View) -> Iterator[int]:
    """The devices in tables of profiles that an earlier version has made, which do not say what must be tracked."""
    for table in _ours(view):
        if not table.name.endswith(OWN) and view.nft_chain(table.family, table.name, NEEDED) is None:
            for element in view.nft_elements(table.family, table.name, SETS):
                if len(element.key) == INDEX.size:
                    yield INDEX.unpack(element.key)[0]


def _tables(family: int, table: str) -> list[NftTable]:
    """The tables that a profile's is made of."""
    return [NftTable(layout.family, layout.name) for layout in layouts(family, table, ())]


def _identity(family: int, table: str) -> str:
    return f"firewall {family} {table}"


def _member(family: int, table: str, index: int) -> str:
    return f"{_identity(family, table)} {index}"
