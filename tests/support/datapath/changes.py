"""Draw what an administrator may have changed on a node, and what stands in a frame's way by it: lines for ip, bridge, nft and sysctl."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.support.datapath import places as at
from tests.support.datapath.places import BRIDGED, TABLE, Place


class Change(NamedTuple):
    """Hold one thing; all of them together are a node."""

    words: str
    ip: tuple[str, ...] = ()  #: lines of ip -batch
    bridge: tuple[str, ...] = ()  #: of bridge -batch
    sysctl: tuple[tuple[str, str], ...] = ()
    nft: str = ""
    away: tuple[str, ...] = ()  #: uplinks whose other end is switched off


Maker = Callable[[random.Random, Place], Change]


def draw(dice: random.Random, place: Place) -> tuple[Change, ...]:
    """A few, of different dimensions."""
    makers = BRIDGES if place.mode == BRIDGED else ROUTERS
    chosen = dice.choices(makers, [weight for _maker, weight in makers], k=dice.choice((1, 2, 2, 3, 4)))
    return tuple(maker(dice, place) for maker, _weight in dict.fromkeys(chosen))


def _device(dice: random.Random, place: Place) -> str:
    return dice.choice((place.inner, place.inner, "up0" if place.mode != BRIDGED else "up1"))


def _switch(dice: random.Random, place: Place) -> Change:
    device = dice.choice((_device(dice, place), "all"))
    paths = {
        "ipv4": ("accept_local", "route_localnet", "proxy_arp", "proxy_arp_pvlan", "arp_filter", "drop_gratuitous_arp", "src_valid_mark"),
        "ipv6": ("proxy_ndp", "drop_unicast_in_l2_multicast", "disable_ipv6"),
    }
    family = dice.choice([*sorted(paths), "ipv4"])
    name = dice.choice((*paths[family], *(("bc_forwarding", "drop_unicast_in_l2_multicast") if family == "ipv4" else ())))
    if name == "disable_ipv6":
        device = place.inner
    return _set(f"net/{family}/conf/{device}/{name}", "1")


def _set(path: str, value: str) -> Change:
    return Change(f"{path}={value}", sysctl=((path, value),))


def _filtering(dice: random.Random, place: Place) -> Change:
    return _set(f"net/ipv4/conf/{dice.choice((_device(dice, place), 'all'))}/rp_filter", dice.choice("12"))


def _ignoring(dice: random.Random, place: Place) -> Change:
    return _set(f"net/ipv4/conf/{dice.choice((_device(dice, place), 'all'))}/arp_ignore", dice.choice("128"))


def _not_forwarding(dice: random.Random, place: Place) -> Change:
    paths = (f"net/ipv4/conf/{_device(dice, place)}/forwarding", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
    return _set(dice.choice(paths), "0")


def _rule(dice: random.Random, place: Place) -> Change:
    """Rules that select by anything, do anything, and lead to a table that leads elsewhere, or nowhere."""
    six = dice.random() < 0.4
    guest, far = (at.GUEST6, "2001:db8:aaaa::/48") if six else (at.GUEST4, "198.51.100.0/24")
    more = ("fwmark 5",) if six else ("tos 0x10", "fwmark 5")
    chosen = dice.choice(
        (
            f"not iif {place.inner}",
            f"iif {place.inner}",
            f"from {guest}",
            f"to {far}",
            f"not to {far}",
            f"not from {guest}",
            "uidrange 0-0",
            "ipproto udp dport 53",
            f"from {guest} iif {place.inner} to {far}",
            *more,
        )
    )
    action = dice.choice((f"lookup {TABLE}", f"lookup {TABLE}", f"lookup {TABLE}", "unreachable", "prohibit", "blackhole", "goto 32766"))
    action = "lookup main suppress_prefixlength 0" if dice.random() < 0.15 else action
    family = "-6 " if six else ""
    lines = [f"{family}rule add {chosen} {action} preference {dice.choice((200, 600))}", *_table(dice)]
    return Change(lines[0], tuple(lines))


def _table(dice: random.Random) -> list[str]:
    """Fill the table of the changes: a default route by up1, or that and other routes, or nothing that leads anywhere."""
    if dice.random() < 0.25:
        return [f"route replace unreachable default table {TABLE}"]
    made = [f"route replace default via {at.GATEWAY14} table {TABLE}", f"-6 route replace default via {at.GATEWAY16} dev up1 table {TABLE}"]
    return [*made, f"route replace throw {at.NETS4[1]} table {TABLE}"] if dice.random() < 0.3 else made


def _marking(dice: random.Random, place: Place) -> Change:
    """A mark that is set on the way, and a rule that asks for it."""
    hook, family = dice.choice((("prerouting", "inet"), ("prerouting", "ip")))
    chain = f"type filter hook {hook} priority -150; udp dport {dice.choice((9, 53))} meta mark set 5;"
    rules = f"table {family} marks {{ chain pre {{ {chain} }}\n}}"
    lines = (f"rule add fwmark 5 lookup {TABLE} preference 300", f"-6 rule add fwmark 5 lookup {TABLE} preference 300")
    return Change(f"{family} marks", (*lines, *_table(dice)), nft=rules)


def _route(dice: random.Random, place: Place) -> Change:
    """Routes of all types to the places far outside, in table main."""
    which, six = dice.choice((1, 2, 3)), dice.random() < 0.4
    net, family = (at.NETS6[which], "-6 ") if six else (at.NETS4[which], "")
    gateway = at.GATEWAY16 if six else at.GATEWAY14
    near = place.near6 if six else place.near4
    inward = near if place.mode == BRIDGED else gateway
    kinds = [
        f"blackhole {net}",
        f"unreachable {net}",
        f"prohibit {net}",
        f"throw {net}",
        f"local {net} dev lo",
        f"{net} via {gateway} dev up1",
        f"{net} via {gateway} dev up1 mtu {dice.choice((1300, 1400))}",
        f"{net} via {inward}",
        f"{net} via {at.PEER6 if six else at.PEER4} dev {place.inner if place.mode == BRIDGED else 'tap1'} onlink",
    ]
    if six:
        kinds.append(f"{net} from {at.GUEST6} via {gateway} dev up1")
    else:
        kinds += [
            f"{net} tos 0x10 via {gateway} dev up1",
            f"{net} nexthop via {gateway} dev up1 nexthop via {inward}",
            f"broadcast {at.FAR4[which]} dev up1",
        ]
    line = f"{family}route add {dice.choice(kinds)}"
    return Change(line, (line,))


def _linkdown(dice: random.Random, place: Place) -> Change:
    """The other end of an uplink is off: its routes are down, which counts where the settings say so."""
    wanted = dice.random() < 0.6
    places = [f"net/{family}/conf/{device}" for family in ("ipv4", "ipv6") for device in ("all", "up1")]
    settings = tuple((f"{each}/ignore_routes_with_linkdown", "1") for each in places)
    ways = (f"{at.NETS4[1]} via {at.GATEWAY14}", f"{at.NETS6[1]} via {at.GATEWAY16}")
    lines = (f"route add {ways[0]} dev up1 metric 5", f"-6 route add {ways[1]} dev up1 metric 5")
    near = () if place.mode == BRIDGED else (f"route add {at.NETS4[1]} via {at.GATEWAY4} metric 50",)
    return Change(f"up1 has no carrier, ignored {wanted}", (*lines, *near), sysctl=settings if wanted else (), away=("up1",))


def _small(dice: random.Random, place: Place) -> Change:
    device = dice.choice(("up1", "tap1", "up0"))
    return Change(f"mtu of {device}", (f"link set {device} mtu 1300",))


def _lacking(dice: random.Random, place: Place) -> Change:
    """A device without ARP, or too small for IPv6."""
    device = dice.choice((place.inner, place.inner, "up1", "up0"))
    return Change(f"{device} lacks", (f"link set {device} {dice.choice(('arp off', 'mtu 1279', 'mtu 1279'))}",))


def _silent(dice: random.Random, place: Place) -> Change:
    """A gateway that does not answer."""
    lines = (f"neigh replace {at.GATEWAY14} dev up1 nud failed", f"-6 neigh replace {at.GATEWAY16} dev up1 nud failed")
    return Change("up1's gateway is silent", lines)


def _off(dice: random.Random, place: Place) -> Change:
    device = dice.choice(("tap1", "up1") + (("up0", "br0") if place.mode == BRIDGED else ()))
    return Change(f"{device} is off", (f"link set {device} down",))


def _proxied(dice: random.Random, place: Place) -> Change:
    lines = (f"neigh add proxy {at.FAR4[0]} dev {place.inner}", f"-6 neigh add proxy {at.FAR6[0]} dev {place.inner}")
    settings = tuple((f"net/ipv6/conf/{name}/proxy_ndp", "1") for name in ("all", place.inner) if dice.random() < 0.6)
    return Change("proxy entries", lines, sysctl=settings)


def _looped(dice: random.Random, place: Place) -> Change:
    return Change("addresses on lo", (f"address add {at.LOOP4}/32 dev lo", f"-6 address add {at.LOOP6}/128 dev lo"))


# -- bridges


def _port(dice: random.Random, place: Place) -> Change:
    port = dice.choice(("tap0", "tap1", "up0"))
    floods = ("flood off", "mcast_flood off", "bcast_flood off")
    flags = (*floods, "learning off", "hairpin on", "locked on", "isolated on", "neigh_suppress on")
    chosen = dice.sample(flags, dice.choice((1, 1, 2)))
    return Change(f"{port} {chosen}", bridge=tuple(f"link set dev {port} {flag}" for flag in chosen))


def _isolated(dice: random.Random, place: Place) -> Change:
    ports = dice.sample(("tap0", "tap1", "up0"), 2)
    return Change(f"isolated {ports}", bridge=tuple(f"link set dev {port} isolated on" for port in ports))


def _state(dice: random.Random, place: Place) -> Change:
    line = f"link set dev {dice.choice(('tap0', 'tap1', 'up0'))} state {dice.choice('012')}"
    return Change(line, bridge=(line,))


def _known(dice: random.Random, place: Place) -> Change:
    """Entries that somebody has made, some of them at a port where the address is not."""
    mac, port = dice.choice((at.GUEST_MAC, at.PEER_MAC, at.OUT_MAC, at.NOBODY_MAC)), dice.choice(("tap0", "tap1", "up0"))
    line = f"fdb replace {mac} dev {port} master {dice.choice(('static', 'static', 'dynamic', 'static sticky'))}"
    return Change(line, bridge=(line,))


def _uplink_off(dice: random.Random, place: Place) -> Change:
    return Change("up0 has no carrier", away=("up0",))


def _of_bridge(dice: random.Random, place: Place) -> Change:
    words = ("group_fwd_mask 0x4000", "group_fwd_mask 8", "mcast_querier 1", "mcast_snooping 0", "nf_call_iptables 1", "stp_state 1")
    chosen = dice.choice((*words, "ageing_time 0", "promisc"))
    if chosen == "promisc":
        return Change("br0 promisc", ("link set br0 promisc on",))
    return Change(f"br0 {chosen}", (f"link set br0 type bridge {chosen}",))


def _answering(dice: random.Random, place: Place) -> Change:
    port, flag = dice.choice(("tap0", "tap1", "up0")), dice.choice(("proxy_arp on", "proxy_arp_wifi on", "group_fwd_mask 8"))
    return Change(f"{port} {flag}", (f"link set {port} type bridge_slave {flag}",))


def _called(dice: random.Random, place: Place) -> Change:
    """br_netfilter, and a chain that it calls."""
    hook, policy = dice.choice(("forward", "prerouting")), dice.choice(("drop", "accept"))
    rules = f"table inet called {{ chain c {{ type filter hook {hook} priority 0; policy {policy}; udp dport 53 accept; }}\n}}"
    settings = tuple((f"net/bridge/bridge-nf-call-{name}tables", "1") for name in ("ip", "ip6"))
    return Change(f"br_netfilter, {hook} {policy}", sysctl=settings if dice.random() < 0.7 else (), nft=rules)


# -- nftables


def _chain(dice: random.Random, place: Place) -> Change:
    """A chain of somebody else's at any hook, with rules that are understood, and with some that are not."""
    rule = dice.choice(("udp dport 53 drop", "udp dport 53 counter accept", "drop", "", "ct state new accept", "meta l4proto icmp drop"))
    policy = dice.choice(("accept", "accept", "drop"))
    both = sorted({place.inner, "up0", "tap0", "up1"})
    heads = [
        ("netdev", "type filter hook ingress devices = {{ {} }} priority 0".format(", ".join(dice.sample(both, 2)))),
        ("netdev", f'type filter hook ingress device "{dice.choice(both)}" priority 0'),
        ("inet", f'type filter hook ingress device "{dice.choice(both)}" priority 0'),
        ("inet", f"type filter hook {dice.choice(('prerouting', 'input', 'forward', 'postrouting'))} priority 0"),
        ("ip", f"type filter hook {dice.choice(('prerouting', 'input', 'forward'))} priority 0"),
        ("ip6", f"type filter hook {dice.choice(('prerouting', 'input', 'forward'))} priority 0"),
        ("bridge", f"type filter hook {dice.choice(('prerouting', 'input', 'forward', 'postrouting'))} priority 10"),
        ("arp", "type filter hook input priority 0"),
    ]
    family, head = dice.choice(heads)
    if family in ("netdev", "arp", "bridge") and rule.startswith("ct"):
        rule = ""
    if family == "arp" and rule not in ("drop", ""):
        rule = "arp operation request drop"
    made = f"table {family} theirs {{ chain c {{ {head}; policy {policy}; {rule}{'; ' if rule else ''}}}\n}}"
    return Change(made, nft=made)


COMMON: tuple[tuple[Maker, int], ...] = (
    (_switch, 5),
    (_filtering, 4),
    (_ignoring, 1),
    (_not_forwarding, 2),
    (_rule, 6),
    (_marking, 1),
    (_route, 6),
    (_linkdown, 2),
    (_small, 2),
    (_lacking, 1),
    (_silent, 1),
    (_off, 1),
    (_proxied, 2),
    (_looped, 2),
    (_chain, 3),
)
ROUTERS = COMMON
BRIDGES: tuple[tuple[Maker, int], ...] = (
    *((maker, weight) for maker, weight in COMMON),
    (_port, 9),
    (_isolated, 2),
    (_state, 4),
    (_known, 3),
    (_uplink_off, 1),
    (_of_bridge, 4),
    (_answering, 2),
    (_called, 3),
)
