"""Where our result differs from that of Ganeti 3.0.2's kvm-ifup, and why. Nothing else may differ, and everything here must be met."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tests.kernel.differential.environments import Environment

REFUSED = "~ status: done -> refused"
UNKNOWN_TABLES = ("nosuchtable", "255")
BRIDGES = ("br0", "ovs0")


class Difference(NamedTuple):
    """One difference: the lines it explains (a regular expression for all of a line), for which NICs, and the reason."""

    name: str
    lines: str
    applies: Callable[[Environment], bool]
    reason: str
    vm: bool = False  #: met in the virtual machine only
    #: What Ganeti's has in place of ours: a line is explained only beside the one that is the same but for this.
    swapped: tuple[str, str] = ("", "")

    def explains(self, environment: Environment, line: str, lines: list[str]) -> bool:
        if not (self.applies(environment) and re.fullmatch(self.lines, line)):
            return False
        theirs, ours = self.swapped
        other = "+" + line[1:].replace(theirs, ours) if line.startswith("-") else "-" + line[1:].replace(ours, theirs)
        return not theirs or other in lines


def _routed(environment: Environment) -> bool:
    return environment.mode == "routed" and not environment.communication


def _routed4(environment: Environment) -> bool:
    return _routed(environment) and not environment.ipv6


def _routed6(environment: Environment) -> bool:
    return _routed(environment) and environment.ipv6


def _main(environment: Environment) -> bool:
    return environment.link in ("", "main", "254", *BRIDGES)


def misrouted(environment: Environment) -> bool:
    """A rule that is not ours catches the guest's packets before ours does."""
    return _routed(environment) and any("priority 300" in command for command in environment.leftovers)


TABLE: tuple[Difference, ...] = (
    Difference(
        "alias",
        r"\+ links: TAP: ifalias = [0-9a-f-]{36} .*",
        lambda environment: environment.mode != "ext" and not environment.communication,
        "our mark on the device: the NIC's UUID, for people and for gc",
    ),
    Difference(
        "spoof guard",
        r'\+ nft: \{"(table|chain|set|rule)": \{.*"netcommon-(guard-\d\d|delivery)".*',
        lambda environment: environment.mode in ("bridged", "routed") or environment.vm,  # there it stands before Open vSwitch's flows
        "what the guest sends is checked, in tables of our own: on by default",
    ),
    Difference(
        "multicast router",
        r"~ links: TAP: linkinfo: info_slave_data: multicast_router: 1 -> 0",
        lambda environment: environment.mode == "bridged",
        "queries of a guest do not make its port one that gets all multicast: with the spoof guard",
    ),
    Difference(
        "OVS identity",
        r'~ ovs: Interface: TAP: external_ids: \["map", \[\]\] -> .*"iface-id".*',
        lambda environment: environment.mode == "openvswitch",
        "the keys that OVN and Nova write: whose port it is, for whoever looks after the switch",
    ),
    Difference(
        "OVS spoof guard",
        r"\+ ovs: flows: \S+ +cookie=0x6e6374[0-9a-f]{10}, .*",
        lambda environment: environment.mode == "openvswitch",
        "what the guest sends is checked, by flows with a cookie of ours: on by default",
    ),
    Difference(
        "OVS mark",
        r"~ ovs: Port: TAP: external_ids: .*netcommon-uuid.*",
        lambda environment: environment.mode == "openvswitch",
        "our mark on the port: a stale one is found, and another NIC's is never deleted",
    ),
    Difference(
        "vlan_mode",
        r'~ ovs: Port: TAP: vlan_mode: \["set", \[\]\] -> (access|trunk|native-untagged)',
        lambda environment: environment.mode == "openvswitch" and bool(environment.vlan),
        "said, not left to be guessed: with tag and trunks and no vlan_mode Open vSwitch takes the port for an access port, trunks ignored",
    ),
    Difference(
        "VLAN given as a number",
        r"~ ovs: Port: TAP: trunks: 10 -> .*",
        lambda environment: environment.mode == "openvswitch" and environment.vlan == "10",
        "Ganeti's script takes 10 for the tag and for the trunks too; gnt-instance(8) says it is .10",
    ),
    Difference(
        "route mark",
        r'[-+] routes: -[46]: .*"dev": "TAP".*',
        _routed,
        "protocol 174 instead of static is our mark: only such a route is ever deleted by us",
        swapped=('"protocol": "static"', '"protocol": "174"'),
    ),
    Difference(
        "rule text",
        r'[-+] rules: -4: .*"iif": "TAP".*',
        _routed4,
        "a configured preference and protocol 174 instead of one less than the administrator's first; what it does is compared by lookups",
    ),
    Difference(
        "IPv6 rule",
        r'(- rules: -4|\+ rules: -6): .*"iif": "TAP".*',
        _routed6,
        "Ganeti's script gives an IPv6 NIC an IPv4 rule, which does nothing for it",
    ),
    Difference(
        "IPv6 rule at work",
        r"~ lookup: -[46] guest to .*",
        lambda environment: _routed6(environment) and not _main(environment) and environment.link not in UNKNOWN_TABLES,
        "so with Ganeti's script the guest's packets are looked up in table main",
    ),
    Difference(
        "proxy NDP",
        r'\+ neighbours: -6: proxy .*"174".*|~ sysctls: net/ipv6/conf/\w+/proxy_ndp: 0 -> 1',
        _routed6,
        "IPv6 has no proxy_arp: the node answers for the guest on the uplink, and for the gateway on the tap, by entries for each address",
    ),
    Difference(
        "no rule for main",
        r'- rules: -4: .*"iif": "TAP".*"table": "main".*',
        lambda environment: _routed(environment) and environment.link in ("main", "254"),
        "every lookup ends in table main: no rule is made for it",
    ),
    Difference(
        "host with a length",
        r'[-+~] (routes: -4: .*"dev": "TAP"|lookup: -4 (uplink|node) to guest).*',
        lambda environment: environment.mode == "routed" and environment.ip == "10.77.31.17/24",
        "ip-route(8) refuses a network with host bits, Ganeti's script ends well without a route; ours takes the address for the host's",
    ),
    Difference(
        "host with a length, IPv6",
        r'[-+~] (routes: -6: .*"dev": "TAP"|lookup: -6 (uplink|node) to guest).*',
        lambda environment: environment.mode == "routed" and environment.ip == "fd77:31::b/64",
        "the kernel cuts the host's bits off: with Ganeti's script all of its network leads to this guest; ours routes the host alone",
    ),
    Difference(
        "foreign rule",
        r'[-+~] (rules: -4: .*"iif": "TAP"|lookup: -4 guest to).*',
        lambda environment: _routed(environment) and environment.kept and not misrouted(environment),
        "a rule without our mark is the administrator's, unless it is just what Ganeti's script leaves: it stays and is named in a "
        "warning; Ganeti's script deletes it, in mode routed",
    ),
    Difference(
        "foreign rule before ours",
        REFUSED,
        misrouted,
        "it would send the guest's packets to another table: the NIC is refused, and the rule is the administrator's to remove",
    ),
    Difference(
        "missing bridge",
        REFUSED,
        lambda environment: environment.mode == "bridged" and environment.link in ("brnone", "eth3"),
        "Ganeti's script ends well, and the guest has no network",
    ),
    Difference(
        "VLAN without filtering",
        REFUSED,
        lambda environment: environment.mode == "bridged" and environment.link == "br0" and bool(environment.vlan) and not environment.vm,
        "on a kernel without bridge VLANs Ganeti's script ends well, and the guest is in the untagged network",
    ),
    Difference(
        "missing OVS bridge",
        REFUSED,
        lambda environment: environment.mode == "openvswitch" and environment.link in ("ovsnone", "br0"),
        "Ganeti's script ends well, and the guest has no network",
    ),
    Difference(
        "unknown table",
        REFUSED,
        lambda environment: environment.mode == "routed" and environment.link in UNKNOWN_TABLES,
        "Ganeti's script ends well without rule and route, or with a route in the kernel's own table",
    ),
    Difference(
        "bridge for a table",
        r'[+~] (routes: -[46]: .*"dev": "TAP"|lookup: -[46] (uplink|node) to guest).*',
        lambda environment: environment.mode == "routed" and environment.link in BRIDGES,
        "LINK is the cluster's default, a bridge: Ganeti's script ends well without rule and route; ours uses table main and warns",
    ),
    Difference(
        "steady MAC",
        r"~ links: TAP: address: .* -> f[ea](:[0-9a-f]{2}){5}",
        _routed,
        "the guest's own with another first octet, the same on every node: a guest that has migrated goes on with the neighbours it knows",
    ),
    Difference(
        "communication: MAC",
        r"~ links: TAP: address: .* -> fe:00:a9:fe:a9:fe",
        lambda environment: environment.communication,
        "one MAC for every such tap: a guest that has migrated goes on with the neighbour it knows",
    ),
    Difference(
        "communication: address",
        r'[-+] addresses: TAP: .*"local": "169\.254\.169\.254".*',
        lambda environment: environment.communication,
        "an address of ours makes no route to its prefix; a /32 has none",
        swapped=('"prefixlen"', '"noprefixroute": true, "prefixlen"'),
    ),
    Difference(
        "communication: route mark",
        r'[-+] routes: -4: .*"dev": "TAP".*',
        lambda environment: environment.communication,
        "protocol 174 is our mark: only such a route is ever deleted by us",
        swapped=('"scope": "link"', '"protocol": "174", "scope": "link"'),
    ),
    Difference(
        "default VID",
        r'[-+~] vlans: TAP.*"vlan": 1\b.*',
        lambda environment: environment.vm and environment.link == "brv" and bool(environment.vlan),
        "a new port gets the bridge's default VID, untagged; with VLANs of its own that leaks the host's traffic to the guest",
        vm=True,
    ),
    Difference(
        "the uplink's own VID",
        r'[-+] vlans: upv: .*"vlan": 1\b.*',
        lambda environment: environment.vm and environment.vlan == ".1",
        "what the uplink carries already is the administrator's; Ganeti's script takes its pvid and untagged flags away",
        vm=True,
    ),
)


def unexplained(environment: Environment, lines: list[str]) -> list[str]:
    """Those that no entry explains."""
    return [line for line in lines if not any(entry.explains(environment, line, lines) for entry in TABLE)]
