"""Bring up a NIC that cannot have all that a registry wants of it: what that is in the way of its up is left out, and is said.

What can be seen of a NIC's description alone is left out before (changed_options.fitting). Here is what the host refuses: a template that
is not on this node, an option for which its kernel lacks something. The registry knows nothing of that, and its operator may be far away.
"""

from __future__ import annotations

from netcommon.lifecycle.changed_options import partly
from netcommon.lifecycle.down import left_undone
from runtime.errors import FileRefused, Interrupted, NetcommonError, NicInvalid
from runtime.nic import REGISTRY, NetworkWanted
from runtime.record import CHANGING, CLOSING, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.lifecycle.bring_up import BringUp
    from netcommon.lifecycle.context import Call, Node, Outcome
    from runtime.nic import Changed, Nic

    #: Another up of the NIC, with less.
    Again = Callable[[Nic], tuple[BringUp, Outcome]]


def may_help(attempt: BringUp, failure: BaseException) -> bool:
    """Tell whether a NIC may come up with less of what a registry says; not where a script of the site's or the disk was in its way."""
    wanted = attempt.nic.told is not None or any(each.source == REGISTRY for each in attempt.nic.wanted)
    elsewhere = attempt.scripts.begun or isinstance(failure, FileRefused) or (isinstance(failure, NetcommonError) and failure.retry)
    return wanted and isinstance(failure, Exception) and not elsewhere


def without(node: Node, attempt: BringUp, call: Call, failure: BaseException, again: Again) -> tuple[BringUp, Outcome]:
    """Bring up a NIC whose up has failed with as much of what a registry says as there can be; give the attempt that did, and its outcome.

    First with none of that, and then with one thing more each time, the strongest first. A NIC that was up keeps what it has of it. What
    is left out is an error in the log; its record does not say then that it has what is wanted (changed_options.partly).

    ``again`` tries another up; raises what that raises where the registry is not what is in the way.
    """
    whole = attempt.nic
    nic, done, outcome = _least(node, attempt, failure, again)
    told = [] if whole.told is None or whole.told == nic.told else [whole.told]
    more: list[Changed | NetworkWanted] = [*told, *(each for each in reversed(whole.wanted) if each not in nic.wanted)]
    left = 0
    for number, each in enumerate(more):
        error: BaseException = failure
        if left or number < len(more) - 1:  # with all of it, it was tried
            try:
                last, now = again(_with(whole, nic, each))
                done.settled, done.view, nic = last.settled or done.settled, None, last.nic
                outcome = now if now.changed and not outcome.changed else outcome
                continue
            except Interrupted as end:
                left_undone(call, end)
                return done, outcome
            except Exception as second:  # an extension of the site's raises what it likes
                error = second
        left += 1
        call.log.error(f"{whole.label} is without {_named(each)}: {error}")
    return done, outcome


def _named(each: Changed | NetworkWanted) -> str:
    if isinstance(each, NetworkWanted):
        return "what the registry says of its network"
    return f"{each.option}={each.value}, set by the registry"


def _least(node: Node, attempt: BringUp, failure: BaseException, again: Again) -> tuple[Nic, BringUp, Outcome]:
    """Bring the NIC up with the least of what a registry says with which it can be up; give it as it is then."""
    whole, record = attempt.nic, node.store.read(attempt.nic.uuid)
    if not attempt.first_up and record is not None and record.state in (UP, CLOSING, CHANGING):
        has = (record.before or record).nic
        least = [_with(whole, whole._replace(wanted=has.wanted, told=has.told))]
        if least == [whole]:
            raise failure
    else:
        none = whole._replace(wanted=(), told=None)
        # a NIC may need one of them, such as the only address of a routed one
        least = [_with(whole, none), *(_with(whole, none, each) for each in reversed(whole.wanted) if each.source == REGISTRY)]
    first: NicInvalid | None = None
    for nic in least:
        try:
            return nic, *again(nic)
        except NicInvalid as error:
            first = first or error
    raise first or failure


def _with(whole: Nic, has: Nic, more: Changed | NetworkWanted | None = None) -> Nic:
    """Give the NIC with what of its options ``has`` has, with those that were set on this node, and with one thing more."""
    wanted = tuple(each for each in whole.wanted if each.source != REGISTRY or each in has.wanted or each == more)
    told = whole.told if more is not None and more == whole.told else has.told
    return whole._replace(wanted=wanted, told=told, revision=partly(whole.revision, whole.wanted, wanted))
