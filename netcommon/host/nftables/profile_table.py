"""The tables of a firewall profile: what is around the template's rules, and the fingerprint of what the kernel made of it all."""

from __future__ import annotations

from netcommon.host.api.nftables import BRIDGE, INET, MARK
from netcommon.host.rtnetlink.attributes import MalformedError, attributes, each, string
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.host import View
    from netcommon.host.api.nftables import NftChain, NftElement, NftRule

FAMILIES = {BRIDGE: "bridge", INET: "inet"}
COMMENT = f"{MARK} firewall"
MEMBERS = "nics"  #: the set of the devices, by index, that the rules are for
RULES = "rules"
MADE = "made"  #: an empty chain whose comment is the fingerprint
OWN = "-own"  #: ends the name of the inet table that goes with one of family bridge
#: The bit of the packet mark that says that the node itself made the packet: from the end of inet's postrouting hook on, where other
#: rules have read the mark already, until the bridge's output hook, which cannot tell it otherwise from what the node forwards.
OWN_MARK = 0x80000000
HOOKS = {"prerouting": 0, "forward": 2, "output": 3, "postrouting": 4}
PRIORITY, LAST = -10, 1000
#: Just before connection tracking (NF_IP_PRI_CONNTRACK, -200): after all that others have said of it.
NEED, LEAVE = -202, -201

#: Devices with a profile of an earlier version, whose table does not say by itself what it needs.
OLDER = "older"
#: What devices with a profile send from, of which answers are tracked too: learned from what they send. FULL: there is more than fits,
#: by family, or on bridges by protocol, of which all is tracked then.
MACS, ADDRESSES4, ADDRESSES6, FULL, FULL_BRIDGED = "macs", "addresses4", "addresses6", "full", "full-bridged"
LEARNED = frozenset({MEMBERS, OLDER, MACS, ADDRESSES4, ADDRESSES6, FULL, FULL_BRIDGED})
#: As long as the kernel keeps a connection on which nothing is said (nf_conntrack_tcp_timeout_established).
_SIZE = "flags dynamic,timeout; size 8192; timeout 5d"
_SETS = {
    MEMBERS: "type iface_index",
    OLDER: "type iface_index",
    MACS: f"type ether_addr; {_SIZE}",
    ADDRESSES4: f"type ipv4_addr; {_SIZE}",
    ADDRESSES6: f"type ipv6_addr; {_SIZE}",
    FULL: "type nf_proto; flags dynamic,timeout; size 16; timeout 1h",
    FULL_BRIDGED: "type ether_type; flags dynamic,timeout; size 16; timeout 1h",
}
#: A table that is new knows no address yet, and connections may be older than it: so it begins as one that is full.
_BEGUN = {FULL: "ipv4, ipv6", FULL_BRIDGED: "ip, ip6"}
#: Chains that say what must be tracked, and those that leave out all else.
NEEDED, NEEDED_OWN, UNTRACKED, UNTRACKED_OWN = "needed", "needed-own", "untracked", "untracked-own"


class Chain(NamedTuple):
    """A chain: its rules in the words of nft(8), and its hook, where it has one."""

    name: str
    rules: tuple[str, ...]
    hook: str = ""
    priority: int = 0


class Layout(NamedTuple):
    """A table."""

    family: int
    name: str
    chains: tuple[Chain, ...]
    sets: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  #: chains that another layout of it has


def tracks(rules: tuple[str, ...]) -> bool:
    """Say if the rules of a profile look at connections, for which the kernel then tracks all that it is not told to leave."""
    return any(word == "ct" for rule in rules for word in rule.split())


def layouts(family: int, table: str, rules: tuple[str, ...], alone: bool = False) -> tuple[Layout, ...]:
    """The tables of a profile; the first has the set and the rules. ``alone``: no rules but ours need connection tracking.

    What the node routes or translates into a bridge passes the bridge's output hook alone, as what it sends itself does. The second
    table marks the latter: it has come in by no device (multicast: and some process has sent it, for what the node forwards of that
    shows no device either). Whatever bears no mark is filtered.
    """
    made = [Chain(RULES, rules), Chain("forward", (f"oif @{MEMBERS} goto {RULES}",), "forward", PRIORITY)]
    if family != BRIDGE:
        routed = _tracking(family, tracks(rules), alone, (MEMBERS, OLDER))
        return (Layout(family, table, (*made, *routed[0]), (MEMBERS, *routed[1]), routed[2]),)
    forwarded = f"oif @{MEMBERS} meta protocol {{ ip, ip6 }} meta mark & {OWN_MARK:#x} == 0 goto {RULES}"
    made.append(Chain("output", (forwarded,), "output", PRIORITY))
    kinds = "ip daddr != 224.0.0.0/4", "ip6 daddr != ff00::/8", "meta skuid >= 0"
    marking = tuple(f"iif 0 {kind} meta mark set meta mark | {OWN_MARK:#x}" for kind in kinds)
    own = Chain("own", marking, "postrouting", LAST)
    bridged, behind = (_tracking(kind, tracks(rules), alone, sets) for kind, sets in ((BRIDGE, (MEMBERS, OLDER)), (INET, (OLDER,))))
    return (
        Layout(family, table, (*made, *bridged[0]), (MEMBERS, *bridged[1]), bridged[2]),
        Layout(INET, table + OWN, (own, *behind[0]), behind[1], behind[2]),
    )


def _tracking(
    family: int, wanted: bool, alone: bool, devices: tuple[str, ...]
) -> tuple[tuple[Chain, ...], tuple[str, ...], tuple[str, ...]]:
    """The chains that leave out of connection tracking what no profile needs, their sets, and the chains that are not to be there.

    Needed is what devices with a profile send, and what is for where they have sent from. Such a packet is given connection tracking
    zone 0, which is the default: that has no effect but that ``notrack``, in this table or in that of another profile, leaves it alone.
    """
    own = () if family == BRIDGE else (NEEDED_OWN, UNTRACKED_OWN)
    if not wanted:
        return (), (), (NEEDED, UNTRACKED, *own)
    keep = "ct zone set 0"
    full, kind = (FULL_BRIDGED, "protocol") if family == BRIDGE else (FULL, "nfproto")
    known = {MACS: "ether"} if family == BRIDGE else {ADDRESSES4: "ip", ADDRESSES6: "ip6"}
    answers = (*(f"{header} daddr @{name} {keep}" for name, header in known.items()), f"meta {kind} @{full} {keep}")
    sources = [*((name, f"{header} saddr") for name, header in known.items()), (full, f"meta {kind}")]
    said = ["ct state untracked accept"]
    said += [f"iif @{device} update @{name} {{ {key} }} {keep} accept" for device in devices for name, key in sources]
    if family == INET:  # a bridge has begun to track it
        said += [f"ct state new,established,related update @{name} {{ {key} }} accept" for name, key in sources]
    chains = [Chain(NEEDED, (*said, *answers), "prerouting", NEED)]
    if family == INET:
        chains.append(Chain(NEEDED_OWN, answers, "output", NEED))
    leaving = [Chain(UNTRACKED, ("notrack",), "prerouting", LEAVE)]
    if family == INET:
        leaving.append(Chain(UNTRACKED_OWN, ("notrack",), "output", LEAVE))
    sets = OLDER, *known, full
    return (*chains, *(leaving if alone else ())), sets, () if alone else tuple(chain.name for chain in leaving)


def text_of(family: int, table: str, rules: tuple[str, ...], alone: bool = False, older: tuple[int, ...] = ()) -> str:
    """The transaction in the words of nft(8): everything is made anew, but the sets and what is in them.

    ``older``: the devices, by index, that are in tables of earlier versions.
    """
    text = ""
    for layout in layouts(family, table, rules, alone):
        where = f"{FAMILIES[layout.family]} {layout.name}"
        first = layout.name == table
        names = [*(chain.name for chain in layout.chains), *layout.without, *([MADE] if first else [])]
        text += f'add table {where} {{ comment "{COMMENT}"; }}\n'
        text += "".join(f"add chain {where} {name}\n" for name in names) + f"flush table {where}\n"
        text += "".join(f"delete chain {where} {name}\n" for name in reversed(names))  # a hook of another kind goes with its chain
        text += f"table {where} {{\n" + "".join(f"  set {name} {{ {_SETS[name]}; }}\n" for name in layout.sets)
        for chain in layout.chains:
            hook = f"    type filter hook {chain.hook} priority {chain.priority}\n" if chain.hook else ""
            text += f"  chain {chain.name} {{\n{hook}" + "".join(f"    {rule}\n" for rule in chain.rules) + "  }\n"
        text += "}\n"
        text += "".join(f"add element {where} {name} {{ {_BEGUN[name]} }}\n" for name in layout.sets if name in _BEGUN)
        if older and OLDER in layout.sets:
            text += f"add element {where} {OLDER} {{ {', '.join(map(str, older))} }}\n"
    return text


def fingerprint(view: View, family: int, table: str) -> str:
    """The fingerprint of a profile's tables as they are now. Raises what the view raises."""
    there = [(layout.family, layout.name) for layout in layouts(family, table, ())]
    return fingerprint_of(
        [chain for kind, name in there for chain in view.nft_chains(kind) if chain.table == name],
        [rule for kind, name in there for rule in view.nft_rules(kind, name)],
        [element for kind, name in there for element in view.nft_elements(kind, name)],
    )


def fingerprint_of(chains: Iterable[NftChain], rules: Iterable[NftRule], elements: Iterable[NftElement]) -> str:
    """The same of these: hooks, rules in their order, and the sets that rules bring along; not what is counted or learned, nor members."""
    import hashlib

    # as earlier versions had it: their tables stay in use
    hooks = sorted((*chain[:7], *(["drops"] if chain.drops else [])) for chain in chains if chain.name != MADE)
    meant = sorted(((*rule[:3], _constant(rule.expressions)) for rule in rules), key=lambda rule: rule[:3])
    keys = sorted((each.family, each.table, each.set, each.key, each.end, each.value) for each in elements if each.set not in LEARNED)
    return hashlib.sha256(repr((hooks, meant, keys)).encode()).hexdigest()[:32]


def _constant(expressions: bytes) -> tuple[object, ...]:
    """Expressions without what the kernel counts in them; what does not come in its form stands for itself."""
    try:
        found = [attributes(one) for _, one in each(expressions)]
        return tuple((name := string(one.get(1)), _kept(name, one.get(2, b""))) for one in found)
    except MalformedError:
        return (expressions,)


def _kept(name: str, data: bytes) -> bytes:
    if name in ("counter", "last"):
        return b""
    if name == "quota":
        found = attributes(data)
        return found.get(1, b"") + bytes(byte & 1 for byte in found.get(2, b""))  # how much, and whether over it or until
    return data
