"""Carry out what makes a record hold again (netcommon.lifecycle.reconcile), under the locks of its device and UUID."""

from __future__ import annotations

from netcommon.lifecycle import execute
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

    Raises HostRefused or TryAgain: then the record names all that may be on the host, and what holds is left as it is.
    """
    record, resolved, outdated, leaving = mending.record, mending.resolved, mending.outdated, mending.leaving
    node.store.write(mending.stored(*outdated, *leaving, *mending.staying))
    execute.claim(node, resolved, record.key)
    first = [operation for operation in leaving if operation.one_of_device()]
    if first:
        execute.apply(node, [shut(record.device, record.ifindex)], log)
    going, todo = [*first, *execute.Among(resolved).leaves(outdated)], list(mending.todo)
    if going:
        retire(node, going, record.key, log)
        todo = mending.drifted(execute.once(node), wanted)
    try:
        execute.apply(node, mending.order(todo), log)
    except HostRefused as problem:
        raise HostRefused("; ".join([*mending.hopeless, str(problem)])) from problem
    retire(node, [operation for operation in leaving if operation not in going], record.key, log)
    if outdated or leaving or mending.staying or stored.device != record.device:
        node.store.write(mending.stored(*mending.staying))
        settle_owners(node, stored, [*outdated, *leaving], [*resolved, *mending.staying])
    return todo


def retire(node: Node, operations: list[Operation], key: str, log: Log) -> None:
    """Revert ``operations`` of the record ``key``, each on its own. Raises the first failure."""
    failures = execute.revert(node, operations, key, log) if operations else []
    if failures:
        raise failures[0][1]


def settle_owners(node: Node, stored: Record, gone: list[Operation], lasting: list[Operation]) -> None:
    """Make the record an owner of what ``lasting`` shares with others, and of nothing else that it had: ``stored`` and ``gone``."""
    for key in set(execute.keys_of([*gone, *execute.decode(stored)[0]])) - set(execute.keys_of(lasting)):
        node.store.owners.release(key, stored.key)
    execute.claim(node, lasting, stored.key)
