"""Do on the node what its registry wants: in a worker's thread, by netcommon.lifecycle.push. Nothing here raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.messages import Apply, Did, Drop, DropNetwork, SetNetwork
from netcommon.lifecycle.push import drop, drop_network, keep_network, push, retain
from runtime.errors import NetcommonError, TryAgain
from runtime.networks import network_of
from runtime.registry_wanted import RegistryOption, RegistryWanted

if TYPE_CHECKING:
    from netagent.sync.messages import Doing, Wanted
    from netcommon.lifecycle.context import Call, Node
    from runtime.record import Record


def done(node: Node, job: Doing, call: Call) -> Did:
    """Do a job; say what became of it. What the host refuses is refused; what somebody else is at work on is tried again."""
    revision = job.wanted.revision if isinstance(job, Apply) else job.revision
    try:
        touched = _done(node, job, call)
    except TryAgain as error:
        return Did(job.key, revision, str(error), again=True)
    except NetcommonError as error:
        return Did(job.key, revision, str(error))
    except Exception as error:  # an extension of the site's raises what it likes
        return Did(job.key, revision, f"{type(error).__name__}: {error}")
    return Did(job.key, revision, touched=touched)


def _done(node: Node, job: Doing, call: Call) -> tuple[str, ...]:
    if isinstance(job, Apply):
        outcome = push(node, job.key[1], wanted(job.wanted), call)
        if outcome.changed and not outcome.kept:
            call.log.info(f"the registry wants it so: {outcome.text}")
    elif isinstance(job, Drop):
        drop(node, job.key[1], call)
    elif isinstance(job, SetNetwork):
        return keep_network(node, network_of(job.key[1], job.revision, job.value))
    elif isinstance(job, DropNetwork):
        drop_network(node, job.key[1])
    elif problems := retain(node, job.nics, job.networks, call):
        raise TryAgain("; ".join(problems[:5]))
    return ()


def wanted(asked: Wanted) -> RegistryWanted:
    """Give what is wanted as the node keeps it."""
    return RegistryWanted(asked.revision, tuple(RegistryOption(*each) for each in asked.options), asked.network, asked.tags)


def applied(record: Record) -> str:
    """Give EPOCH:REVISION of what is in force of a NIC that is up; "" where the registry has said nothing."""
    return (record.before or record).nic.revision
