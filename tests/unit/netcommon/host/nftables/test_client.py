"""Transactions as the client sends them: none that is known to fail, and the messages of a whole table encoded once."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from netcommon.host.api.nftables import BRIDGE, BRIDGE_POSTROUTING, Clear, Drop, NftChain, NftRule, NftTable, Put, Step
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables import client, encode
from netcommon.host.nftables.expressions import DROP, verdict
from netcommon.host.rtnetlink.attributes import Encoded
from netcommon.host.rtnetlink.socket import Reply
from netcommon.operations.guard.table import EVERY_TABLE, GuardTable

TABLE = NftTable(BRIDGE, "t", "netcommon")
CHAIN = NftChain(BRIDGE, "t", "out", BRIDGE_POSTROUTING, -300)
RULE = NftRule(BRIDGE, "t", "out", verdict(DROP))
WHOLE: tuple[Step, ...] = (Put(TABLE), Drop(CHAIN), Put(CHAIN), Clear(CHAIN), Put(RULE))


class Kernel(client.Nfnetlink):
    """Has these chains, and refuses a transaction that drops another one."""

    def __init__(self, *chains: NftChain) -> None:
        super().__init__(1.0)
        self.chains = {encode.get_chain(*chain[:3]) for chain in chains}
        self.dropped = {message.body for message, _ in encode.steps([Drop(chain) for chain in chains])}
        self.sent: list[list[Encoded]] = []

    def get(self, request: Encoded) -> bytes | Reply:
        return b"" if request in self.chains else Reply(errno.ENOENT)

    def transact(self, messages: Sequence[Encoded]) -> list[tuple[int, Reply]]:
        self.sent.append([*messages])
        drops = [place for place, each in enumerate(messages) if each.type & 0xFF == encode.DELCHAIN]
        return [(place, Reply(errno.ENOENT)) for place in drops if messages[place].body not in self.dropped]


def carried(kernel: Kernel, *changes: Sequence[Step]) -> list[list[int]]:
    """Give the kinds of messages of each transaction that the changes took."""
    tables = client.Nftables(1.0)
    tables.netlink = kernel
    for steps in changes:
        assert tables.execute(NftChange("a table", tuple(steps))).ok
    return [[each.type & 0xFF for each in sent] for sent in kernel.sent]


MADE = [encode.NEWTABLE, encode.NEWCHAIN, encode.DELRULE, encode.NEWRULE]


def test_a_new_table_is_one_transaction() -> None:
    """The chain that would be hooked anew is not there: the kernel would take ten milliseconds to undo what fails over it."""
    assert carried(Kernel(), WHOLE) == [MADE]


def test_a_chain_that_is_there_is_dropped_and_made_anew() -> None:
    assert carried(Kernel(CHAIN), WHOLE) == [[MADE[0], encode.DELRULE, encode.DELCHAIN, *MADE[1:]]]


def test_what_is_dropped_later_is_tried() -> None:
    """A change may have put it there by then."""
    steps = Put(TABLE), Put(CHAIN), Drop(CHAIN), Put(CHAIN)
    assert carried(Kernel(), steps)[0] == [encode.NEWTABLE, encode.NEWCHAIN, encode.DELRULE, encode.DELCHAIN, encode.NEWCHAIN]


def test_messages_of_a_whole_table_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the same steps; not those of other ones that are equal to them, as named tuples of one content are."""
    asked: list[int] = []
    kernel, steps = Kernel(), encode.steps

    def counted(wanted: Sequence[Step]) -> list[tuple[Encoded, int]]:
        asked.append(len(wanted))
        return steps(wanted)

    monkeypatch.setattr(encode, "steps", counted)
    chains = [CHAIN._replace(name=f"c{number}") for number in range(client.LARGE)]
    many: list[Step] = [Put(TABLE), *(Put(chain) for chain in chains)]
    others: list[Step] = [*many[:-1], Clear(chains[-1])]
    assert many == others
    made = carried(kernel, many, [*many], others)
    assert made[0] == made[1] != made[2]
    assert asked == [client.LARGE + 1, client.LARGE + 1]


def test_the_spoof_guards_tables_are_all_kept_and_nothing_of_many_nics(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put back for many NICs at once, and their tables again and again: a socket of the agent's lives as long as that."""
    asked: list[int] = []
    steps = encode.steps

    def counted(wanted: Sequence[Step]) -> list[tuple[Encoded, int]]:
        asked.append(len(wanted))
        return steps(wanted)

    monkeypatch.setattr(encode, "steps", counted)
    made = client.Nftables(1)
    tables = [list(change.steps) for name in EVERY_TABLE for change in GuardTable("tap0", name).apply() if isinstance(change, NftChange)]
    for _ in range(3):
        for number in range(20):
            made._encoded([Put(CHAIN._replace(name=f"{number}-{each}")) for each in range(10 * client.LARGE)])
        for table in tables:
            made._encoded(table)
    assert asked == [*[10 * client.LARGE] * 20, *map(len, tables), *[10 * client.LARGE] * 40]
    for number in range(100):
        made._encoded([Put(TABLE._replace(name=f"t{number}")), *(Put(CHAIN._replace(name=f"c{each}")) for each in range(2 * client.LARGE))])
    assert sum(len(known) for known, _pairs in made._kept) <= client.MOST
