"""Bring a NIC back to what it was before a change that did not hold, or was cut off: its record has both (``Record.before``).

Each step is tried on its own. Where one is refused, the NIC stays up as far as it can be, and the record as it is: the next hook, repair
or look of the agent tries again.
"""

from __future__ import annotations

from netcommon.lifecycle import execute, site_scripts
from netcommon.lifecycle.context import ROLLBACK, START, alive, owe, to_its_end
from netcommon.lifecycle.reconcile import confining_first, examine, intended, networks, part, stages, unlike
from netcommon.lifecycle.renamed_device import follow
from netcommon.operations.base import to_json
from netcommon.operations.link import shut
from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.lifecycle.reconcile import Mending
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from runtime.locks import Locks
    from runtime.record import Record


def fresh(record: Record) -> list[Operation]:
    """Select what the change has made, or was about to make, of the record."""
    before = execute.decode(record.before)[0] if record.before is not None else []
    return execute.Among(before).lacks(execute.decode(record)[0])


def change_back(node: Node, record: Record, call: Call, held: Locks, told: bool = False) -> Record:
    """Make what ``record`` was before its change hold again, and nothing else; return that, as it is on disk then.

    The caller holds the locks of the device and the UUID. Raises HostRefused or TryAgain: the NIC stays up, and both lists on record.
    One that is told to end when it has shut the device opens it first. ``told``: it was told so already, and ends where it is.
    """
    view = execute.once(node)
    if not alive(node, view, record):
        raise HostRefused(f"{record.device} is gone: what is left of {record.nic.label} is gc's to clean up")
    followed = follow(node, view, record)
    made = fresh(followed)
    before = _before(view, followed)
    owe(node, record, map(to_json, made), call.log)
    held.lasts(call.deadline)
    held.anew(execute.locks_of([*execute.decode(followed)[0], *execute.decode(before)[0], *intended(node, before)]))
    mending = worked_out(node, execute.once(node), followed, call.log, before)
    if mending.hopeless:
        raise HostRefused("; ".join(mending.hopeless))  # what stands goes on standing: where it is, the guest stays guarded
    mending = mending._replace(hindered=())  # what others have put there keeps the NIC from nothing that it had
    outdated = [*made, *mending.outdated, *mending.leaving]
    gone = execute.Among(mending.resolved).leaves(outdated)
    # what is found in other places by now is on record too before it is made
    known = execute.decode(followed)[0]
    more = [operation for operation in mending.resolved if operation not in known]
    node.store.write(followed._replace(operations=(*followed.operations, *map(to_json, more)), before=before))
    execute.claim(node, mending.resolved, record.key)
    moved = _moved(made, mending.resolved, mending.todo)
    now = execute.once(node)
    moves = _joins_another(mending.todo, made) or _joins_another(made, mending.resolved)
    moves = moves or (moved and _confined([*made, *mending.todo])) or unlike(now, made, mending.todo)
    down = list(mending.leaves) or ([shut(before.device, before.ifindex)] if moves else [])
    goes = part(now, outdated, mending.resolved, moved, bool(down))
    steps = _Steps(node, record.key, call, made)
    kept = [operation for operation in mending.resolved if mending.wants(operation, _all)]

    def make() -> list[Operation]:
        view = execute.once(node)
        return confining_first(view, made, mending.order(mending.drifted(view, _all)))

    def carry_out() -> None:
        for comes, operations in stages(down, goes, make):
            if operations is down:
                execute.apply(node, down, call.log)  # or nothing: a guest that could not be shut out stays where it is
                continue
            (steps.apply if comes else steps.revert)(operations)
        lost = [operation for operation, _text in execute.drift(execute.once(node), kept) if operation not in mending.stuck]
        steps.apply(mending.order(lost))
        if steps.failures:
            raise HostRefused("; ".join(dict.fromkeys(map(str, steps.failures))))

    def again() -> None:
        there = node.store.read(record.key)
        if there is not None and there.before is not None:
            change_back(node, there, call, held, told=True)

    if told:
        carry_out()
    else:
        to_its_end(carry_out, again, call.log)
    view = execute.once(node)
    hindered = {id(one): why for one in kept if (why := one.hindered(view))}
    for why in dict.fromkeys(hindered.values()):
        call.log.warning(why)
    mending.done(view, [one for one in kept if id(one) not in hindered])
    if record.described_anew and record.scripts:
        held.release_keys()
        _tell_scripts(node, record, before, call)
    back = mending.stored()
    node.store.write(back)
    execute.settle_owners(node, record.key, [*gone, *known], mending.resolved)
    call.log.warning(f"{before.nic.label} on {before.device} is as it was before")
    return back


def worked_out(node: Node, view: View, followed: Record, log: Log, before: Record | None = None) -> Mending:
    """Work out what it takes to make again what a NIC was before its change was cut off. Changes nothing.

    ``followed``: its record, under the name that its device has now; ``before``: what it was, where that was told apart already.
    """
    return examine(node, view, before or _before(view, followed), log, _all, execute.decode(followed)[0])


def _before(view: View, followed: Record) -> Record:
    """Give the record as it was, with what is told anew where the change has told something else."""
    before, made = followed.before or followed, fresh(followed)
    operations, unknown = execute.decode(before)
    again = [operation.put_back(view, made) for operation in operations]
    return before if again == operations else before._replace(operations=(*unknown, *map(to_json, again)))


def _joins_another(operations: Sequence[Operation], others: Sequence[Operation]) -> bool:
    """Tell whether the device is put where ``others`` do not put it: there nothing keeps the guest to what these allow."""
    there = networks(others)
    return any(one.replugs() or (one.joins() and one.network() not in there) for one in operations)


def _moved(made: Sequence[Operation], before: Sequence[Operation], todo: Sequence[Operation]) -> bool:
    """Tell whether the NIC may be in another network than ``before``: in one that was ``made``, or out of one that is to be made again."""
    again = set(map(id, todo))
    there, held = networks(before), networks(one for one in before if id(one) not in again)
    return not (networks(made) <= there and networks(todo) <= held | networks(made))  # one may be made again for what else it says


def _confined(operations: Sequence[Operation]) -> bool:
    """Tell whether something keeps the guest to its own, beside the network that it is in."""
    return any(one.confines() and not one.network() for one in operations)


def _all(_operation: Operation) -> bool:
    return True


class _Steps:
    """Steps of a way back, each tried on its own. Where one is refused that keeps the guest to its own, or says in which network it is,
    nothing follows that would let out or in what both the NIC as it was and the one that it was to become refuse.
    """

    def __init__(self, node: Node, key: str, call: Call, made: Sequence[Operation]) -> None:
        """``made``: what the change has made of the NIC."""
        self._node, self._key, self._log = node, key, call.log
        self._made = execute.Among(made)
        self._bare = False
        self.failures: list[NetcommonError] = []

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply them together; where one is refused, each on its own."""
        operations = [operation for operation in operations if not self._barred(operation)]
        try:
            if operations:
                execute.apply(self._node, operations, self._log)
            return
        except NetcommonError:
            pass
        for operation in operations:
            if self._barred(operation):
                continue
            try:
                execute.apply(self._node, [operation], self._log)
            except NetcommonError as error:
                self._failed(operation, error)

    def revert(self, operations: Sequence[Operation]) -> None:
        """Revert them."""
        kept = self._bare
        operations = [one for one in operations if not (kept and one.effective(execute.once(self._node)).confines())]
        for operation, error in execute.revert(self._node, operations, self._key, self._log) if operations else ():
            self._failed(operation, error)

    def _failed(self, operation: Operation, error: NetcommonError) -> None:
        self.failures.append(error)
        decides = operation.joins() or operation.unbroken() or bool(operation.network())
        self._bare = self._bare or decides or bool(operation.effective(execute.once(self._node)).confines())

    def _barred(self, operation: Operation) -> bool:
        """Tell whether it waits: it opens the device, leads to the guest or from it, or is less than what is in its place."""
        if not self._bare:
            return False
        there = self._made.in_place_of(operation)
        looser = there is not None and bool(there.confines()) and not operation.firmer(there)
        leads = bool(operation.leads_to()) or (operation.unbroken() and not operation.confines())
        return operation.lets_in() or leads or looser


def _tell_scripts(node: Node, record: Record, before: Record, call: Call) -> None:
    """Run the scripts of down for what did not become of the NIC, and those of up for what it is again: they were told of the change."""
    site_scripts.Scripts(node, call._replace(context=ROLLBACK), record.nic).down()
    try:
        site_scripts.Scripts(node, call._replace(context=START), before.nic).up()
    except NetcommonError as error:
        call.log.error(f"the NIC is as it was, and a script of the site's failed: {error}")
