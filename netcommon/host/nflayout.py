"""The tables of a firewall profile: what is around the template's rules, and the fingerprint of what the kernel made of it all."""

from __future__ import annotations

from netcommon.host.attributes import MalformedError, attributes, each, string
from netcommon.host.nftables import BRIDGE, INET, MARK
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.base import View
    from netcommon.host.nftables import NftChain, NftElement, NftRule

FAMILIES = {BRIDGE: "bridge", INET: "inet"}
COMMENT = f"{MARK} firewall"
MEMBERS = "nics"  #: the set of the devices, by index, that the rules are for
RULES = "rules"
MADE = "made"  #: an empty chain whose comment is the fingerprint
OWN = "-own"  #: ends the name of the inet table that goes with one of family bridge
#: The bit of the packet mark that says that the node itself made the packet: from the end of inet's postrouting hook on, where other
#: rules have read the mark already, until the bridge's output hook, which cannot tell it otherwise from what the node forwards.
OWN_MARK = 0x80000000
HOOKS = {"forward": 2, "output": 3, "postrouting": 4}
PRIORITY, LAST = -10, 1000


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


def layouts(family: int, table: str, rules: tuple[str, ...]) -> tuple[Layout, ...]:
    """The tables of a profile; the first has the set and the rules.

    What the node routes or translates into a bridge passes the bridge's output hook alone, as what it sends itself does. The second
    table marks the latter: it has come in by no device (multicast: and some process has sent it, for what the node forwards of that
    shows no device either). Whatever bears no mark is filtered.
    """
    made = [Chain(RULES, rules), Chain("forward", (f"oif @{MEMBERS} goto {RULES}",), "forward", PRIORITY)]
    if family != BRIDGE:
        return (Layout(family, table, tuple(made)),)
    forwarded = f"oif @{MEMBERS} meta protocol {{ ip, ip6 }} meta mark & {OWN_MARK:#x} == 0 goto {RULES}"
    made.append(Chain("output", (forwarded,), "output", PRIORITY))
    kinds = "ip daddr != 224.0.0.0/4", "ip6 daddr != ff00::/8", "meta skuid >= 0"
    marking = tuple(f"iif 0 {kind} meta mark set meta mark | {OWN_MARK:#x}" for kind in kinds)
    own = Chain("own", marking, "postrouting", LAST)
    return Layout(family, table, tuple(made)), Layout(INET, table + OWN, (own,))


def text_of(family: int, table: str, rules: tuple[str, ...]) -> str:
    """The transaction in the words of nft(8): everything is made anew, but the set and what is in it."""
    text = ""
    for layout in layouts(family, table, rules):
        where = f"{FAMILIES[layout.family]} {layout.name}"
        first = layout.name == table
        names = [chain.name for chain in layout.chains] + ([MADE] if first else [])
        text += f'add table {where} {{ comment "{COMMENT}"; }}\n'
        text += "".join(f"add chain {where} {name}\n" for name in names) + f"flush table {where}\n"
        text += "".join(f"delete chain {where} {name}\n" for name in reversed(names))  # a hook of another kind goes with its chain
        text += f"table {where} {{\n" + (f"  set {MEMBERS} {{\n    type iface_index\n  }}\n" if first else "")
        for chain in layout.chains:
            hook = f"    type filter hook {chain.hook} priority {chain.priority}\n" if chain.hook else ""
            text += f"  chain {chain.name} {{\n{hook}" + "".join(f"    {rule}\n" for rule in chain.rules) + "  }\n"
        text += "}\n"
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
    """The same of these: hooks, rules in their order, and the sets that rules bring along; neither members nor what was counted."""
    import hashlib

    hooks = sorted(tuple(chain) for chain in chains if chain.name != MADE)
    meant = sorted(((*rule[:3], _constant(rule.expressions)) for rule in rules), key=lambda rule: rule[:3])
    keys = sorted((each.family, each.table, each.set, each.key, each.end, each.value) for each in elements if each.set != MEMBERS)
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
