"""One policy rule for all NICs of a routing table (ip-rule(8), fwmark): what bears its mark is looked up in it."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Rule
from netcommon.host.api.requests import DeleteRule
from netcommon.operations.base import ABSENT, FINDINGS, IP_FAMILIES, Operation, Owned
from netcommon.operations.mark import value_of
from netcommon.operations.rule import Ruling, whose
from netcommon.operations.table import MAIN, called, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View


class MarkRuleFields(NamedTuple):
    """The fields of MarkRule."""

    family: int
    table: str  #: the routing table's name or number
    mask: int
    preference: int
    number: int = 0
    found: str = ABSENT


class MarkRule(MarkRuleFields, Ruling):
    """``fwmark MARK/MASK lookup TABLE`` of one family, made by the first NIC of the table, removed by the last one's down."""

    __slots__ = ()
    KIND = "mark-rule"
    REPAIRED = "the policy rule of such a mark"
    MIGRATION = "of the node"
    CHOSEN = frozenset({"number", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    def rule(self) -> Rule:
        """The rule as the kernel has it."""
        return Rule(self.family, self.preference, "", self.number, mark=value_of(self.number, self.mask), mask=self.mask)

    def shared(self) -> tuple[str, ...]:
        return (_key(self.rule()) if self.number else f"mark-rule-{self.family}",)

    def common(self) -> bool:
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        number = table_number(view, self.table, warnings)
        if number == MAIN or self.absent(view):
            return []  # every lookup ends in main anyway
        made = self._replace(number=number)
        same = made.same(view)
        for other in view.rules(self.family, ""):
            if other in same or not other.plain or other.preference > self.preference or other.table == number:
                continue
            if (other.mark ^ made.rule().mark) & other.mask & self.mask == 0 and not other.mask & ~self.mask:
                raise HostRefused(
                    f"what bears the mark of routing table {number} is looked up in another before, by a rule that is not of that table",
                    f"ip rule del {_selector(other)}, or give [rules] mark other bits",
                )
        return [made._replace(found=whose(same))]

    def identity(self) -> str:
        return _identity(self.rule())

    def sentence(self) -> str:
        family = "IPv4" if self.family == AF_INET else "IPv6"
        return f"What bears the mark of {called(self.table, self.number)} is routed by it, in {family}."

    def describe(self) -> str:
        version = 4 if self.family == AF_INET else 6
        mark = _mark(self.rule()) if self.number else f"<of table {self.table}>/{self.mask:#x}"
        return f"ip -{version} rule add fwmark {mark} lookup {self.table} preference {self.preference} protocol {PROTOCOL}"

    def undo(self) -> str:
        return self.describe().replace(" rule add ", " rule del ", 1) + ", with the last NIC of the table"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for family in (AF_INET, AF_INET6):
            for rule in view.rules(family, ""):
                if rule.protocol == PROTOCOL and rule.plain and rule.mask:
                    text = f"rule {_selector(rule)} (family {family})"
                    yield Owned(_identity(rule), text, (DeleteRule(rule),), shared=(_key(rule),))


def _key(rule: Rule) -> str:
    return f"mark-rule-{rule.family}@{rule.table}-{rule.mask:x}-{rule.preference}"


def _mark(rule: Rule) -> str:
    return f"{rule.mark:#x}/{rule.mask:#x}"


def _selector(rule: Rule) -> str:
    return f"fwmark {_mark(rule)} lookup {rule.table} preference {rule.preference}"


def _identity(rule: Rule) -> str:
    return f"mark-rule {rule.family} {_selector(rule)}"
