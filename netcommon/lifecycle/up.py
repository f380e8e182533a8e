"""up: a NIC is joined to the network, under the locks of its device and UUID, and whoever is to be told is told after that."""

from __future__ import annotations

from netcommon.lifecycle import run_effects
from netcommon.lifecycle.bring_up import BringUp
from netcommon.lifecycle.context import Outcome, alive, any_changed, locks
from netcommon.lifecycle.down import give_back, left_undone
from netcommon.lifecycle.renamed_device import name_of
from runtime.errors import Interrupted, TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Call, Node
    from netcommon.log import Log
    from runtime.locks import Locks
    from runtime.nic import Nic


def with_kept(node: Node, nic: Nic, log: Log) -> Nic:
    """Give ``nic`` with what is kept of it (runtime.kept), whether it can have that or not. Call under the lock of its UUID."""
    if not any_changed(node):
        return nic._replace(wanted=(), revision="", told=None)
    from runtime.kept import completed  # on most nodes nothing was ever changed

    found = completed(node.paths, nic)
    if found is None:
        from netcommon.lifecycle.changed_options import with_wanted  # of few NICs something ends, or is wrong

        found = with_wanted(node, nic, log)
    return found


def up(node: Node, nic: Nic, call: Call, run_scripts: bool = True, fresh: bool = False) -> Outcome:
    """Joins ``nic`` to the network. A second up of the same NIC verifies, mends what drifted, and changes nothing else.

    ``fresh``: only if neither it nor its device is on record; a caller that knows less than the hook must not undo what that did.

    Raises NicInvalid, HostRefused or TryAgain; then the NIC is as if it had never been up, except that what could not be undone
    stays on its record.
    """
    for _attempt in range(5):
        seen = node.store.read(nic.uuid)
        devices = {nic.interface} | ({seen.device} if seen else set())
        with locks(node, call) as held:
            held.devices(devices)
            other = node.store.by_device(nic.interface)
            held.uuids({nic.uuid} | ({other.uuid} if other else set()))
            earlier = node.store.read(nic.uuid)
            if earlier and earlier.device not in devices:
                continue  # it moved between the look and the lock: its device must be locked first
            if other:
                other = node.store.read(other.key)
            if other and name_of(node, node.host.view(), other) != nic.interface:
                call.log.info(f"{other.nic.label} had {nic.interface} before its device was renamed: it is left alone")
                other = None
            if fresh and any(record and alive(node, node.host.view(), record) for record in (earlier, other)):
                return Outcome(False, f"{nic.interface} is on record already")
            attempt = BringUp(node, with_kept(node, nic, call.log), call, held, run_scripts)
            failure: BaseException | None = None
            try:
                outcome = attempt.run(earlier, other if other and other.key != nic.uuid else None)
            except BaseException as error:  # of Ctrl-C too the other NICs know nothing
                failure = error
            if failure is not None and (attempt.nic.wanted or attempt.nic.told):
                from functools import partial  # few ups fail

                from netcommon.lifecycle import left_out

                again = partial(_again, node, call, held, run_scripts, other.key if other else "")
                try:
                    if left_out.may_help(attempt, failure):
                        attempt, outcome = left_out.without(node, attempt, call, failure, again)
                        failure = None
                except BaseException as error:
                    failure = error
        try:
            try:
                if attempt.settled is not None:
                    run_effects.arrived(node, attempt.settled, call.log, seen=attempt.view, first=attempt.first_up)
            finally:
                give_back(node, call)
        except Interrupted as error:  # the NIC is up, or is not, and that is the answer
            left_undone(call, error)
        if failure is not None:
            raise failure
        return outcome
    raise TryAgain(f"NIC {nic.uuid} is being moved between devices by others")


def _again(node: Node, call: Call, held: Locks, run_scripts: bool, other: str, nic: Nic) -> tuple[BringUp, Outcome]:
    """Tries once more what has failed, with less. ``other``: the key of the NIC that was on its device. Raises what BringUp.run does."""
    held.release_keys()
    attempt, there = BringUp(node, nic, call, held, run_scripts), node.store.read(other) if other else None
    return attempt, attempt.run(node.store.read(nic.uuid), there if there and there.key != nic.uuid else None)
