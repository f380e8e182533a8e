"""Carry out what makes a record hold again (netcommon.lifecycle.reconcile), under the locks of its device and UUID."""

from __future__ import annotations

from netcommon.lifecycle import execute
from netcommon.lifecycle.reconcile import networks, part, stages
from netcommon.operations.link import shut
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.lifecycle.context import Node
    from netcommon.lifecycle.reconcile import Mending
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.record import Record


def mend(node: Node, stored: Record, mending: Mending, log: Log, wanted: Callable[[Operation], bool]) -> list[Operation]:
    """Do what ``mending`` says; return what was applied. ``stored``: the record as it is on disk.

    Raises HostRefused or TryAgain: then the record names all that may be on the host, and what holds is left as it is. What was owed
    until the guest came is owed until all of it holds.
    """
    record, resolved, outdated, leaving = mending.record, mending.resolved, mending.outdated, mending.leaving
    node.store.write(mending.stored(*outdated, *leaving, *mending.staying)._replace(incoming=stored.incoming))
    execute.claim(node, resolved, record.key)
    first = [operation for operation in leaving if operation.one_of_device()]
    moves = networks(execute.decode(stored)[0]) != networks(resolved)
    down = list(mending.leaves) or ([shut(record.device, record.ifindex)] if first else [])
    goes = part(execute.once(node), outdated, resolved, moves, bool(down))
    former = tuple(operation for operation in leaving if operation not in first)
    goes = goes._replace(early=(*first, *goes.early), late=(*goes.late, *former))
    todo = list(mending.todo)

    def make() -> list[Operation]:
        nonlocal todo
        todo = mending.drifted(execute.once(node), wanted) if goes.early or mending.leaves else todo
        return mending.order(todo)

    for comes, operations in stages(down, goes, make):
        if not comes:
            execute.retire(node, operations, record.key, log)
            continue
        try:
            execute.apply(node, operations, log)
        except HostRefused as problem:
            raise HostRefused("; ".join([*mending.hopeless, str(problem)])) from problem
    incoming = record.incoming or (stored.incoming and _owing(node, mending))
    others = bool(outdated or leaving or mending.staying or stored.device != record.device)
    if others or incoming != stored.incoming:
        node.store.write(mending.stored(*mending.staying)._replace(incoming=incoming))
    if others:
        before = [*outdated, *leaving, *execute.decode(stored)[0]]
        execute.settle_owners(node, stored.key, before, [*resolved, *mending.staying])
    return todo


def _owing(node: Node, mending: Mending) -> bool:
    """Tell whether anything of what may be on one node only does not hold yet, whatever of it was to be done this time."""
    alone = [one for one in mending.resolved if one.exclusive() and mending.wants(one, lambda _operation: True)]
    return bool(execute.drift(execute.once(node), alone))
