"""Tell which of a guest's packets the policy rules for its device take away from its table: all, some or none (fib_rules_lookup())."""

from __future__ import annotations

from ipaddress import collapse_addresses, ip_network

from netcommon.host.api.facts import DROPPING, JUMPING, PROTOCOL
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

    from netcommon.host.api.facts import Rule

    Network = IPv4Network | IPv6Network

LOOKUP = 1  #: FR_ACT_TO_TBL


class Guest(NamedTuple):
    """What is known of a guest's packets before they are looked up, and where they are to be."""

    number: int  #: of the table
    last: int  #: the preference of the rule that leads there
    sources: tuple[str, ...] = ()  #: networks that they come from; none: it may be any
    mark: int = 0  #: that they bear
    mask: int = 0  #: the bits of it that are ours alone


def taken(rules: Sequence[Rule], guest: Guest) -> tuple[list[Rule], list[Rule]]:
    """Return those of ``rules``, of one family and for the guest's device, that take all that comes from one of its sources, and some.

    Several with a destination each may take all together. One that drops what others with conditions have let pass is taken as meant.
    """
    counting = sorted((rule for rule in rules if rule.protocol != PROTOCOL and _met(rule, guest)), key=lambda rule: rule.preference)
    whole: set[int] = set()
    reached = 0
    for source in guest.sources or ("",):
        places, end = _wholly(counting, guest, source)
        whole.update(places)
        reached = max(reached, end)
    away = [place for place, rule in enumerate(counting[:reached]) if _elsewhere(rule, guest)]
    meant = {place for place in away if counting[place].action in DROPPING and any(map(_lets_pass, counting[:place]))}
    return [counting[place] for place in away if place in whole - meant], [counting[place] for place in away if place not in whole | meant]


def _wholly(rules: Sequence[Rule], guest: Guest, source: str) -> tuple[list[int], int]:
    """Find the rules, by their places, that take all that comes from ``source`` ("": anywhere); and how many of them packets come to."""
    parts: list[int] = []
    for place, rule in enumerate(rules):
        if not _firm(rule, guest) or not _within(source, rule.source):
            continue
        if not _elsewhere(rule, guest):
            if rule.action == LOOKUP and not rule.target:
                return [], place  # all of it is led right
            continue
        parts.append(place)
        if not rule.target:
            return [place], place + 1
        targets: list[Network] = [ip_network(rules[each].target) for each in parts]
        if any(not each.prefixlen for each in collapse_addresses(targets)):  # type: ignore[type-var]
            return parts, place + 1
    return [], len(rules)


def _elsewhere(rule: Rule, guest: Guest) -> bool:
    """Tell whether what the rule takes is not looked up in the guest's table next."""
    if rule.preference > guest.last:
        return False
    if rule.action == JUMPING:
        return rule.jump > guest.last
    return rule.action in DROPPING or (rule.action == LOOKUP and rule.table != guest.number)


def _lets_pass(rule: Rule) -> bool:
    return rule.narrowed and rule.action not in DROPPING


def _firm(rule: Rule, guest: Guest) -> bool:
    """Tell whether the rule takes every packet of the guest's between the addresses that it names."""
    return not (rule.more or rule.inverted) and (guest.mark & rule.mask) == rule.mark


def _met(rule: Rule, guest: Guest) -> bool:
    """Tell whether the rule may take a packet of the guest's. Bits of the mark that are not ours somebody else may set."""
    if rule.inverted:
        return rule.narrowed or bool(rule.mask)
    if (guest.mark ^ rule.mark) & rule.mask & guest.mask:
        return False
    theirs = ip_network(rule.source) if rule.source else None
    return theirs is None or not guest.sources or any(theirs.overlaps(ip_network(each)) for each in guest.sources)


def _within(source: str, network: str) -> bool:
    """Tell whether ``source``, a network, is within another one; "" is any."""
    if not network:
        return True
    return bool(source) and ip_network(source).subnet_of(ip_network(network))  # type: ignore[arg-type]
