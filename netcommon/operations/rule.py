"""Policy rules (ip-rule(8)): what the guest sends is looked up in the table that its NIC names."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, DROPPING, JUMPING, PROTOCOL, Rule
from netcommon.host.api.requests import AddRule, DeleteRule
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, IP_FAMILIES, OURS, Operation, Owned
from netcommon.operations.link import marked
from netcommon.operations.table import MAIN, called, renumbered, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: Of the kernel's own rule for table main.
MAIN_PREFERENCE = 32766

LOOKUP = 1  #: FR_ACT_TO_TBL

#: What rules do that look up no table, as ip-rule(8) has it; JUMPING takes a preference besides.
ACTIONS = {JUMPING: "goto", 6: "blackhole", 7: "unreachable", 8: "prohibit"}


class Ruling(Operation, Protocol):
    """A policy rule of one family. One that is there already and not ours stays, and does as well."""

    @property
    def family(self) -> int: ...
    @property
    def table(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def found(self) -> str: ...
    def rule(self) -> Rule:
        """The rule as the kernel has it."""
        ...

    def absent(self, view: View) -> bool:
        """Tell whether the kernel does not have the family, for a guest that may send from any address of it."""
        return self.family == AF_INET6 and view.sysctl("net/ipv6/conf/all/forwarding") is None

    def same(self, view: View) -> list[Rule]:
        """Those that are there and do the same, whoever made them."""
        wanted = self.rule()
        return [rule for rule in view.rules(self.family, wanted.iif) if rule._replace(protocol=PROTOCOL) == wanted]

    def unbroken(self) -> bool:
        return True

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddRule(self.rule())]

    def differs(self, view: View) -> str:
        return renumbered(view, self.table, self.number) or ("" if self.same(view) else "the rule is gone")

    def revert(self, view: View) -> Sequence[Request]:
        if self.found == FOREIGN or self.rule() not in self.same(view):
            return []
        return [DeleteRule(self.rule())]

    def place(self) -> str:
        return self.identity()


def whose(same: Sequence[Rule]) -> str:
    """Whose the rules are that ``Ruling.same`` has found."""
    if not same:
        return ABSENT
    return OURS if any(rule.protocol == PROTOCOL for rule in same) else FOREIGN


class PolicyRuleFields(NamedTuple):
    """The fields of PolicyRule."""

    family: int
    device: str
    table: str
    preference: int
    number: int = 0
    found: str = ABSENT


class PolicyRule(PolicyRuleFields, Ruling):
    """``iif DEVICE lookup TABLE`` of one family. It outlives the device, and catches the next one of that name."""

    __slots__ = ()
    KIND = "rule"
    REPAIRED = "policy rules"
    MIGRATION = "for packets that come from the tap"
    CHOSEN = frozenset({"number", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    def rule(self) -> Rule:
        """The rule as the kernel has it."""
        return Rule(self.family, self.preference, self.device, self.number)

    def network(self) -> tuple[object, ...]:
        return ("table", self.number)

    def taken_over(self, view: View) -> Operation:
        return self._replace(found=ABSENT) if self.found == FOREIGN else self

    def taking_over(self, view: View, before: Operation) -> Sequence[Request]:
        from netcommon.operations.ganeti_rule import unmarked  # where a NIC is adopted

        lacks = self.rule() not in self.same(view)  # who took it over was ended before this
        return [*unmarked(view, (self.family,), self.device, self.number), *(self.apply() if lacks or self != before else ())]

    def shared(self) -> tuple[str, ...]:
        return (f"rule-{self.family}-{self.device}-{self.preference}-{self.table}",)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        number = table_number(view, self.table, warnings)
        if self.absent(view):
            return []
        refuse_strange(view, self.family, self.device, number, self.preference, warnings)
        if number == MAIN:
            return []  # every lookup ends there anyway
        made = self._replace(number=number)
        return [made._replace(found=whose(made.same(view)))]

    def identity(self) -> str:
        return _identity(self.rule())

    def sentence(self) -> str:
        family = "IPv4" if self.family == AF_INET else "IPv6"
        return f"What the guest sends in {family} is routed by {called(self.table, self.number)}."

    def describe(self) -> str:
        version = 4 if self.family == AF_INET else 6
        return f"ip -{version} rule add iif {self.device} lookup {self.table or 'main'} preference {self.preference} protocol {PROTOCOL}"

    def undo(self) -> str:
        return self.describe().replace(" rule add ", " rule del ", 1)

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        """As of every operation; and what Ganeti's script has left of devices that are gone."""
        from netcommon.operations.ganeti_rule import left_detached

        for rule in left_detached(view):
            yield _left(rule)
        for family in (AF_INET, AF_INET6):
            for rule in view.rules(family):
                ours = rule.protocol == PROTOCOL and rule.plain and rule.iif != ""
                link = view.link(rule.iif) if ours else None
                # a rule for a device that is there and no guest's was made by another with our number
                if ours and (link is None or link.holders >= 0 or marked(link)):
                    yield _owned(rule)


def detached(view: View) -> list[Owned]:
    """List the rules of ours, and those that Ganeti's script has left, whose device is gone."""
    return [thing for thing in PolicyRule.owned(view) if thing.detached]


def refuse_strange(
    view: View, family: int, device: str, number: int, preference: int, warnings: list[str], mark: int = 0, mask: int = 0
) -> None:
    """Raise HostRefused for the device's rules that lead all packets to another table before ``preference``; warn of the others.

    ``mark``: what our own set gives the packets in the bits of ``mask``. Rules that drop lead to nobody else's network: the NIC comes up,
    and what is wrong is said; so it is with those that take some packets alone, or those from an address, which may not be the guest's.
    Table main is looked up last, so any rule leads elsewhere before; a device that is ours already is not refused for that. What
    Ganeti's script has left is nobody's, and goes before the NIC comes up (``left_behind``).
    """
    rules = view.rules(family, device)
    strange = [rule for rule in rules if rule.protocol != PROTOCOL and (rule.table != number or rule.action != LOOKUP)]
    link = view.link(device) if strange else None
    if link is None:
        return
    from netcommon.operations.ganeti_rule import left_on
    from netcommon.operations.rule_reach import Guest, taken

    left = left_on(view, link, strange)
    strange = [rule for rule in strange if rule not in left]
    whole, _some = taken([rule for rule in rules if rule not in left], Guest(number, last_of(number, preference), (), mark, mask))
    text = f"a rule that is not ours applies to {device}, left by an earlier guest or another script"
    leading = [rule for rule in strange if rule in whole and rule.action not in DROPPING]
    if leading and not (number == MAIN and marked(link)):
        raise HostRefused(text, "; ".join(map(removal, leading)))  # the guest would reach another one's network
    warnings += [f"{text}: {removal(rule)}" for rule in strange]


def last_of(number: int, preference: int) -> int:
    """Return the preference of the rule that leads to table ``number``, ``preference`` where it is ours."""
    return MAIN_PREFERENCE if number == MAIN else preference


def does(rule: Rule) -> str:
    """Return what a device's rule does, as ip-rule(8) writes it, without the conditions that Rule does not tell."""
    words = ["not"] if rule.inverted else []
    words += [word for name, value in (("from", rule.source), ("to", rule.target)) if value for word in (name, value)]
    words += ["iif", rule.iif] if rule.iif else []
    words += ["fwmark", f"{rule.mark:#x}/{rule.mask:#x}"] if rule.mask else []
    words.append(ACTIONS.get(rule.action, f"lookup {rule.table}"))
    return " ".join([*words, str(rule.jump)] if rule.action == JUMPING else words)


def removal(rule: Rule) -> str:
    """Return the command that removes a device's rule."""
    version = 4 if rule.family == AF_INET else 6
    return f"ip -{version} rule del {does(rule)} preference {rule.preference}"


def left_behind(view: View, link: Link, rules: Sequence[Rule]) -> list[Owned]:
    """Return what is nobody's of the ``rules`` for the device ``link``, with no record of it left: ours, and those of Ganeti's script."""
    found = [_owned(rule) for rule in rules if rule.protocol == PROTOCOL and rule.plain]
    if len(found) < len(rules):
        from netcommon.operations.ganeti_rule import left_on

        found += map(_left, left_on(view, link, rules))
    return found


def _identity(rule: Rule) -> str:
    return f"rule {rule.family} {rule.preference} {rule.iif} {rule.table}"


def _owned(rule: Rule) -> Owned:
    text = f"rule iif {rule.iif} lookup {rule.table} preference {rule.preference} (family {rule.family})"
    return Owned(_identity(rule), text, (DeleteRule(rule),), device=rule.iif, named=True)


def _left(rule: Rule) -> Owned:
    made = _owned(rule)
    return made._replace(text=f"{made.text}, left by Ganeti's own script", detached=True)
