"""Tell which policy rules of others keep a routed guest's packets from its NIC's table, though all that was done for the NIC holds."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, DROPPING
from netcommon.operations.mark import TapMark
from netcommon.operations.rule import PolicyRule, does, leads_away, removal
from netcommon.operations.table import MAIN, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Rule
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation
    from runtime.record import Record


def led_away(view: View, record: Record, operations: Sequence[Operation], preference: int, doubtful: bool) -> list[tuple[str, str]]:
    """Return what others' rules for the NIC's device do to its packets before they are looked up in its table, and what removes them.

    ``operations``: those of ``record``. ``preference``: of our rules, where none of them is the NIC's. ``doubtful``: also rules that lead a
    NIC of table main elsewhere, which a script of the site's may have made after its up (docs/routed.md).
    """
    rules = [rule for family in (AF_INET, AF_INET6) for rule in view.rules(family, record.device)]
    if not rules:
        return []
    ours = next((one for one in operations if isinstance(one, PolicyRule | TapMark)), None)
    if ours is not None:
        number, preference = ours.number, ours.preference
    else:
        try:
            number = table_number(view, record.nic.link, [])
        except HostRefused:
            return []  # its table has lost its name
    away = [rule for rule in rules if leads_away(rule, number, preference) and not _meant(rule, rules)]
    if number == MAIN and not doubtful:
        away = [rule for rule in away if rule.action in DROPPING]
    return [(_said(rule, number), removal(rule)) for rule in away]


def _meant(rule: Rule, rules: Sequence[Rule]) -> bool:
    """Tell whether a rule that drops is the last of several that let some of the guest's packets pass before."""
    before = (each for each in rules if each.family == rule.family and each.preference <= rule.preference)
    return rule.action in DROPPING and any(each.narrowed and each.action not in DROPPING for each in before)


def _said(rule: Rule, number: int) -> str:
    version = 4 if rule.family == AF_INET else 6
    table = "table main" if number == MAIN else "its table"
    what = (
        f"drops what the guest sends in IPv{version}"
        if rule.action in DROPPING
        else f"leads what the guest sends in IPv{version} past {table}"
    )
    return f"policy rule {rule.preference}: {does(rule)} {what}; it is not ours"
