"""Policy rules that Ganeti's own script leaves behind.

For a routed NIC with a LINK it runs ``ip rule add dev TAP table LINK`` (net-common, the same in Ganeti 3.0, 3.1 and 3.2), and nothing ever
takes that away: the rule waits for the next device of the name. Such a rule is of IPv4 alone, bears iproute2's protocol, and has the
preference that the kernel gives where nobody does: one less than the first rule has (fib_default_rule_pref() in net/core/fib_rules.c).

An administrator can type the same. What tells is the form, the order (before the first rule that is the administrator's, and no further
from it than counting down one by one leads), and the device: one that is gone, or so new that nobody can have meant it.
"""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, PROTOCOL
from netcommon.host.api.requests import DeleteRule
from netcommon.operations.link import marked
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.facts import Link, Rule
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: rtnetlink(7): what ``ip rule`` without more puts on a rule, and older ones did not. Any other protocol is somebody's mark.
RTPROT_UNSPEC, RTPROT_BOOT = 0, 3


def unmarked(view: View, families: Iterable[int], device: str, table: int) -> list[Request]:
    """Return what deletes the rules that Ganeti's script has made for ``device``, which lead to the table of that number."""
    rules = [rule for family in families for rule in view.rules(family, device)]
    plain = [rule for rule in rules if rule.iif == device and rule.plain and rule.table == table]
    return [DeleteRule(rule) for rule in plain if rule.protocol in (RTPROT_UNSPEC, RTPROT_BOOT)]


def left_detached(view: View) -> list[Rule]:
    """Return the rules of Ganeti's script whose device is gone."""
    rules = view.rules(AF_INET)
    return _counted_down([rule for rule in rules if _of_its_form(rule) and view.link(rule.iif) is None], rules)


def left_on(view: View, link: Link, rules: Iterable[Rule]) -> list[Rule]:
    """Return those of ``rules``, which are for the device ``link``, that Ganeti's script has left for an earlier device of the name.

    None of a device that anybody has set up: its rules may be its own.
    """
    if link.up or link.master or marked(link):
        return []
    found = [rule for rule in rules if _of_its_form(rule)]
    return _counted_down(found, view.rules(AF_INET)) if found else []


def _of_its_form(rule: Rule) -> bool:
    return rule.family == AF_INET and rule.plain and rule.protocol in (RTPROT_UNSPEC, RTPROT_BOOT) and _named_by_ganeti(rule.iif)


def _named_by_ganeti(device: str) -> bool:
    """Tell if ``device`` is called as a guest's device of KVM (tap0) or Xen (vif1.0) is."""
    if device.startswith("tap"):
        return _number(device[3:])
    domain, dot, number = device.removeprefix("vif").partition(".")
    return device.startswith("vif") and bool(dot) and _number(domain) and _number(number)


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _counted_down(found: list[Rule], rules: Iterable[Rule]) -> list[Rule]:
    """Return those of ``found`` whose preference the kernel can have given: it counts down, and nobody starts half of all guests anew.

    It counts from the administrator's first rule, at the latest the one for table main; or from ours, where that came before.
    """
    if not found:
        return []
    others = [rule for rule in rules if rule.preference and not _of_its_form(rule)]
    first = min((rule.preference for rule in others if rule.protocol != PROTOCOL), default=0)
    starts = {first, *(rule.preference for rule in others if rule.protocol == PROTOCOL)}
    return [rule for rule in found if rule.preference < first and any(start // 2 < rule.preference < start for start in starts)]
