"""Tell which nftables chain of others drops all of a NIC's traffic, though all that was done for it holds: no hook loads this.

Told is a chain on the way of every packet that drops whatever comes to it: it has no rules, and drops by its policy (nft(8)); at a device
and in family bridge also one whose first rule drops without a condition. What rules of others drop else is their own affair, and those of
IP's tables, which may be tens of thousands, are not read.
"""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.nftables import BRIDGE, EGRESS, INET, INET_FORWARD, INET_POSTROUTING, INET_PREROUTING, INGRESS, NETDEV
from netcommon.host.nftables.expressions import DROP, verdict
from netcommon.host.rtnetlink.attributes import MalformedError, attributes, each, string
from netcommon.operations.bridge import BridgePort
from netcommon.operations.link import link_of
from netcommon.operations.node_reached import node_reached
from netcommon.operations.route import GuestRoute, PrefixRoute
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.nftables import NftChain
    from netcommon.operations.base import Operation

IP, IP6 = 2, 10  #: nftables' families of IP alone (NFPROTO_*)
NAMES = {INET: "inet", IP: "ip", NETDEV: "netdev", BRIDGE: "bridge", IP6: "ip6"}
OF = {AF_INET: (INET, IP), AF_INET6: (INET, IP6)}  #: by the family of packets
INET_INGRESS = 5  #: of inet, on devices as netdev's (NF_INET_INGRESS)

#: Hooks of inet, ip, ip6 and bridge alike (NF_INET_*, NF_BR_*) that all meet which the node hands on; what is for the node, not the second.
ALL, HANDED_ON = frozenset({INET_PREROUTING, INET_POSTROUTING}), frozenset({INET_PREROUTING, INET_FORWARD, INET_POSTROUTING})

#: By which setting in net/bridge br_netfilter has IP's hooks see what bridges forward, and the place of a bridge's own.
CALLING = {AF_INET: ("bridge-nf-call-iptables", 0), AF_INET6: ("bridge-nf-call-ip6tables", 1)}


def bridged(view: View, ip: str, operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return what drops all that a bridge takes from a NIC's port or hands to it, and what helps. Raises TryAgain.

    ``ip``: the guest's address, "" where that is not known: then it is to have both families.
    """
    found: list[NftChain] = []
    for one in operations:
        link = view.link_at(one.ifindex) if isinstance(one, BridgePort) and not one.differs(view) else None
        bridge = view.link_at(link.master) if link is not None else None
        if link is None or bridge is None:
            continue
        found += [*_at(view, link), *_lost(view, bridge, _dropping(view, (BRIDGE,), HANDED_ON))]
        lost = [_lost(view, bridge, _called(view, bridge, family)) for family in ([_family(ip)] if ip else CALLING)]
        found += [chain for chains in lost for chain in chains] if all(lost) else []
    return _said(found)


def _lost(view: View, bridge: Link, chains: Iterable[NftChain]) -> list[NftChain]:
    """Leave out what frames for the node itself do not meet, where a guest may be on the bridge for it alone, or have it for its router."""
    found = list(chains)
    if all(chain.hook in ALL for chain in found) or not node_reached(view, bridge):
        return found
    return [chain for chain in found if chain.hook in ALL]


def routed(view: View, ifindex: int, device: str, operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return what drops all that the node forwards for a routed NIC, in some family that it has, and what helps. Raises TryAgain."""
    link = link_of(view, ifindex, device)
    families = sorted({one.family for one in operations if isinstance(one, GuestRoute | PrefixRoute)})
    return _said(
        [*(_at(view, link) if link is not None else ()), *(chain for one in families for chain in _dropping(view, OF[one], HANDED_ON))]
    )


def _family(ip: str) -> int:
    return AF_INET6 if ":" in ip else AF_INET


def _called(view: View, bridge: Link, family: int) -> list[NftChain]:
    """Give the chains that drop all of a family which br_netfilter has pass IP's hooks: of frames with a tag it does not."""
    setting, place = CALLING[family]
    value, state = view.sysctl(f"net/bridge/{setting}"), view.device_state(bridge.index)
    own = state is not None and state.bridge is not None and state.bridge.nf_call[place]
    if bridge.vlan_filtering or value is None or not (own or value == "1"):
        return []
    return list(_dropping(view, OF[family], HANDED_ON))


def _at(view: View, link: Link) -> list[NftChain]:
    """Give the chains at a device that drop all that it receives, or sends."""
    chains = [*_dropping(view, (NETDEV,), (INGRESS, EGRESS)), *_dropping(view, (INET,), (INET_INGRESS,))]
    return [chain for chain in chains if any(_names(name, link) for name in (chain.device, *chain.others))]


def _names(name: str, link: Link) -> bool:
    """Tell whether a chain's device is this one; "eth*" is all whose names begin so."""
    return link.name.startswith(name[:-1]) if name.endswith("*") else link.name == name


def _dropping(view: View, families: Iterable[int], hooks: Collection[int]) -> Iterator[NftChain]:
    """Yield the chains of others at these hooks that drop whatever comes to them."""
    for family in families:
        for table in view.nft_tables(family):
            if table.ours or table.dormant:
                continue
            yield from (one for one in view.nft_chains_of(family, table.name) if one.hook in hooks and _drops_all(view, one))


def _drops_all(view: View, chain: NftChain) -> bool:
    if chain.empty or chain.family not in (NETDEV, BRIDGE):
        return chain.empty and chain.drops
    first = next(iter(view.nft_rules_of(chain.family, chain.table, chain.name)), None)
    if first is None or not first.expressions.endswith(verdict(DROP)):
        return False
    try:
        names = [string(attributes(value).get(1)) for _kind, value in each(first.expressions)]
    except MalformedError:
        return False
    return all(name in ("counter", "log") for name in names[:-1])


def _said(chains: Iterable[NftChain]) -> list[tuple[str, str]]:
    return [(f"nftables chain {_named(one)} drops all that comes to it, and is not ours", _remedy(one)) for one in dict.fromkeys(chains)]


def _named(chain: NftChain) -> str:
    """Name a chain as nft(8) takes it."""
    return f"{NAMES[chain.family]} {chain.table} {chain.name}"


def _remedy(chain: NftChain) -> str:
    if chain.empty:
        return f"nft 'add chain {_named(chain)} {{ policy accept; }}', or rules for what is to pass"
    return f"delete its first rule (nft -a list chain {_named(chain)}), or let pass before it what is to"
