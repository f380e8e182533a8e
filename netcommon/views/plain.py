"""What an operation does, in a sentence for people who do not know the commands: one entry for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from netcommon.host.facts import AF_INET
from netcommon.operations.base import Operation, Waiting
from netcommon.operations.guard_rules import FREE_IPV4, FREE_IPV6, FREE_MAC
from netcommon.operations.table import MAIN
from netcommon.views import words

#: What the settings of a device mean, by /proc/sys name (ip-sysctl.rst).
SYSCTLS = {
    "proxy_arp": "the node answers the guest's ARP requests for everything it routes",
    "proxy_ndp": "the node answers neighbour solicitations for addresses that it was told",
    "forwarding": "the node forwards what comes from this device",
    "rp_filter": "what comes with a source address of elsewhere is dropped (1 strict, 2 loose) or not (0)",
    "accept_local": "packets from the node's own addresses are taken",
}
LINKS = {
    "alias": "The device says whose it is: `ip link` shows the NIC's UUID and guest.",
    "address": "The host's side of the device has the MAC {value}.",
    "mtu": "The device takes frames as long as its bridge does: mtu {value}.",
    "up": "The device is switched on.",
    "master": "The device is no port of a bridge: the node routes what the guest sends.",
}
#: What a flag of a bridge port means: when it is on, and when it is off.
PORTS = {
    "isolated": ("The guest reaches only ports of its bridge that are not isolated.", "The guest reaches every port of its bridge."),
    "learning": ("The bridge learns addresses from what the guest sends.", "The bridge learns nothing from what the guest sends."),
    "flood": (
        "Frames for addresses that the bridge does not know go to the guest too.",
        "Frames for addresses that the bridge does not know do not go to the guest.",
    ),
    "mcast_flood": ("Multicast that nobody asked for goes to the guest too.", "Multicast that nobody asked for does not go to the guest."),
    "fastleave": ("A multicast group ends with the guest's first leave.", "A multicast group does not end with the guest's first leave."),
    "mcast_to_unicast": ("Multicast is sent to the guest's own MAC.", "Multicast is sent to the guest as multicast."),
    "mcast_router": (
        "The guest gets all multicast if it asks as a router does.",
        "The guest gets no group of others by asking as a router does.",
    ),
}
Values = Mapping[str, Any]


def _family(one: Values) -> str:
    return "IPv4" if one["family"] == AF_INET else "IPv6"


def _table(one: Values) -> str:
    return "table main" if one["number"] == MAIN or not one["table"] else f"table {one['table']}"


def _uplink(one: Values) -> str:
    return f"on the uplink {one['port']}" if one["port"] else "on the uplink, of which there was none"


def _link(one: Values) -> str:
    if one["setting"] == "up" and not one["wanted"]:
        return "The device is switched off."
    return LINKS[one["setting"]].format(value=one["value"] or one["wanted"] or "of the host's choice")


def _vlans(one: Values) -> str:
    said = [f"VLAN {one['access']}"] if one["access"] else []
    said += [f"VLAN{'s' if len(one['trunks']) > 1 else ''} {words.ranges(one['trunks'])} (tagged)"] if one["trunks"] else []
    said += ["its default VLAN"] if one["keep_default"] else []
    return f"Of {one['bridge']} the guest is in {' and '.join(said) or 'no VLAN'}, and in no other."


def _guard(one: Values) -> str:
    free, known = one["free"], [*one["addresses"], *one["prefixes"]]
    macs = "any MAC" if FREE_MAC in free or not one["mac"] else f"the MAC {one['mac']}"
    known += [f"any {family} address" for family, name in (("IPv4", FREE_IPV4), ("IPv6", FREE_IPV6)) if name in free]
    return f"The guest may send from {macs} and from {', '.join(known) or 'no address'}; what else it sends is dropped."


def _access(one: Values) -> str:
    return f"Of the node itself the guest reaches {', '.join(one['services']) or 'nothing'}, and what its mode needs."


def _port(one: Values) -> str:
    ways = (("shaping", "the guest receives"), ("policing", "the guest sends"))
    limits = [f"{way} at most {words.rate(one[name] * 1000)}" for name, way in ways if one[name]]
    said = ", ".join(filter(None, [words.vlan(one["tag"], one["trunks"]), *limits]))
    return f"The device is a port of the Open vSwitch bridge {one['bridge']}{': ' if said else ''}{said}."


def _flag(one: Values) -> str:
    return PORTS[one["flag"]][0 if one["wanted"] else 1]


def _daemon(one: Values) -> str:
    return f"The node runs the daemon {one['name']}, which the NIC needs."


MEANINGS: dict[str, Callable[[Values], str]] = {
    "link": _link,
    "steady-address": lambda one: "The host's side keeps its MAC, so that the guest goes on knowing its gateway.",
    "guard-table": lambda one: f"The packet filter has the table {one['name']}, in which the spoof guards of several NICs are.",
    "delivery-table": lambda one: "The packet filter has the table that keeps frames for others away from guests.",
    "guard": _guard,
    "gateway-arp-table": lambda one: "The packet filter has the table that rewrites the node's ARP requests to guests.",
    "gateway-arp": lambda one: f"The guest is asked for its MAC in the name of its gateway {one['gateway']}, never of the node.",
    "access-table": lambda one: "The packet filter has the table that keeps guests away from the node itself.",
    "access": _access,
    "bridge-port": lambda one: f"The device is plugged into the bridge {one['bridge']}.",
    "bridge-vlans": _vlans,
    "uplink-vlan": lambda one: f"VLAN {one['vid']} leaves the node: the uplink {one['port'] or 'of ' + one['bridge']} carries it.",
    "port-flag": _flag,
    "fdb-entry": lambda one: f"The bridge {one['bridge']} knows for good that {one['mac']} is behind this device.",
    "sysctl": lambda one: f"In {_family(one)}, {one['name']} is {one['value']}: {SYSCTLS.get(one['name'], 'see ip-sysctl')}.",
    "mark-table": lambda one: f"The packet filter marks what the guests of {_table(one)} send.",
    "mark": lambda one: f"What the guest sends bears the mark of {_table(one)}.",
    "mark-rule": lambda one: f"What bears the mark of {_table(one)} is routed by it, in {_family(one)}.",
    "rule": lambda one: f"What the guest sends in {_family(one)} is routed by {_table(one)}.",
    "route": lambda one: f"What is for {one['destination']} goes to the guest, in {_table(one)}.",
    "prefix-route": lambda one: f"What is for {one['destination']} goes to the guest, by its address {one['gateway']}, in {_table(one)}.",
    "blackhole": lambda one: f"While the NIC is down, what is for {one['destination']} ends here, in {_table(one)}.",
    "neighbour": lambda one: f"The node answers for the guest's address {one['address']} {_uplink(one)}.",
    "gateway-neighbour": lambda one: f"The node answers the guest when it asks for its gateway {one['address']}.",
    "uplink-sysctl": lambda one: f"In {_family(one)}, {one['name']} is on {_uplink(one)}: the node may answer for guests there.",
    "address": lambda one: f"The host's side of the device has the address {one['address']}, the guest's gateway.",
    "firewall": lambda one: f"The packet filter has the rules of the firewall profile {one['profile']}.",
    "firewall-nic": lambda one: f"The firewall profile {one['profile']} stands in front of the guest.",
    "shaper": lambda one: f"The guest receives at most {words.rate(one['rate'])}.",
    "police": lambda one: f"The guest sends at most {words.rate(one['rate'])}; what is more is dropped.",
    "ovs-port": _port,
    "ovs-link-shut": lambda one: f"The device is off while it is no port of {one['bridge']}: no frame passes before all is in place.",
    "ovs-link-mtu": lambda one: f"The device takes frames as long as its bridge does: mtu {one['value'] or 'of the bridge'}.",
    "ovs-link-open": lambda one: "The device is switched on, now that its port and flows are in place.",
    "flows": lambda one: f"Open vSwitch has the flows of {', '.join(one['templates'])} for what the guest sends.",
    "flows-end": lambda one: "When the port goes, its flows go after it.",
    "file": lambda one: f"The file {one['name']} in {one['folder']} tells a daemon of the guest.",
    "daemon": _daemon,
}


def meaning(operation: Operation) -> str:
    """The sentence."""
    if isinstance(operation, Waiting):
        return meaning(operation.operation)
    if operation.KIND not in MEANINGS:  # of an extension of the site
        return f"The site's extension {operation.KIND.partition('/')[0]} does: {operation.describe()}"
    return MEANINGS[operation.KIND](operation._asdict())
