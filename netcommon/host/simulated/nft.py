"""The nftables of a simulated node: tables as values, changed in transactions, with the kernel's errors."""

from __future__ import annotations

import errno

from netcommon.host.api.host import DONE
from netcommon.host.api.nftables import IFINDEX_TYPE, NO_HOOK, Clear, Drop, NftChain, NftRule, NftSet, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.client import refused
from netcommon.host.nftables.profile_table import COMMENT, HOOKS, MADE, MEMBERS, fingerprint_of, layouts
from netcommon.host.rtnetlink.socket import Reply
from netcommon.host.simulated.events import ALTERED, GONE
from netcommon.host.simulated.events import MADE as NEW
from netcommon.host.simulated.kernel import Refused
from runtime.typed import TYPE_CHECKING, lru_cache

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.host import Answer
    from netcommon.host.api.nftables import NftElement, Step
    from netcommon.host.api.requests import LoadRules
    from netcommon.host.simulated.events import Telling, Thing

Place = tuple[int, str]


class Table:
    """One table and what is in it, each kind by name; the rules of a chain in their order."""

    def __init__(self, table: NftTable) -> None:
        self.table = table
        self.chains: dict[str, NftChain] = {}
        self.rules: dict[str, tuple[NftRule, ...]] = {}
        self.sets: dict[str, NftSet] = {}
        self.elements: dict[tuple[str, bytes], NftElement] = {}

    def copy(self) -> Table:
        made = Table(self.table)
        made.chains, made.rules, made.sets, made.elements = dict(self.chains), dict(self.rules), dict(self.sets), dict(self.elements)
        return made

    def seen(self, name: str) -> NftChain:
        """The chain as the kernel shows it."""
        word = name.encode() + b"\0"
        used = self.rules.get(name) or any(word in rule.expressions for rules in self.rules.values() for rule in rules)
        return self.chains[name]._replace(empty=not used)

    def at(self, sought: NftElement) -> NftElement | None:
        """The element of its key; of a set of ranges any in which the key lies, field by field. Raises Refused."""
        there = self.sets.get(sought.set)
        if there is None:
            raise Refused(errno.ENOENT)
        key = _fields(there, sought.key)
        if not there.interval:
            return self.elements.get((sought.set, sought.key))
        for each in self.elements.values():
            if each.set == sought.set and all(map(_between, _fields(there, each.key), key, _fields(there, each.end or each.key))):
                return each
        return None


def _fields(there: NftSet, key: bytes) -> list[bytes]:
    """A key in its parts, each padded. Raises Refused where it has another length."""
    found, offset = [], 0
    for _, size in there.key:
        end = offset + (size + 3) & ~3
        found.append(key[offset:end])
        offset = end
    if offset != len(key):
        raise Refused(errno.EINVAL)
    return found


def _between(first: bytes, sought: bytes, last: bytes) -> bool:
    return first <= sought <= last


class Ruleset:
    """All tables. ``there``: whether the kernel has nf_tables. ``device`` tells whether there is one of a name.

    ``by_name``: a base chain of netdev waits for a device of its name (Linux 6.16 and later); in earlier kernels it needs one, and
    goes with it. What rules say is not understood: neither that they need a set or a chain, nor what they count.
    """

    def __init__(self, device: Callable[[str], object], tell: Telling) -> None:
        self.there = True
        self.by_name = False
        self.tables: dict[Place, Table] = {}
        self._device, self._tell = device, tell
        self._done: list[tuple[str, Thing]] = []  #: by the transaction that is at work: told when it is through

    def execute(self, request: NftChange) -> Answer:
        """See netcommon.host.nftables.client."""
        if not self.there:
            return refused(request, Reply(errno.EOPNOTSUPP))
        self.look()
        before = {place: table.copy() for place, table in self.tables.items()}
        self._done.clear()
        try:
            for step in request.steps:
                self._do(step)
        except Refused as problem:
            self.tables = before
            return refused(request, Reply(problem.number, problem.text), whole=False)
        for how, thing in self._done:
            self._tell(how, thing)
        return DONE

    def everything(self) -> list[object]:
        """All that is there, for comparison."""
        self.look()
        found: list[object] = []
        for _place, each in sorted(self.tables.items()):
            chains, sets = sorted(each.chains.values()), sorted(each.sets.values())
            found.append((each.table, chains, sets, sorted(each.rules.items()), sorted(each.elements.values())))
        return found

    def flush(self) -> None:
        """What ``nft flush ruleset`` does."""
        for place in list(self.tables):
            for thing in _within(self.tables.pop(place)):
                self._tell(GONE, thing)

    def look(self) -> None:
        """A base chain of netdev goes with its device."""
        if self.by_name:
            return
        for table in self.tables.values():
            for chain in list(table.chains.values()):
                if chain.device and not self._device(chain.device):
                    del table.chains[chain.name]
                    table.rules.pop(chain.name, None)

    def rename(self, name: str, new: str) -> None:
        """A base chain of netdev stays with its device; one that is by name waits for the next device of that name."""
        for table in self.tables.values() if not self.by_name else ():
            for chain in table.chains.values():
                if chain.device == name:
                    table.chains[chain.name] = chain._replace(device=new)

    def _do(self, step: Step) -> None:
        if isinstance(step, Clear):
            table = self._at(step.chain.family, step.chain.table)
            if step.chain.name not in table.chains:
                raise Refused(errno.ENOENT)
            self._clear(table, step.chain.name)
        elif isinstance(step, Put):
            self._put(step.thing)
        else:
            self._drop(step.thing)

    def _at(self, family: int, name: str) -> Table:
        table = self.tables.get((family, name))
        if table is None:
            raise Refused(errno.ENOENT)
        return table

    def _put(self, thing: NftTable | NftChain | NftRule | NftSet | NftElement) -> None:
        if isinstance(thing, NftTable):
            if (thing.family, thing.name) not in self.tables:
                self.tables[thing.family, thing.name] = Table(thing)
                self._done.append((NEW, thing))
            return
        table = self._at(thing.family, thing.table)
        if isinstance(thing, NftChain):
            if thing.device and not self.by_name and not self._device(thing.device):
                raise Refused(errno.ENOENT)
            there = table.chains.setdefault(thing.name, thing)
            if thing.hook != NO_HOOK and there.hook == NO_HOOK:
                raise Refused(errno.EOPNOTSUPP)
            if thing.hook != NO_HOOK and there[3:6] != thing[3:6]:
                raise Refused(errno.EEXIST)
            self._done.append((ALTERED, there))
        elif isinstance(thing, NftRule):
            if thing.chain not in table.chains:
                raise Refused(errno.ENOENT)
            table.rules[thing.chain] = _behind(table.rules.get(thing.chain, ()), thing)
            self._done.append((NEW, thing))
        elif isinstance(thing, NftSet):
            if thing.name not in table.sets:
                self._done.append((NEW, thing))
            if table.sets.setdefault(thing.name, thing) != thing:
                raise Refused(errno.EEXIST)
        else:
            held = table.at(thing)
            if held is None:
                held = table.elements[thing.set, thing.key] = thing
                self._done.append((NEW, thing))
            if (held.key, held.end, held.value) != (thing.key, thing.end, thing.value):
                raise Refused(errno.EEXIST)
            if thing.end and table.at(thing._replace(key=thing.end)) is not held:
                raise Refused(errno.EEXIST)

    def _drop(self, thing: NftTable | NftChain | NftElement) -> None:
        if isinstance(thing, NftTable):
            gone = self.tables.pop((thing.family, thing.name), None)
            self._done += [(GONE, each) for each in _within(gone)] if gone is not None else []
            return
        table = self.tables.get((thing.family, thing.table))
        if table is None:
            return
        if isinstance(thing, NftChain):
            self._clear(table, thing.name)
            chain = table.chains.pop(thing.name, None)
            if chain is not None:
                self._done.append((GONE, chain))
        elif thing.set in table.sets:
            held = table.at(thing)
            if held is not None:
                del table.elements[held.set, held.key]
                self._done.append((GONE, held))

    def _clear(self, table: Table, chain: str) -> None:
        self._done += [(GONE, rule) for rule in table.rules.pop(chain, ())]


@lru_cache(4096)
def _behind(rules: tuple[NftRule, ...], rule: NftRule) -> tuple[NftRule, ...]:
    """Give the rules of a chain to which one is added. Those of many nodes in one process are the same: each is there once."""
    return (*rules, rule)


def _within(table: Table) -> list[NftRule | NftSet | NftChain | NftTable]:
    """List what the kernel tells of when a table goes with all that is in it: elements go with their set."""
    rules = [rule for rules in table.rules.values() for rule in rules]
    return [*rules, *table.sets.values(), *table.chains.values(), table.table]


class RulesAsValues:
    """Tables that templates write (netcommon.host.nftables.libnftables): each rule's words stand for what they mean."""

    def __init__(self, ruleset: Ruleset) -> None:
        self._ruleset = ruleset

    def execute(self, request: LoadRules) -> Answer:
        """Makes the tables, the set and the chains; what is in the set stays."""
        steps: list[Step] = []
        made = layouts(*request[:4])
        for layout in made:
            where = layout.family, layout.name
            chains = [NftChain(*where, chain.name, HOOKS.get(chain.hook, NO_HOOK), chain.priority) for chain in layout.chains]
            without = [NftChain(*where, name) for name in layout.without]
            steps += [Put(NftTable(*where, COMMENT)), *map(Drop, [*chains, *without]), *map(Put, chains)]
            steps += [Put(NftRule(*where, chain.name, rule.encode())) for chain in layout.chains for rule in chain.rules]
        where = request.family, request.table
        steps += [Put(NftSet(*where, MEMBERS, ((IFINDEX_TYPE, 4),))), Drop(NftChain(*where, MADE))]
        answer = self._ruleset.execute(NftChange(f"table {request.table}", tuple(steps)))
        if not answer.ok:
            return answer
        tables = [self._ruleset.tables[layout.family, layout.name] for layout in made]
        chains = [chain for table in tables for chain in table.chains.values()]
        rules = [rule for table in tables for there in table.rules.values() for rule in there]
        elements = [element for table in tables for element in table.elements.values()]
        note = NftChain(*where, MADE, comment=fingerprint_of(chains, rules, elements))
        return self._ruleset.execute(NftChange(f"table {request.table}", (Put(note),)))
