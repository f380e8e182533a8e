"""Tell which policy rules of others keep a routed guest's packets from its NIC's table, though all that was done for the NIC holds."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, DROPPING
from netcommon.operations.mark import TapMark, value_of
from netcommon.operations.route import GuestRoute, PrefixRoute
from netcommon.operations.rule import PolicyRule, does, last_of, removal
from netcommon.operations.rule_reach import Guest, taken
from netcommon.operations.table import MAIN, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Rule
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation
    from runtime.record import Record


class LedAway(NamedTuple):
    """What rules of others do to a guest's packets before they are looked up in its table, each in words."""

    whole: tuple[tuple[str, str], ...] = ()  #: to all that comes from one of its addresses, and what removes the rule
    some: tuple[tuple[str, str], ...] = ()  #: what of ours has no effect for some packets, and why


def led_away(view: View, record: Record, operations: Sequence[Operation], preference: int, doubtful: bool) -> LedAway:
    """Look at the rules for the NIC's device.

    ``operations``: those of ``record``. ``preference``: of our rules, where none of them is the NIC's. ``doubtful``: also rules that lead a
    NIC of table main elsewhere, which a script of the site's may have made after its up (docs/routed.md).
    """
    whole: list[tuple[str, str]] = []
    some: list[tuple[str, str]] = []
    for family in (AF_INET, AF_INET6):
        rules = view.rules(family, record.device)
        guest = _guest(view, record, operations, family, preference) if rules else None
        if guest is None:
            continue
        kept = guest.number != MAIN or doubtful
        all_of_it, parts = ([rule for rule in found if kept or rule.action in DROPPING] for found in taken(rules, guest))
        whole += [(_said(rule, guest.number), removal(rule)) for rule in all_of_it]
        done = next((each.describe() for each in operations if _leads(each, family)), f"table main for what {record.device} sends")
        some += [(done, _partly(rule)) for rule in parts]
    return LedAway(tuple(whole), tuple(some))


def _guest(view: View, record: Record, operations: Sequence[Operation], family: int, preference: int) -> Guest | None:
    """Tell what is known of the guest's packets; None where its table has lost its name."""
    ours = next((one for one in operations if isinstance(one, PolicyRule | TapMark)), None)
    if ours is not None:
        number, preference = ours.number, ours.preference
    else:
        try:
            number = table_number(view, record.nic.link, [])
        except HostRefused:
            return None
    sources = tuple(one.destination for one in operations if isinstance(one, GuestRoute | PrefixRoute) and one.family == family)
    mark = (value_of(number, ours.mask), ours.mask) if isinstance(ours, TapMark) else (0, 0)
    return Guest(number, last_of(number, preference), sources, *mark)


def _leads(operation: Operation, family: int) -> bool:
    """Tell whether the operation leads the guest's packets to its table."""
    return isinstance(operation, TapMark) or (isinstance(operation, PolicyRule) and operation.family == family)


def _said(rule: Rule, number: int) -> str:
    version = 4 if rule.family == AF_INET else 6
    table = "table main" if number == MAIN else "its table"
    what = (
        f"drops what the guest sends in IPv{version}"
        if rule.action in DROPPING
        else f"leads what the guest sends in IPv{version} past {table}"
    )
    return f"policy rule {rule.preference}: {does(rule)} {what}; it is not ours"


def _partly(rule: Rule) -> str:
    more = ", with more conditions," if rule.more else ""
    what = "drops them" if rule.action in DROPPING else "leads them past it"
    text = f"for some packets: policy rule {rule.preference}: {does(rule)}{more} {what}; it is not ours"
    return f"{text}: {removal(rule)}, unless you mean it"
