"""The spoof guard's tables in the words of nft(8), a reader of its own: a wrong offset, mask or register would show."""

from __future__ import annotations

import json

from netcommon.operations.guard import egress_filter
from netcommon.operations.guard import rules as guard_rules
from netcommon.operations.guard.table import GuardTable, table_of
from tests.kernel.test_guard_verdicts import MAC, NIC, OPTIONS, Guarded
from tests.support.netns import run
from tests.support.node import Node

PREFIX = "& 0xffc00000000000000000000000000000"
LINK_LOCAL = "0xfe800000000000000000000000000000"


def foreign6(field: str, before: str = "") -> list[str]:
    """The rules for an IPv6 address: a link-local one, and another."""
    kinds = (("", "==", "any-link-local"), (before, "!=", "free-ipv6"))
    return [
        f"{first}{field} {PREFIX} {same} {LINK_LOCAL} iif . {field} != @ipv6 iif . {field} != @prefixes6 iif != @{free} goto drop-ip"
        for first, same, free in kinds
    ]


def new(field: str, remembered: str) -> list[str]:
    """The rules for an address that a limited NIC begins to use."""
    return [
        f"iif @new-sources add @{remembered} {{ iif . {field} }} return",
        "iif @dropped-sources drop",
    ]


LAST = (17, 58, 51, 135, 139, 140)  #: headers of IPv6 behind which the guard looks, or for which it has rules
#: Chains, and their rules in their order.
CHAINS = {
    "guard": [
        "@ll,96,16 0x88a8 goto drop-vlan",
        "@ll,96,16 0x8100 jump tagged",
        "meta protocol 8021q goto drop-vlan",
        "meta protocol 8021ad goto drop-vlan",
        "iif . @ll,48,48 != @macs iif != @free-mac goto drop-mac",
        "meta protocol ip goto ipv4",
        "meta protocol ip6 goto ipv6",
        "meta protocol arp goto arp",
        "meta protocol arp iif @free-mac iif @free-ipv4 accept",
        "meta protocol arp goto drop-malformed",
        "meta protocol 0x8035 jump reverse",
        "iif != @free-type goto drop-type",
    ],
    "tagged": ["iif . @ll,112,16 & 0xfff @vlans return", "goto drop-vlan"],
    "arp": [
        "@nh,0,48 != 0x108000604 iif != @free-mac goto drop-malformed",
        "@nh,0,48 != 0x108000604 iif != @free-ipv4 goto drop-malformed",
        "iif . @nh,64,48 != @macs iif != @free-mac goto drop-mac",
        "@nh,112,32 != 0x0 iif . @nh,112,32 != @ipv4 iif . @nh,112,32 != @prefixes4 iif != @free-ipv4 goto drop-ip",
        "@nh,112,32 0x0 iif . @nh,192,32 != @ipv4 iif . @nh,192,32 != @prefixes4 iif != @free-ipv4 goto drop-ip",
        "@nh,112,32 != 0x0 iif . @nh,112,32 != @ipv4 iif . @nh,112,32 != @sources4 goto sender",
    ],
    "sender": new("@nh,112,32", "sources4"),
    "ipv4": [
        "@nh,96,32 != 0x0 iif . @nh,96,32 != @ipv4 iif . @nh,96,32 != @prefixes4 iif != @free-ipv4 goto drop-ip",
        "iif . @nh,96,32 != @ipv4 iif . @nh,96,32 != @sources4 iif . @nh,96,32 @prefixes4 jump source4",
        "@nh,48,16 & 0x1fff != 0x0 @nh,72,8 0x11 iif != @free-dhcp goto later4",
        "@nh,48,16 & 0x1fff != 0x0 @nh,72,8 0x2 iif != @free-query goto drop-query",
        "@nh,48,16 & 0x1fff != 0x0 accept",
        "meta l4proto 17 goto udp4",
        "igmp type membership-query iif != @free-query goto drop-query",
        "meta l4proto != 17 accept",
        "goto drop-malformed",
    ],
    "source4": new("@nh,96,32", "sources4"),
    "later4": [
        "@nh,0,8 & 0xf != 0x5 goto drop-dhcp",
        "@nh,160,16 0x43 goto drop-dhcp",
        "@nh,176,16 0x43-0x44 goto drop-dhcp",
        "accept",
        "goto drop-malformed",
    ],
    "dhcp4": [
        "@nh,48,16 & 0x3fff == 0x0 @th,64,24 0x10106 @th,256,32 0x0 goto chaddr4",
        "goto drop-dhcp",
    ],
    "chaddr4": ["iif . @th,288,48 @macs accept", "iif @no-mac accept", "goto drop-dhcp"],
    "ipv6": [
        *foreign6("@nh,64,128", "@nh,64,128 != 0x0 "),
        f"@nh,64,128 {PREFIX} == {LINK_LOCAL} iif . @nh,64,128 != @ipv6 iif . @nh,64,128 != @sources6 jump source6",
        "@nh,64,128 != 0x0 iif . @nh,64,128 != @ipv6 iif . @nh,64,128 != @sources6 iif . @nh,64,128 @prefixes6 jump source6",
        "jump agree6",
        "goto next6",
    ],
    "agree6": [
        "".join(f"@nh,48,8 != {header:#x} " for header in (*LAST, 0, 43, 44, 60)) + "return",
        *(f"@nh,48,8 {header:#x} meta l4proto {header} return" for header in LAST),
        *(f"@nh,48,8 {header:#x} exthdr {name} exists return" for header, name in ((0, "hbh"), (43, "rt"), (44, "frag"), (60, "dst"))),
        "goto drop-malformed",
    ],
    "source6": new("@nh,64,128", "sources6"),
    "first6": [
        "@nh,48,8 0x2c "
        + "".join(f"frag nexthdr != {header} " for header in (0, 43, 44, 60, 51, 135, 139, 140))
        + "@nh,32,16 >= 0x10 return",
        "goto drop-malformed",
    ],
    "other6": [
        "".join(f"meta l4proto != {header} " for header in (51, 135, 139, 140)) + "accept",
        "".join(f"@th,0,8 != {header:#x} " for header in (6, 50, 59, 132)) + "goto drop-malformed",
        "accept",
        "goto drop-malformed",
    ],
    "udp6": ["iif @free-dhcp accept", "th sport 547 goto drop-dhcp", "th dport 546 goto drop-dhcp", "th dport 547 goto dhcp6"],
    "target": foreign6("@th,64,128"),
    "in-INDEX": [f'comment "{NIC.uuid}"', 'type filter hook ingress device "tap0" priority -300; policy accept;', 'iif "tap0" goto guard'],
    "postrouting": [
        "type filter hook postrouting priority -300; policy accept;",
        "meta protocol ip6 @nh,0,8 set @nh,0,8",
        "@ll,0,8 & 0x1 == 0x0 oif . ether daddr != @own oif @dropped-promisc drop",
    ],
}
SETS = {
    "macs": ["type iface_index . ether_addr", f'elements = {{ "tap0" . {MAC} }}'],
    "ipv4": ["type iface_index . ipv4_addr", 'elements = { "tap0" . 10.0.0.5 }'],
    "ipv6": ["type iface_index . ipv6_addr", 'elements = { "tap0" . 2001:db8::5 }'],
    "vlans": ["type iface_index . inet_service", 'elements = { "tap0" . 7 }'],
    "free-mac": ["type iface_index"],
    "any-link-local": ["type iface_index", 'elements = { "tap0" }'],
    "own": ["type iface_index . ether_addr", f'elements = {{ "tap0" . {MAC} }}'],
    "dropped-promisc": ["type iface_index", "counter", 'elements = { "tap0" counter packets 0 bytes 0 }'],
    "new-sources": [
        "type iface_index",
        "limit rate 1/minute burst 1 packets",
        'elements = { "tap0" limit rate 64/minute burst 64 packets }',
    ],
    "sources6": ["type iface_index . ipv6_addr", "size 65536", "flags dynamic,timeout", "timeout 1m"],
    "dropped-ip": ["type iface_index", "counter", 'elements = { "tap0" counter packets 0 bytes 0 }'],
}


def blocks(listed: str) -> dict[str, list[str]]:
    """The lines of each chain and set, without handles."""
    found: dict[str, list[str]] = {}
    inside = ""
    for line in (line.partition(" # handle ")[0].strip() for line in listed.splitlines()):
        if line.endswith(" {") and line.split()[0] in ("set", "chain"):
            inside = " ".join(line.split()[:2])
            found[inside] = []
        elif line == "}":
            inside = ""
        elif inside and line:
            found[inside].append(line)
    return found


def test_what_the_rules_say(node: Node) -> None:
    guarded = Guarded(node, NIC, OPTIONS)
    listed = run("nft", "-ap", "list", "ruleset")
    index = json.loads(run("ip", "-j", "link", "show", "dev", guarded.tap.name))[0]["ifindex"]
    assert listed.startswith(f"table netdev {table_of('tap0')} {{ # handle ") and '\tcomment "netcommon spoof guard"\n' in listed
    found = blocks(listed)
    for name, lines in CHAINS.items():
        assert found[f"chain {name.replace('INDEX', str(index))}"] == lines, name
    for name, lines in SETS.items():
        assert found[f"set {name}"] == lines, name
    wanted = [f"chain {chain.name}" for chain in guard_rules.chains("")] + [f"set {each.name}" for each in guard_rules.sets("")]
    layouts = [f"chain {made.LAYOUT}" for made in (GuardTable, egress_filter.DeliveryTable)]
    wanted += [*layouts, "chain postrouting", "set own", "set dropped-promisc"]
    assert [found[each] for each in layouts] == [['comment "netcommon"', "return"]] * 2
    assert sorted(found) == sorted([*wanted, f"chain in-{index}"])


def test_prefixes(node: Node) -> None:
    """In a set of ranges nft(8) shows the device's index in reversed byte order. The prefix in another is not there."""
    guarded = Guarded(node, NIC, OPTIONS)
    index = json.loads(run("ip", "-j", "link", "show", "dev", guarded.tap.name))[0]["ifindex"]
    shown = int.from_bytes(index.to_bytes(4, "little"), "big")
    found = blocks(run("nft", "list", "ruleset"))
    assert found["set prefixes4"] == ["type iface_index . ipv4_addr", "flags interval", f"elements = {{ {shown} . 10.1.0.0/28 }}"]
    assert found["set prefixes6"] == ["type iface_index . ipv6_addr", "flags interval", f"elements = {{ {shown} . 2001:db8:1::/64 }}"]


def test_as_json(node: Node) -> None:
    """nft -j reads it to the end: each rule, set and chain once."""
    guarded = Guarded(node, NIC, OPTIONS)
    listed = json.loads(run("nft", "-j", "list", "ruleset"))["nftables"]
    counts = {kind: sum(kind in item for item in listed) for kind in ("table", "chain", "rule", "set")}
    rules = len(guard_rules.rules("")) + 5  # those that tell the two layouts, the delivery table's two, and the NIC's own
    assert counts == {"table": 2, "chain": len(guard_rules.chains("")) + 4, "rule": rules, "set": len(guard_rules.sets("")) + 2}
    own = [item["rule"]["expr"] for item in listed if "rule" in item and item["rule"]["chain"].startswith("in-")]
    device = {"match": {"op": "==", "left": {"meta": {"key": "iif"}}, "right": guarded.tap.name}}
    assert own == [[device, {"goto": {"target": "guard"}}]]
