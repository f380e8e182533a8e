"""An nftables table with constant rules, which NICs share: each has elements in its sets, and nothing else of its own there."""

from __future__ import annotations

from netcommon.host.api.nftables import ARP, BRIDGE, INET, MARK, NETDEV, NO_HOOK, Clear, Drop, NftChain, NftRule, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.expressions import RETURN, verdict
from netcommon.operations.base import Operation, replaced
from netcommon.operations.link import device_link, marked
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from netcommon.host.api.host import View
    from netcommon.host.api.nftables import NftElement, NftSet, NftTable, Step
    from netcommon.host.api.requests import Request

FAMILIES = {INET: "inet", ARP: "arp", NETDEV: "netdev", BRIDGE: "bridge"}


def own_table(view: View, family: int, name: str) -> NftTable | None:
    """Give the table of this name, None where there is none. Raises HostRefused where it is not ours."""
    there = view.nft_table(family, name)
    if there is not None and not there.ours:
        words = f"{FAMILIES[family]} {name}"
        raise HostRefused(f"nftables table {words} is not ours", f"nft delete table {words}")
    return there


def own_elements(view: View, family: int, name: str, index: bytes, sets: frozenset[str]) -> Sequence[NftElement]:
    """Give the elements of a device, by its index, in these sets of a table of ours; another one of its name has none."""
    there = view.nft_table(family, name)
    return view.nft_elements_of(family, name, index, sets) if there is not None and there.ours else []


class Contents(NamedTuple):
    """What such a table holds, but for the NICs' elements."""

    table: NftTable
    sets: Sequence[NftSet]
    chains: Sequence[NftChain]  #: in the order in which they are made
    rules: Sequence[NftRule]  #: those of a chain in their order


#: So many tables are kept as they were made last.
KEPT = 32

_made: dict[tuple[str, Operation], tuple[Step, ...]] = {}
_held: dict[tuple[str, Operation], Contents] = {}


class SharedTable(Operation, Protocol):
    """The table, made by the first NIC that needs it, removed by the last one's down.

    For a NIC that is new a table that has its chain LAYOUT is taken for whole; ``check`` compares every rule. A kind's fields are
    ``device``, and ``now``, which ``resolve`` fills in: whether there is nothing to do.
    """

    CHOSEN: ClassVar[frozenset[str]] = frozenset({"now"})
    BEFORE: ClassVar[frozenset[str]] = frozenset()
    PURPOSE: ClassVar[str]  #: whose rules they are, in words
    WITHOUT: ClassVar[str]  #: how an administrator does without it
    #: A chain with one rule that nothing leads to, which only a table of today's rules and sets has, and none that has been flushed.
    LAYOUT: ClassVar[str] = "layout-1"
    device: str
    now: bool

    def place_of(self) -> tuple[int, str]:
        """The table's family and name, without making what it holds."""
        ...

    def contents(self) -> Contents:
        """All of it."""
        ...

    def common(self) -> bool:
        return True

    def shared(self) -> tuple[str, ...]:
        return (f"nft-{self.place_of()[1]}",)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        family, name = self.place_of()
        link, chain = device_link(view, self.device), view.nft_chain(family, name, self.LAYOUT)
        now = chain is not None and chain.comment == MARK and not chain.empty
        if not now:
            own_table(view, family, name)
        return [replaced(self, now=now and not (marked(link) and self.differs(view)))]

    def apply(self) -> Sequence[Request]:
        if self.now:
            return []
        # what it holds takes longer to make than all else that is done for a NIC, and is the same for each: a resident process keeps it
        key = (self.KIND, replaced(self, device=""))
        steps = _made.get(key)
        if steps is None:
            if len(_made) >= KEPT:
                _made.clear()
            steps = _made[key] = self._steps()
        return [self._change(*steps)]

    def _steps(self) -> tuple[Step, ...]:
        table, sets, chains, rules = self.contents()
        # a base chain that somebody has hooked elsewhere would stay so
        hooked = (Drop(chain) for chain in chains if chain.hook != NO_HOOK)
        chains = (NftChain(*table[:2], self.LAYOUT, comment=MARK), *chains)
        rules = (NftRule(*table[:2], self.LAYOUT, verdict(RETURN)), *rules)
        return (Put(table), *hooked, *map(Put, sets), *map(Put, chains), *map(Clear, chains), *map(Put, rules))

    def differs(self, view: View) -> str:
        family, name = self.place_of()
        there = view.nft_table(family, name)
        if there is None:
            return "the table is gone"
        if not there.ours:
            return "the table is not ours"
        if there.dormant:
            return "the table is dormant"
        _, _, chains, rules = self._kept_contents()
        names = {chain.name for chain in chains}
        now = [rule for rule in view.nft_rules(family, name) if rule.chain in names]
        if sorted(now, key=_chain) != sorted(rules, key=_chain):
            return "its rules are not as we made them"
        for chain in chains:
            if chain.hook != NO_HOOK and view.nft_chain(family, name, chain.name) != chain:
                return f"chain {chain.name} is not hooked as we made it"
        return ""

    def _kept_contents(self) -> Contents:
        """Give ``contents``, which is the same for each NIC: a repair compares it several times."""
        key = (self.KIND, replaced(self, device="", now=False))
        held = _held.get(key)  # once: another thread may clear them
        if held is None:
            if len(_held) >= KEPT:
                _held.clear()
            held = _held[key] = self.contents()
        return held

    def revert(self, view: View) -> Sequence[Request]:
        there = view.nft_table(*self.place_of())
        return [] if there is None or not there.ours else [self._change(Drop(there))]

    def _change(self, *steps: Step) -> NftChange:
        return NftChange(f"{self.PURPOSE} of {self.device}", steps, self.WITHOUT)

    def _words(self) -> str:
        family, name = self.place_of()
        return f"{FAMILIES[family]} {name}"

    def identity(self) -> str:
        return f"{self.KIND} {self.place_of()[1]}"

    def place(self) -> str:
        return self.identity()

    def describe(self) -> str:
        return f"nft: table {self._words()} with the {self.PURPOSE}"

    def undo(self) -> str:
        return f"nft delete table {self._words()}, with the last NIC that needs it"


def _chain(rule: NftRule) -> str:
    return rule.chain
