"""What nftables holds, as values (nft(8), linux/netfilter/nf_tables.h): tables, chains, sets, elements, and the steps that change them.

The steps of one ChangeNft request are one transaction: all of them take effect at once, or none.
"""

from __future__ import annotations

from runtime.typed import NamedTuple

#: Families (NFPROTO_*).
INET, ARP, NETDEV, BRIDGE = 1, 3, 5, 7

#: Hooks: of inet (NF_INET_*), of netdev (NF_NETDEV_*), of arp (NF_ARP_*), and of bridge (NF_BR_*).
INET_PREROUTING, INET_INPUT, INET_FORWARD, INET_POSTROUTING = 0, 1, 2, 4
INGRESS, EGRESS = 0, 1
ARP_IN, ARP_OUT = 0, 1
BRIDGE_INPUT, BRIDGE_OUTPUT, BRIDGE_POSTROUTING = 1, 3, 4
NO_HOOK = -1

#: What begins the comment of every table of ours.
MARK = "netcommon"

#: Types of the fields of a set's key, as nft(8) numbers them (its TYPE_*): they tell it how to print them.
LLADDR_TYPE, IPV4_TYPE, IPV6_TYPE, ETHER_TYPE, PROTOCOL_TYPE, SERVICE_TYPE, IFINDEX_TYPE, IFNAME_TYPE = 6, 7, 8, 9, 12, 13, 20, 41


class NftTable(NamedTuple):
    """A table; ours bear MARK at the beginning of their comment."""

    family: int
    name: str
    comment: str = ""
    dormant: bool = False  #: read only: nothing passes its rules

    @property
    def ours(self) -> bool:
        return self.comment.partition(" ")[0] == MARK


class NftChain(NamedTuple):
    """A chain. A base chain has a hook, and accepts what its rules do not decide; ``device``: netdev's alone."""

    family: int
    table: str
    name: str
    hook: int = NO_HOOK
    priority: int = 0
    device: str = ""
    comment: str = ""
    drops: bool = False  #: read only: drops what its rules do not decide
    empty: bool = False  #: read only: it has no rules, and nothing leads to it
    others: tuple[str, ...] = ()  #: read only: further devices of netdev's; "eth*": all whose names begin so


class NftRule(NamedTuple):
    """A rule: its expressions as the kernel writes them (netcommon.host.nftables.expressions makes them)."""

    family: int
    table: str
    chain: str
    expressions: bytes


class NftSet(NamedTuple):
    """A set. ``key``: type and length in bytes of each field, which begins at a multiple of four bytes.

    ``interval``: its elements are ranges. ``counter``: each element counts the packets that match it. ``limit``: each element has a
    limit of its own, and a packet beyond it does not match. ``timeout``: rules add its elements, which stay for so many milliseconds;
    there are at most ``size``.
    """

    family: int
    table: str
    name: str
    key: tuple[tuple[int, int], ...]
    interval: bool = False
    counter: bool = False
    value: tuple[int, int] = (0, 0)  #: of a map: type and length of what a key leads to
    timeout: int = 0
    size: int = 0
    limit: bool = False


class NftElement(NamedTuple):
    """An element of a set; ``end`` is the last key of a range. ``packets`` is read only. ``limit``: so many packets match in a minute."""

    family: int
    table: str
    set: str
    key: bytes
    end: bytes = b""
    packets: int = 0
    value: bytes = b""  #: of a map
    limit: int = 0


class Put(NamedTuple):
    """Adds a thing. What is there already stays as it is; a rule is always added, at the end of its chain."""

    thing: NftTable | NftChain | NftRule | NftSet | NftElement


class Drop(NamedTuple):
    """Removes a thing; a table with all that is in it. What is gone already is no error."""

    thing: NftTable | NftChain | NftElement


class Clear(NamedTuple):
    """Removes all rules of a chain."""

    chain: NftChain


Step = Put | Drop | Clear
