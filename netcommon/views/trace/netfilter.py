"""The nftables chains that a frame meets at one hook of the kernel: ours are carried out, others are named."""

from __future__ import annotations

from collections.abc import Sequence
from sys import byteorder

from netcommon.host.api.facts import Link
from netcommon.host.api.host import View
from netcommon.host.api.nftables import ARP, BRIDGE, EGRESS, INET, INGRESS, NETDEV, NO_HOOK, NftChain
from netcommon.host.nftables.profile_table import MEMBERS
from netcommon.operations.access_rules import NAMES as ACCESS
from netcommon.operations.guard import egress_filter
from netcommon.operations.guard.table import PREFIX
from netcommon.operations.mark import PREFIX as MARKS
from netcommon.views.trace.nft_eval import Devices, Ruleset
from netcommon.views.trace.packet import ARP as ARP_TYPE
from netcommon.views.trace.packet import IPV4, IPV6, Packet
from netcommon.views.trace.trail import KERNEL, OURS, Trail

#: nftables' families of IP alone (NFPROTO_*), and how nft(8) calls all of them.
IP, IP6 = 2, 10
NAMES = {INET: "inet", IP: "ip", ARP: "arp", NETDEV: "netdev", BRIDGE: "bridge", IP6: "ip6"}

#: Hooks of inet, ip, ip6 and bridge (NF_INET_*, NF_BR_*), by the words of nft(8).
PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING = range(5)
INET_INGRESS = 5  #: of inet, on devices as netdev's (NF_INET_INGRESS)
WORDS = {PREROUTING: "prerouting", INPUT: "input", FORWARD: "forward", OUTPUT: "output", POSTROUTING: "postrouting"}

#: By which setting in net/bridge br_netfilter hands frames of bridges to the chains of inet, and of which other family; and which of a
#: bridge's own two settings is as good.
CALLED = {IPV4: ("bridge-nf-call-iptables", IP, 0), IPV6: ("bridge-nf-call-ip6tables", IP6, 1)}

CONNTRACK = "net/netfilter/nf_conntrack_max"  #: there wherever connection tracking can be

BY_CONNECTION = b"ct\0"  #: the name of an expression that asks for it (NFTA_EXPR_NAME)

#: Why the guard drops a frame, by the reason in the chain's name.
REASONS = {
    "vlan": "it has a VLAN tag that the NIC may not use",
    "mac": "a MAC in it is not the NIC's",
    "type": "it is neither IPv4, IPv6 nor ARP",
    "ip": "an IP address that it claims is not the NIC's",
    "dhcp": "only a DHCP server sends such a message, or it asks for another's MAC",
    "ra": "only a router sends such a message",
    "malformed": "its headers are cut off, or hide what it is",
    "promisc": "it is for another MAC than the guest's",
    "node": "it is for the node itself, which the guest does not reach with it (node_access)",
}


class Hooks:
    """All hooks, for one frame."""

    def __init__(self, view: View, trail: Trail) -> None:
        self._view, self._trail, self._rules = view, trail, Ruleset(view)

    @property
    def mark(self) -> int:
        """The frame's, as rules of ours have set it; of a frame that a device has received it is 0."""
        return self._rules.mark

    def device(self, link: Link, packet: Packet, egress: bool = False) -> bool:
        """Those of family netdev on a device; whether the frame passes."""
        hook = EGRESS if egress else INGRESS
        chains = [chain for chain in self._view.nft_chains(NETDEV) if chain.hook == hook and _at(chain, link)]
        if not egress and packet.protocol in (IPV4, IPV6):
            chains += [chain for chain in self._view.nft_chains(INET) if chain.hook == INET_INGRESS and _at(chain, link)]
        return self._all(chains, link, packet)

    def stack(self, hook: int, link: Link, packet: Packet, out: Link | None = None) -> bool:
        """Those of inet, and of the packet's own family, where the node's stack meets them."""
        families = {IPV4: (INET, IP), IPV6: (INET, IP6), ARP_TYPE: (ARP,)}.get(packet.protocol, ())
        if packet.protocol == ARP_TYPE:
            hook = 0 if hook == INPUT else 1
        chains = [chain for family in families for chain in self._view.nft_chains(family) if chain.hook == hook]
        tables = [name for name in self._view.legacy_tables() if name] if families and packet.protocol != ARP_TYPE else []
        if tables and hook == PREROUTING:
            self._trail.doubt(link.name, "iptables-legacy", f"rules in its tables are not seen here: {', '.join(dict.fromkeys(tables))}")
        return self._all(chains, link, packet, out)

    def gathered(self, at: str, packet: Packet) -> None:
        """Doubt a fragment where connection tracking may gather it with the others (nf_defrag_ipv4, nf_defrag_ipv6)."""
        if not packet.whole and self._view.sysctl(CONNTRACK) is not None:
            self._trail.doubt(at, "connection tracking", "where rules ask for it, the fragment waits for the others", KERNEL)

    def bridges_track(self) -> bool:
        """Tell whether a rule of family bridge asks for connections, which has frames of all bridges tracked (nf_conntrack_bridge)."""
        tables = [table.name for table in self._view.nft_tables(BRIDGE)]
        return any(BY_CONNECTION in rule.expressions for table in tables for rule in self._view.nft_rules(BRIDGE, table))

    def bridge(self, hook: int, link: Link, packet: Packet, out: Link | None = None) -> bool:
        """Those of family bridge."""
        return self._all([chain for chain in self._view.nft_chains(BRIDGE) if chain.hook == hook], link, packet, out)

    def calls(self, packet: Packet, tagged: bool, own: tuple[bool, bool, bool]) -> bool:
        """Tell whether br_netfilter has IP's hooks see a frame of a bridge (br_netfilter_hooks.c). ``own``: the bridge's own settings."""
        setting, _family, place = CALLED.get(packet.protocol, ("", 0, 0))
        value = self._view.sysctl(f"net/bridge/{setting}") if setting else None
        if value is None or not (value == "1" or own[place]):
            return False
        return not tagged or self._view.sysctl("net/bridge/bridge-nf-filter-vlan-tagged") == "1"

    def bridged(self, hooks: Sequence[int], bridge: Link, packet: Packet, own: tuple[bool, bool, bool]) -> None:
        """Name what br_netfilter has a frame of a bridge meet besides, once: chains of IP's hooks. ``own``: as for ``calls``.

        For ARP that is arptables alone: nftables has no such hook.
        """
        setting, family, place = CALLED[packet.protocol]
        chains = [chain for each in (INET, family) for chain in self._view.nft_chains(each) if chain.hook in hooks and self._decides(chain)]
        if not chains:
            return
        names = ", ".join(f"{_place(chain)} {chain.name}" for chain in sorted(chains, key=lambda each: (each.hook, each.priority)))
        meets = f"br_netfilter of bridge {bridge.name}"
        on = f"nf_call_{setting.rpartition('-')[2]} of {bridge.name}" if own[place] else f"net.bridge.{setting}"
        said = f"with {on}=1 it passes chains that are not ours, and not carried out here: {names}"
        if f"{meets}: {said}" not in self._trail.untold:
            self._trail.doubt(bridge.name, meets, said)

    def _decides(self, chain: NftChain) -> bool:
        """Tell whether a chain is not ours, and could drop something."""
        table = self._view.nft_table(chain.family, chain.table)
        if table is None or table.ours or table.dormant:
            return False
        return chain.drops or bool(self._view.nft_rules_of(chain.family, chain.table, chain.name))

    def delivered(self, into: Link, out: Link, packet: Packet) -> bool:
        """Whether our delivery rule lets a bridge hand the frame to the port ``out``; says nothing."""
        chain = self._view.nft_chain(BRIDGE, egress_filter.NAME, egress_filter.POSTROUTING.name)
        if chain is None or not self._ours(chain):
            return True
        return self._rules.judge(chain, packet, Devices(into.index, out.index)).verdict != "drop"

    def _all(self, chains: Sequence[NftChain], link: Link, packet: Packet, out: Link | None = None) -> bool:
        at = out.name if out else link.name
        for chain in sorted((each for each in chains if each.hook != NO_HOOK), key=lambda each: each.priority):
            meets = f"nftables {NAMES[chain.family]} {chain.table}, chain {chain.name} (priority {chain.priority})"
            if not self._ours(chain):
                if not self._decides(chain):
                    continue
                self._trail.doubt(at, meets, f"rules that are not ours are not carried out here: nft list table {_place(chain)}")
                continue
            if chain.table.startswith((PREFIX, MARKS)) or chain.table in (egress_filter.NAME, *ACCESS.values()):
                if not self._guard(chain, meets, at, packet, Devices(link.index, out.index if out else 0)):
                    return False
            elif self._concerns(chain, link, out):
                self._trail.doubt(at, meets, f"its rules are a template's, and not carried out here: nft list table {_place(chain)}", OURS)
        return True

    def _guard(self, chain: NftChain, meets: str, at: str, packet: Packet, devices: Devices) -> bool:
        before = self.mark
        judged = self._rules.judge(chain, packet, devices)
        if self.mark != before:
            self._trail.passes(at, meets, f"gives it the mark {self.mark:#x}", OURS)
            return True
        way = " > ".join(judged.chains[1:])
        if judged.verdict == "drop":
            reason = judged.chains[-1].partition("-")[2] if len(judged.chains) > 1 else "promisc"
            self._trail.drops(at, meets, f"{REASONS.get(reason, reason)} ({way or reason})", OURS)
            return False
        if not judged.verdict:
            self._trail.doubt(at, meets, judged.why, OURS)
        else:
            self._trail.passes(at, meets, f"lets it pass ({way})" if way else "lets it pass", OURS)
        return True

    def _ours(self, chain: NftChain) -> bool:
        there = self._view.nft_table(chain.family, chain.table)
        return there is not None and there.ours

    def _concerns(self, chain: NftChain, link: Link, out: Link | None) -> bool:
        """Whether a chain of ours that is not the guard's looks at frames between these devices: its set of members says so."""
        members = {element.key[:4] for element in self._view.nft_elements(chain.family, chain.table, frozenset({MEMBERS}))}
        return any(each is not None and each.index.to_bytes(4, byteorder) in members for each in (link, out))


def _at(chain: NftChain, link: Link) -> bool:
    """Tell whether a chain of a device's hook is at this one; "eth*" is at all whose names begin so."""
    names = (chain.device, *chain.others)
    return any(link.name.startswith(name[:-1]) if name.endswith("*") else link.name == name for name in names)


def _place(chain: NftChain) -> str:
    return f"{NAMES[chain.family]} {chain.table}"
