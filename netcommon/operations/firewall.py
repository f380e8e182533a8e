"""Firewall profiles: a table for each profile that some NIC has, and the NIC's place in it.

A table's name has a digest of its rules, so it never changes: when the template does, NICs that come up from then on get a table of
their own, and the last of the others takes the old one along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netcommon.host.base import View
from netcommon.host.nftables import BRIDGE, INET, Drop, NftElement, NftTable, Put
from netcommon.host.requests import NftChange, Request
from netcommon.host.requests_rules import LoadRules
from netcommon.operations.base import ABSENT, OURS, Operation, Owned
from runtime.errors import HostRefused, SettingsInvalid

START = "netcommon-fw-"
FAMILIES = {BRIDGE: "bridge", INET: "inet"}
OTHERWISE = "or give the NIC the firewall profile unprotected"
NAME_ROOM = 16  #: bytes of an interface's name in a set's key


def rules_of(view: View, profile: str, family: int) -> tuple[str, ...]:
    """What the template of a profile says now, one rule each. Raises SettingsInvalid."""
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
            raise SettingsInvalid(f"template {name}: expected one rule of nft(8) a line, without ; and quotes: {rule}")
    if not rules:
        raise SettingsInvalid(f"template {name} has no rule")
    return rules


#: What begins a command, or the scanner's own, and no rule.
WORDS = frozenset({"add", "chain", "create", "define", "delete", "destroy", "flush", "include", "insert", "list", "map", "redefine", "set"})
WORDS |= {"rename", "replace", "reset", "table", "type", "undefine"}


def table_of(profile: str, rules: Sequence[str]) -> str:
    """The name of the table that has these rules."""
    import hashlib

    return f"{START}{profile}-{hashlib.sha256(chr(10).join(rules).encode()).hexdigest()[:8]}"


class FirewallTableFields(NamedTuple):
    """The fields of FirewallTable."""

    nfproto: int  #: netcommon.host.nftables.BRIDGE or INET
    profile: str
    table: str = ""
    rules: tuple[str, ...] = ()
    found: str = ABSENT


class FirewallTable(FirewallTableFields, Operation):
    """The rules of a profile, shared by all NICs that have it."""

    __slots__ = ()
    KIND = "firewall"
    CHOSEN = frozenset({"table", "rules", "found"})
    BEFORE = frozenset[str]()

    def shared(self) -> tuple[str, ...]:
        key = f"firewall-{self.nfproto}-{self.profile}"
        return (f"{key}@{self.table}" if self.table else key,)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        rules = rules_of(view, self.profile, self.nfproto)
        made = self._replace(table=table_of(self.profile, rules), rules=rules)
        there = view.nft_table(made.nfproto, made.table)
        if there is not None and not there.ours:
            raise HostRefused(f"nftables has a table {FAMILIES[made.nfproto]} {made.table} that is not ours: delete or rename it")
        return [made._replace(found=OURS if there is not None and not made.differs(view) else ABSENT)]

    def apply(self) -> Sequence[Request]:
        return [] if self.found == OURS else [LoadRules(self.nfproto, self.table, self.rules)]

    def differs(self, view: View) -> str:
        if view.nft_table(self.nfproto, self.table) is None:
            return "the table is gone"
        there = view.nft_rules(self.nfproto, self.table)
        rules, ways = (sum(rule.chain == chain for rule in there) for chain in ("rules", "forward"))
        return "" if (rules, ways) == (len(self.rules), 1) else f"it has {rules} rules of {len(self.rules)}"

    def revert(self, view: View) -> Sequence[Request]:
        there = view.nft_table(self.nfproto, self.table) if self.table else None
        if there is None or not there.ours:
            return []
        return [NftChange(self.describe(), (Drop(there),), OTHERWISE)]

    def identity(self) -> str:
        return _identity(self.nfproto, self.table)

    def place(self) -> str:
        return self.identity()

    def describe(self) -> str:
        return f"nft table {FAMILIES[self.nfproto]} {self.table or '<of profile ' + self.profile + '>'}: {len(self.rules) or 'its'} rules"

    def undo(self) -> str:
        name = self.table or f"<of profile {self.profile}>"
        return f"nft delete table {FAMILIES[self.nfproto]} {name}, with the last NIC that has it"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for family, word in FAMILIES.items():
            for table in view.nft_tables(family):
                if table.ours and table.name.startswith(START):
                    text = f"nft table {word} {table.name}"
                    yield Owned(_identity(family, table.name), text, (NftChange(text, (Drop(table),), OTHERWISE),))


class FirewallMemberFields(NamedTuple):
    """The fields of FirewallMember."""

    device: str
    nfproto: int  #: netcommon.host.nftables.BRIDGE or INET
    profile: str
    table: str = ""


class FirewallMember(FirewallMemberFields, Operation):
    """What is forwarded to the device goes through the profile's rules.

    The element is by name: it outlives the device, and catches the next one of that name.
    """

    __slots__ = ()
    KIND = "firewall-nic"
    CHOSEN = frozenset({"table"})
    BEFORE = frozenset[str]()

    def shared(self) -> tuple[str, ...]:
        key = f"firewall-{self.nfproto}-{self.profile}-{self.device}"
        return (f"{key}@{self.table}" if self.table else key,)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        return [self._replace(table=table_of(self.profile, rules_of(view, self.profile, self.nfproto)))]

    def element(self) -> NftElement:
        """Its place in the table's set of devices."""
        name = self.device.encode("utf-8", "surrogateescape")
        return NftElement(self.nfproto, self.table, "nics", name + bytes(NAME_ROOM - len(name)))

    def apply(self) -> Sequence[Request]:
        return [NftChange(self.describe(), (Put(self.element()),), OTHERWISE)]

    def differs(self, view: View) -> str:
        there = any(found.key == self.element().key for found in view.nft_elements(self.nfproto, self.table) if found.set == "nics")
        return "" if there else "the device is not in the table's set"

    def revert(self, view: View) -> Sequence[Request]:
        there: NftTable | None = view.nft_table(self.nfproto, self.table) if self.table else None
        if there is None or not there.ours or self.differs(view):
            return []
        return [NftChange(self.describe(), (Drop(self.element()),), OTHERWISE)]

    def identity(self) -> str:
        return f"{_identity(self.nfproto, self.table)} {self.device}"

    def place(self) -> str:
        return self.identity()

    def describe(self) -> str:
        where = f"{FAMILIES[self.nfproto]} {self.table or '<of profile ' + self.profile + '>'}"
        return f"nft add element {where} nics {{ {self.device} }}"

    def undo(self) -> str:
        return self.describe().replace(" add ", " delete ", 1)


def _identity(family: int, table: str) -> str:
    return f"firewall {family} {table}"
