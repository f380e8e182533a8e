"""Do on the node what its registry wants: in a worker's thread, by netcommon.lifecycle.push. Nothing here raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.became import Did, Left
from netagent.sync.jobs import NETWORK, NIC
from netagent.sync.laid import DropUnderlay, SetUnderlay
from netagent.sync.messages import Apply, Check, Drop, DropNetwork, Keep, Retain, SetNetwork
from netagent.sync.reading import Lie, note, revision_of
from netcommon.lifecycle.push import (
    IsUp,
    as_kept,
    drop,
    drop_network,
    ended_here,
    keep,
    keep_network,
    kept_in_part,
    network_as_kept,
    push,
    retain,
)
from runtime import underlay, underlay_back
from runtime.errors import FileRefused, NetcommonError, NicInvalid, RecordTooNew, RecordUnreadable, TryAgain
from runtime.networks import network_of
from runtime.registry_wanted import RegistryOption, RegistryWanted

if TYPE_CHECKING:
    from netagent.sync.messages import Doing, Wanted
    from netcommon.lifecycle.context import Call, Node
    from runtime.record import Record
    from runtime.underlay import Underlay


def done(node: Node, job: Doing, call: Call) -> Did:
    """Do a job; say what became of it. What the host refuses is refused; what somebody else is at work on is tried again."""
    revision = _revision(job)
    try:
        return _done(node, job, call, Did(job.key, revision))
    except IsUp:
        return Did(job.key, revision, up=True)
    except TryAgain as error:
        return Did(job.key, revision, str(error), again=True)
    except NetcommonError as error:
        host, disk = not isinstance(error, NicInvalid), isinstance(error, FileRefused)
        # of many things it cannot be said which are left: all of them are tried again
        return Did(job.key, revision, str(error), host=host, passing=disk, again=isinstance(job, Retain))
    except Exception as error:  # an extension of the site's raises what it likes
        return Did(job.key, revision, f"{type(error).__name__}: {error}", again=isinstance(job, Retain))


def _revision(job: Doing) -> str:
    if isinstance(job, Apply | Keep):
        return job.wanted.revision
    return "" if isinstance(job, Check) else job.revision


def _done(node: Node, job: Doing, call: Call, did: Did) -> Did:
    uuid = job.key[1]
    if isinstance(job, Apply):
        asked = wanted(job.wanted)
        outcome = push(node, uuid, asked, call)
        if outcome.changed and not outcome.kept:
            call.log.info(f"the registry wants it so: {outcome.text}")
        did = _in_time(node, uuid, asked, did)
    elif isinstance(job, Keep):
        asked = wanted(job.wanted)
        keep(node, uuid, asked, call, job.whole)
        did = _in_time(node, uuid, asked, did)
    elif isinstance(job, Drop):
        return did._replace(up=not drop(node, uuid, call))
    elif isinstance(job, SetNetwork):
        return did._replace(touched=keep_network(node, network_of(uuid, job.revision, job.value)))
    elif isinstance(job, DropNetwork):
        return did._replace(up=bool(drop_network(node, uuid)))
    elif isinstance(job, SetUnderlay) and isinstance(problem := job.value.get("problem"), str):
        return did._replace(refused=note(problem))  # what is there stays
    elif isinstance(job, SetUnderlay | DropUnderlay) and _is_known_since(node, job.revision):
        return did
    elif isinstance(job, SetUnderlay):
        underlay.write(node.paths, _with_kept(node, underlay.underlay_of(uuid, job.revision, job.value), job.value.get("kept")))
    elif isinstance(job, DropUnderlay):
        underlay.remove(node.paths)
        underlay_back.remove(node.paths)
    elif isinstance(job, Retain):
        return did._replace(left=tuple(Left(key, why) for key, why in retain(node, job.nics, job.networks, call)))
    else:
        lost = [(NIC, uuid) for uuid, each in job.nics.items() if not as_kept(node, uuid, wanted(each))]
        lost += [(NETWORK, uuid) for uuid, revision in job.networks.items() if not network_as_kept(node, uuid, revision)]
        lost += [(NIC, uuid) for uuid in kept_in_part(node) if uuid not in job.nics] if job.parts else []
        return did._replace(left=tuple(map(Left, lost)))
    return did


def _is_known_since(node: Node, revision: str) -> bool:
    """Tell whether this node knows what the registry has said later than this revision.

    An agent that was killed before it had kept how far its stream was hears it all again, the oldest first. What no stream has said
    is of revision 0.
    """
    try:
        known, said = underlay.read(node.paths), revision_of(revision)
        before = revision_of(known.revision) if known is not None else None
    except (Lie, RecordTooNew, RecordUnreadable):
        return False
    return before is not None and before.epoch == said.epoch and before.number > said.number > 0


def _with_kept(node: Node, said: Underlay, kept: object) -> Underlay:
    """Give what a registry says with the endpoints that are to stay as they are known here: of these it cannot read what they are."""
    if not isinstance(kept, list):
        return said
    try:
        known = underlay.read(node.paths)
    except RecordUnreadable:
        return said
    there = {each.address for each in said.endpoints}
    stay = (each for each in (known.endpoints if known is not None else ()) if each.address in kept and each.address not in there)
    return said._replace(endpoints=(*said.endpoints, *stay))


def _in_time(node: Node, uuid: str, asked: RegistryWanted, did: Did) -> Did:
    """Refuse what is held but for what has ended by a clock that may be wrong: it is tried again until the clock is right."""
    why = ended_here(node, uuid, asked)
    return did._replace(refused=why, host=True, passing=True) if why else did


def wanted(asked: Wanted) -> RegistryWanted:
    """Give what is wanted as the node keeps it."""
    options = tuple(RegistryOption(*each) for each in asked.options)
    return RegistryWanted(asked.revision, options, asked.network, asked.tags, asked.position, asked.ip)


def applied(record: Record) -> str:
    """Give EPOCH:REVISION of what is in force of a NIC that is up; "" where the registry has said nothing."""
    return (record.before or record).nic.revision
