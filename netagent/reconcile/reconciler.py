"""What one record needs, and doing it: in a worker thread, from what the record and the host are like now, whatever the event said.

A NIC whose device is gone, whose hook died, or that was closing and is let go of is undone; one that is up and has drifted is mended.
A hook at work on it, which holds its lock, is never disturbed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from netagent.interfaces import NOBODY, Chronicle, Meter
from netagent.reconcile.repair_policy import RECORD, Repairs
from netcommon.host.api.host import View
from netcommon.lifecycle import execute
from netcommon.lifecycle.batch import TOGETHER, repair_together
from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import Call, Node, Outcome, about, alive
from netcommon.lifecycle.gc import FAILED, KEPT, collect
from netcommon.lifecycle.migration import arrived
from netcommon.lifecycle.reconcile import kept_up
from netcommon.lifecycle.renamed_device import drift as drift_of
from netcommon.lifecycle.renamed_device import follow, name_of
from netcommon.log import Log
from netcommon.operations.base import Operation, intent
from netcommon.operations.guard.counters import dropped
from netcommon.operations.guard.table import NicGuard
from runtime.errors import NetcommonError, TryAgain
from runtime.record import APPLYING, CHANGING, CLOSING, REVERTING, UP, Record
from runtime.store import is_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime.store import Parse

DOOR = "agent"

#: How long a lock is waited for (seconds): who holds one closes it, and that is an event.
PATIENCE = 0.2

#: The longest pause after something was busy that will not be for long (seconds).
BRIEFLY = 5.0

#: What became of a look.
NOTHING, UNDONE, MENDED, BUSY, FAILURE, REPORTED = "nothing", "undone", "mended", "busy", "failed", "reported"
OWING = "owing"  #: nothing yet: the site's scripts are owed, which may take long


#: Labels, and how many frames.
Dropped = tuple[dict[str, str], int]


class Result(NamedTuple):
    """What became of a look, and when to look again although nothing happens (monotonic seconds; 0: not)."""

    did: str
    again: float = 0.0


class Reconciler:
    """Looks at records with one node: one for each worker thread."""

    def __init__(self, node: Node, repairs: Repairs, meter: Meter, log: Log, chronicle: Chronicle = NOBODY) -> None:
        self.node, self._repairs, self._meter, self._log, self._chronicle = node, repairs, meter, log, chronicle

    def keys(self) -> list[str]:
        """The keys of all records."""
        return [name[:-5] for name in self.node.store.folder("nics").names() if name.endswith(".json") and is_key(name[:-5])]

    def read(self, key: str, parse: Parse | None = None) -> Record | None:
        """The record, if it can be read; what is wrong with it is in the store's problems. ``parse``: see Store.read."""
        try:
            return self.node.store.read(key, parse)
        except NetcommonError as error:
            self.node.store.problems.append(str(error))
            return None

    def look(self, key: str, scripts: bool = True) -> Result:
        """Looks at one record, and does what it needs; ``scripts``: also where the site's scripts are owed.

        Raises NetcommonError where the host cannot be read.
        """
        record = self.read(key)
        if record is None:
            return Result(NOTHING)
        return self.reconcile(record, execute.once(self.node), scripts)

    def look_together(self, keys: Sequence[str]) -> dict[str, Result]:
        """Mends those of the records that are up and have only lost something, on one picture of the host; says what became of them.

        The others are left to looks of their own, and those on Open vSwitch, which may keep us waiting. Raises NetcommonError where the
        host cannot be read.
        """
        node, view, known = self.node, self.node.host.snapshot(), dict[tuple[str, Operation], str]()
        records: dict[str, Record] = {}
        wanted: dict[str, dict[str, str]] = {}
        again: dict[str, float] = {}
        results: dict[str, Result] = {}
        differs: dict[str, list[tuple[Operation, str]]] = {}
        for key in keys[:TOGETHER]:
            record = self.read(key)
            if record is None or record.state != UP or record.incoming or record.nic.mode == "openvswitch" or not self.ours(record):
                continue
            if not alive(node, view, record) or follow(node, view, record) is not record or _at_work(node, record.uuid):
                continue
            drifted = differs[key] = _drift(node, view, record, execute.decode(record)[0], known)
            self._chronicle.drifted(record, [f"{operation.describe()}: {text}" for operation, text in drifted])
            found, again[key] = self._judged(record, drifted, self.call(record, PATIENCE).log)
            if found:
                records[key], wanted[key] = record, found
            elif drifted:  # told of, and to be looked at again then: not once more by itself
                results[key] = Result(REPORTED, again[key])
        made = repair_together(
            node, list(records), lambda record: self.call(record, PATIENCE), lambda key, operation: _name(operation) in wanted[key]
        )
        for key, result in made.items():
            became = self._became(records[key], records[key].device, wanted[key], result)
            results[key] = became._replace(again=min(filter(None, (again[key], became.again)), default=0.0))
        for key in results:  # the others are looked at, and counted, each by itself
            self._counted(differs[key])
        return results

    def ours(self, record: Record) -> bool:
        """Not that of another node on this machine."""
        here = self.node.identity
        return record.boot != here.boot or record.netns == here.netns

    def examine(self, record: Record, view: View, known: execute.Known) -> tuple[bool, list[Dropped]]:
        """Whether the record needs a look of its own, by a snapshot; and what the spoof guard has dropped of it. Changes nothing.

        ``known``: which operations that many NICs share hold by this snapshot.
        """
        node = self.node
        if record.state not in (UP, CLOSING) or not alive(node, view, record) or _let_go(node, view, record):
            return True, []
        now = follow(node, view, record)
        operations = execute.decode(now)[0]
        drifted = now is not record or (record.state == UP and arrived(node, record)) or bool(_drift(node, view, now, operations, known))
        counts = [pair for operation in operations if isinstance(operation, NicGuard) for pair in dropped(operation, view).items()]
        labels = {"instance": record.nic.instance, "device": record.device}
        return drifted, [({**labels, "reason": reason}, number) for reason, number in counts if number]

    def reconcile(self, record: Record, view: View, scripts: bool = True) -> Result:
        """Does what ``record`` needs; ``view`` is a live one."""
        node = self.node
        if not self.ours(record):
            return Result(NOTHING)
        if record.state in (APPLYING, REVERTING) and _at_work(node, record.uuid):
            return Result(BUSY)
        if record.state in (APPLYING, REVERTING) or not alive(node, view, record) or _let_go(node, view, record):
            return self._undo(record) if scripts or not record.scripts else Result(OWING)
        if record.state == CHANGING:
            if _at_work(node, record.uuid):
                return Result(BUSY)
            return self._put_back(record) if scripts or not (record.scripts and record.described_anew) else Result(OWING)
        return self._mend(record, view)

    def call(self, record: Record, seconds: float) -> Call:
        """A call of ours about ``record``."""
        return about(Call(self._log, self.node.clock.now() + seconds, DOOR), record)

    def _undo(self, record: Record) -> Result:
        told = self._meter
        died = record.state in (APPLYING, REVERTING)
        did = collect(self.node, record, self.call(record, self.node.settings.hook_timeout))
        if did == KEPT:
            return Result(BUSY, self._repairs.failed(record.key, longest=BRIEFLY))
        if not died:
            told.count("netcommon_device_gone_total", outcome="failed" if did == FAILED else "clean")
        if did == FAILED:
            return Result(FAILURE, self._repairs.failed(record.key))
        self._repairs.worked(record.key)
        self._chronicle.undone(record, f"it was {record.state}, and its hook has died" if died else "nobody called a down for it")
        return Result(UNDONE)

    def _put_back(self, record: Record) -> Result:
        """Brings a NIC back whose hook died while it changed it, or could not; it is never undone for that."""
        result: Outcome | NetcommonError
        try:
            told = record.scripts and record.described_anew
            result = repair(self.node, record.key, self.call(record, self.node.settings.hook_timeout if told else PATIENCE))
        except NetcommonError as error:
            result = error
        return self._became(record, record.device, {}, result)

    def _mend(self, record: Record, view: View) -> Result:
        here = record.state == UP and arrived(self.node, record)
        now = follow(self.node, view, record)
        renamed, drifted = now is not record, _drift(self.node, view, now, execute.decode(now)[0])
        if not (drifted or here or renamed):
            self._repairs.worked(record.key)
            self._chronicle.drifted(record, ())
            return Result(NOTHING)
        if _at_work(self.node, record.uuid):
            return Result(BUSY)
        self._chronicle.drifted(record, [f"{operation.describe()}: {text}" for operation, text in drifted])
        wanted, again = self._judged(record, drifted, self.call(record, PATIENCE).log)
        self._counted(drifted)
        if not (wanted or here or renamed):
            return Result(REPORTED, again)
        result = self._repair(record, now.device, wanted, here)
        return result._replace(again=min(filter(None, (again, result.again)), default=0.0))

    def _repair(self, record: Record, named: str, wanted: dict[str, str], here: bool) -> Result:
        """Repairs the operations named in ``wanted``; ``here``: and does what was owed until the guest came. ``named``: see ``_became``."""
        result: Outcome | NetcommonError
        try:
            call = self.call(record, PATIENCE)
            result = repair(self.node, record.key, call, lambda operation: _name(operation) in wanted or (here and operation.exclusive()))
        except NetcommonError as error:
            result = error
        return self._became(record, named, wanted, result)

    def _became(self, record: Record, named: str, wanted: dict[str, str], result: Outcome | NetcommonError) -> Result:
        """Tells what became of a repair, and counts it. ``named``: what the device was called when it began."""
        call, key = self.call(record, PATIENCE), record.key
        names = {name: f"{record.ifindex} {name}" for name in wanted}
        if isinstance(result, NetcommonError) and self._renamed(key, named):
            call.log.info(f"its device was renamed meanwhile, so it is looked at again: {result}")
            self._count(wanted, "later")
            self._repairs.came(key)
            return Result(BUSY, self.node.clock.now())
        if isinstance(result, TryAgain):
            if self._repairs.news(key, str(result)):
                call.log.info(f"not repaired yet: {result}")
            self._count(wanted, "later")
            return Result(BUSY, self._repairs.failed(key, names.values() or (RECORD,), BRIEFLY))
        if isinstance(result, NetcommonError):
            now = self.node.store.read(key)
            if now is None or now.state not in (UP, CLOSING, CHANGING):
                return Result(NOTHING)  # a hook has taken it since
            if self._repairs.news(key, str(result)):
                call.log.error(f"not repaired: {result}")
            self._chronicle.stuck(record, str(result))
            left = self._left(record, wanted)
            self._count({name: kind for name, kind in wanted.items() if name in left}, "failed")
            self._repairs.held(key, [names[name] for name in wanted if name not in left])
            return Result(FAILURE, self._repairs.failed(key, [names[name] for name in left] or (RECORD,)))
        if result.changed:
            call.log.warning(result.text)
            self._chronicle.repaired(record, result.text)
        self._count(wanted, "repaired")
        self._repairs.held(key, names.values())
        return Result(MENDED)

    def _renamed(self, key: str, named: str) -> bool:
        """Tell whether the device is called otherwise than ``named`` now: what failed under that name says nothing of the next attempt."""
        record = self.node.store.read(key)
        return record is not None and name_of(self.node, self.node.host.view(), record) != named

    def _left(self, record: Record, wanted: dict[str, str]) -> list[str]:
        """Those of ``wanted`` that do not hold now."""
        view = self.node.host.view()
        now = follow(self.node, view, record)
        drifted = _drift(self.node, view, now, execute.decode(now)[0])
        return [name for operation, _text in drifted if (name := _name(operation)) in wanted]

    def _judged(self, record: Record, drifted: list[tuple[Operation, str]], log: Log) -> tuple[dict[str, str], float]:
        """The operations that are to be repaired, by name, with their kinds; and when to look again at the others."""
        wanted: dict[str, str] = {}
        again = 0.0
        judged = [
            (operation, text, self._repairs.judge(record.key, operation.KIND, f"{record.ifindex} {_name(operation)}"))
            for operation, text in drifted
        ]
        waits = any(verdict.again and not verdict.why for _operation, _text, verdict in judged)
        bare = any(verdict.again and operation.confines() for operation, _text, verdict in judged)
        for operation, text, verdict in judged:
            if verdict.repair and (((waits or bare) and operation.lets_in()) or (bare and operation.joins())):
                continue  # it is looked at again with what waits, or with what is left alone for a while since somebody undoes it
            if verdict.repair:
                wanted[_name(operation)] = operation.KIND
                if verdict.why:
                    log.warning(f"{operation.describe()}: {text}, though {verdict.why}")
                continue
            again = min(filter(None, (again, verdict.again)), default=0.0)
            if verdict.why:
                log.warning(f"not repaired, {verdict.why}: {operation.describe()}: {text}")
                self._meter.count("netcommon_repairs_total", kind=operation.KIND, outcome="reported")
        return wanted, again

    def _counted(self, drifted: list[tuple[Operation, str]]) -> None:
        for operation, _text in drifted:
            self._meter.count("netcommon_drift_total", kind=operation.KIND)

    def _count(self, wanted: dict[str, str], outcome: str) -> None:
        for kind in wanted.values():
            self._meter.count("netcommon_repairs_total", kind=kind, outcome=outcome)


def _name(operation: Operation) -> str:
    """The same for an operation as it was recorded, and as it is resolved anew."""
    return repr(intent(operation))


def _drift(
    node: Node, view: View, record: Record, operations: list[Operation], known: execute.Known | None = None
) -> list[tuple[Operation, str]]:
    """Select the operations that do not hold and are to be made again."""
    found = drift_of(node, view, record, operations, known)
    return [(operation, text) for operation, text in found if kept_up(node, view, record, operation)]


def _let_go(node: Node, view: View, record: Record) -> bool:
    """Whether it is closing, and nobody holds its device, or that is gone."""
    if not record.closing:
        return False
    link = view.link_at(record.ifindex)
    return not alive(node, view, record) or link is None or link.holders == 0


def _at_work(node: Node, uuid: str) -> bool:
    """Tell whether a process holds the lock of the NIC, as far as can be seen without a touch of it: so that is no event.

    One that we cannot see (another PID namespace) holds it all the same: then it is not to be had, and nothing is done either.
    """
    now = node.clock.now
    return node.store.locks(now(), now, node.clock.sleep).seen(uuid)
