"""Tell what of a packet's inside policy rules and the choice among several ways look at, and how the kernel can be asked for that.

It takes TCP, UDP and ICMP alone in a question (RTM_GETROUTE), and looks at all protocols in a packet (fib4_rules_early_flow_dissect(),
fib_multipath_hash()).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netcommon.host.api.datapath import ASKABLE, WITH_PORTS
from netcommon.host.api.facts import AF_INET, AF_INET6, Rule
from netcommon.views.trace.packet import Packet

NO_PORTS = 0, 0
AUTHENTICATION = 51  #: whose inside the router looks for ports in, too
ICMP, ICMP_ERRORS = 1, frozenset({3, 4, 5, 11, 12})  #: those that quote a packet (icmp_is_err())
BY_ADDRESSES, BY_PORTS = 0, 1  #: values of fib_multipath_hash_policy (ip-sysctl.rst)


class Inside(NamedTuple):
    """Hold what a question names of the packet's inside."""

    upper: int = 0
    ports: tuple[int, int] = NO_PORTS
    untold: str = ""  #: why the kernel's answer may be another packet's


def asked(packet: Packet | None, rules: Sequence[Rule], family: int) -> Inside:
    """Tell what to ask for. ``packet``: None where rules see no protocol, as of ARP.

    For a protocol that the kernel takes in no question stands one that no rule names: rules do with it what they do with the packet.
    """
    looking = [rule for rule in rules if rule.upper or rule.ports]
    upper, ports = ((packet.upper or 0), packet.ports) if packet else (0, NO_PORTS)
    labelled = packet is not None and packet.label != 0 and any(rule.label for rule in rules)
    why = "a rule looks at flow labels, and the packet's is no part of a question" if labelled else ""
    if upper in ASKABLE[family]:
        return Inside(upper, ports if upper in WITH_PORTS else NO_PORTS, why)
    if not looking:
        return Inside(untold=why)
    named = {rule.upper for rule in looking}
    free = [each for each in ASKABLE[family] if each not in named]
    hidden = (packet is not None and upper == 0) or upper == AUTHENTICATION or ports != NO_PORTS
    if not free or (upper and upper in named) or (hidden and any(rule.ports or not upper for rule in looking)):
        return Inside(untold=why or f"a rule looks at protocols or ports, and protocol {upper} is no part of a question")
    return Inside(free[0], untold=why)


def spread(packet: Packet, policy: int, family: int) -> str:
    """Tell why the kernel's answer may name another of several ways than the packet's; "" where it does not (fib_multipath_hash())."""
    if family == AF_INET6:
        return "the kernel tells by which of its ways a flow goes for IPv4 alone"
    if policy == BY_PORTS:
        return "it may go by a sum that its device has made of it (fib_multipath_hash_policy 1), and that is no part of a question"
    if policy != BY_ADDRESSES and packet.upper not in ASKABLE[AF_INET]:
        return f"fib_multipath_hash_policy is {policy}, and protocol {packet.upper or 0} is no part of a question"
    quotes = packet.upper == ICMP and packet.transport is not None and packet.transport[:1] and packet.transport[0] in ICMP_ERRORS
    return "it is an ICMP error: it goes by the addresses of the packet that it quotes" if quotes else ""
