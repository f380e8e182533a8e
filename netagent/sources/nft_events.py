"""What nf_tables tells (linux/netfilter/nf_tables.h, NFNLGRP_NFTABLES): what was taken out of its tables, and put in.

`nft flush ruleset`, the first line of Debian's nftables.conf, comes as one message for each thing that goes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from struct import error
from sys import byteorder

from netagent.events import INDEX, NAME, TABLE, Changed, Event, Gone, Mark, Overrun
from netagent.sources.listener import Listener, Lost
from netcommon.host.api.nftables import MARK
from netcommon.host.nftables import decode as nfdecode
from netcommon.host.nftables.encode import (
    DELCHAIN,
    DELRULE,
    DELSET,
    DELSETELEM,
    DELTABLE,
    NEWCHAIN,
    NEWRULE,
    NEWSETELEM,
    NEWTABLE,
    SUBSYSTEM,
)
from netcommon.host.rtnetlink.attributes import MalformedError
from netcommon.operations.guard.table import index_of

SOURCE = "nftables"
NETLINK_NETFILTER = 12
GROUP = 7  #: NFNLGRP_NFTABLES
AT_ONCE = 1024  #: datagrams that are read at a time

GONE = frozenset({DELTABLE, DELCHAIN, DELRULE, DELSET, DELSETELEM})
TABLES_OF_OURS = MARK.encode() + b"-"  #: what all their names begin with


class NftEvents(Listener):
    """A subscription to nf_tables in the caller's network namespace. Raises HostRefused where the kernel has none.

    ``own``: the numbers of the sockets whose changes are left out, since who makes them looks at them too (netagent.reconcile.workers).
    """

    def __init__(self, own: Container[int] = ()) -> None:
        super().__init__(NETLINK_NETFILTER, (GROUP,))
        self._own = own

    def read(self) -> list[Event]:
        """What has happened since it was last read, a part of it where it is much. What is not about tables of ours is left out."""
        found: dict[Event, None] = {}  # the many messages of one change say the same
        try:
            for kind, _flags, body in self.messages(AT_ONCE, self._own):
                if kind >> 8 != SUBSYSTEM or TABLES_OF_OURS not in body:
                    continue
                what = kind & 0xFF
                try:
                    for mark in _marks(what, body):
                        found[Gone((mark,)) if what in GONE else Changed((mark,))] = None
                except (MalformedError, error, IndexError):
                    found[Overrun(SOURCE)] = None  # what we cannot read may be about us
        except Lost:
            found[Overrun(SOURCE)] = None
        return list(found)


def _marks(what: int, body: bytes) -> Iterator[Mark]:
    """Whom a message is about."""
    if what in (NEWSETELEM, DELSETELEM):
        for element in nfdecode.elements(body):
            yield from of_element(element.key)
    elif what in (NEWRULE, DELRULE):
        rule = nfdecode.rule(body)
        yield of_chain(body[0], rule.table, rule.chain)
    elif what in (NEWCHAIN, DELCHAIN):
        chain = nfdecode.chain(body)
        yield of_chain(body[0], chain.table, chain.name)
    elif what in (NEWTABLE, DELTABLE):  # new, or made dormant
        yield TABLE, (body[0], nfdecode.table(body).name)
    elif what == DELSET:
        yield TABLE, (body[0], nfdecode.set_name(body)[0])


def of_element(key: bytes) -> Iterator[Mark]:
    """Mark the NIC that an element of a set is about."""
    yield INDEX, int.from_bytes(key[:4], byteorder)
    name = key.rstrip(b"\0")
    if 0 < len(name) < 16 and b"\0" not in name:
        yield NAME, name.decode("utf-8", "surrogateescape")


def of_chain(family: int, table: str, chain: str) -> Mark:
    """Mark one NIC, if a chain is its own, else all who need the table."""
    index = index_of(chain)
    return (INDEX, index) if index else (TABLE, (family, table))
