"""Let NICs be what a registry wants of them, and keep that on disk for their next ups: whoever speaks to the registry calls this.

A NIC that is up is changed as by ``netcommon change`` (netcommon.lifecycle.change): it holds whole, or the NIC is as before. What is
wanted of NICs that are not up is kept, also of those of other nodes. Nothing here asks a registry.
"""

from __future__ import annotations

import time

from netcommon.lifecycle import changed_options, site_scripts
from netcommon.lifecycle.change import change, unchanged
from netcommon.lifecycle.context import about, alive, locks
from runtime import networks, validate, wanted
from runtime.environment import environment_of
from runtime.errors import NetcommonError, TryAgain
from runtime.nic import REGISTRY
from runtime.record import CHANGING, CLOSING, UP
from runtime.registry_wanted import RESTART, SAID_EMPTY, taken
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from netcommon.lifecycle.context import Call, Node
    from runtime.nic import NetworkWanted, Nic
    from runtime.record import Record
    from runtime.registry_wanted import RegistryWanted
    from runtime.wanted import Wanted


LATE = 60.0  #: seconds within which a registry has ended what has ended


class Pushed(NamedTuple):
    """Say what became of a push: as an Outcome, and which fields the NIC has only after a restart.

    ``kept``: it is not up, so what is wanted counts from its next up on.
    """

    changed: bool
    text: str
    restart: tuple[str, ...] = ()
    kept: bool = False


class IsUp(TryAgain):
    """A NIC is up: what is kept of it is not touched before it has stopped."""


def push(node: Node, uuid: str, asked: RegistryWanted, call: Call) -> Pushed:
    """Set the NIC to what a registry wants of it where it is up; keep that where it is not. An emulated twin of Xen's follows its NIC.

    The network's values are those on disk (``keep_network``): where they alone have changed, the same is pushed again. Options that this
    version does not know are kept, and the NIC is without them (changed_options.partly).

    Raises NicInvalid for what no NIC, or not this one, can be; HostRefused, TryAgain, SettingsInvalid as ``change`` does: then the NIC,
    and what is kept of it, are as before.
    """
    validate.uuid(uuid)
    for _attempt in range(5):
        record = _up(node, uuid)
        if record is None:
            changed = _kept(node, uuid, asked, call)
            if changed is None:
                continue  # it has come up meanwhile
            return Pushed(changed, f"NIC {uuid} is not up: what the registry wants is kept", kept=True)
        call = about(call, record)
        if not asked.options and _is_the_sites(node, record):
            _note(node, record, asked, call)
            return Pushed(False, f"{record.nic.label} is set up by a script of the site's, and nothing else is wanted of it")
        outcome = change(node, uuid, call, lambda before: taken(before, asked, changed_options.moment(node)), closing=True)
        twin = changed_options.twin_of(node, record.nic)
        if twin is not None and _is_up(node, twin):
            tags = asked.tags if asked.tags is None or (now := node.store.read(uuid)) is None else now.nic.tags
            change(node, twin.key, about(call, twin), unchanged, tags, closing=True)
        restart = pending_restart(record.nic, asked)
        return Pushed(outcome.changed, outcome.text + (f"; pending restart: {', '.join(restart)}" if restart else ""), restart)
    raise TryAgain(f"NIC {uuid} comes and goes")


def _is_the_sites(node: Node, record: Record) -> bool:
    """Tell whether a script of the site's has set a NIC up, and has got nothing of a registry's: nothing of ours is to be made another."""
    return site_scripts.set_up_instead(node, record) and not any(each.source == REGISTRY for each in record.nic.wanted)


def _note(node: Node, seen: Record, asked: RegistryWanted, call: Call) -> None:
    """Keep that nothing is wanted of such a NIC, on its record too; what its guest is told is the script's affair.

    Raises HostRefused; TryAgain where it has become another meanwhile.
    """
    with locks(node, call) as held:
        held.devices({seen.device})
        held.uuids({seen.uuid})
        record = _up(node, seen.uuid)
        if record is None or record.device != seen.device or not _is_the_sites(node, record):
            raise TryAgain(f"{seen.nic.label} has become another meanwhile")
        found, problems = _there(node, seen.uuid, call), list[str]()
        after = taken(changed_options.decided(node, seen.uuid, found), asked, changed_options.moment(node))
        told = changed_options.told_of(node, record.nic, after.network, problems)
        for problem in problems:
            call.log.error(problem)
        if after != found:
            wanted.write(node.paths, seen.uuid, after)
        noted = record._replace(nic=record.nic._replace(revision=asked.revision, told=told))
        if noted != record:
            node.store.write(noted)


def pending_restart(nic: Nic, asked: RegistryWanted) -> tuple[str, ...]:
    """List the fields in which a NIC that runs is not as it is wanted, and which only a restart gives it."""
    there = environment_of(nic)  # it does not say the model
    found = []
    for name, value in asked.fields:
        has = there.get(name.upper(), "") if name in RESTART else ""
        has = has.partition("/")[0] if name == "ip" else has
        if has != value and (name in SAID_EMPTY or (has and value)):
            found.append(name)
    return tuple(found)


def applied(node: Node, uuid: str, problems: list[str]) -> str:
    """Give the EPOCH:REVISION of what is in force of a NIC that is up, or will be of one that is not; "" where a registry has said nothing.

    Raises HostRefused where that cannot be read.
    """
    record = _up(node, uuid)
    if record is not None:
        return (record.before or record).nic.revision
    return changed_options.read(node, uuid, problems, look=True).revision


def keep(node: Node, uuid: str, asked: RegistryWanted, call: Call, whole: bool = True) -> bool:
    """Keep what a registry wants of a NIC that is not here, for its next up; True if it is other than before.

    What is kept as of a later revision of the same epoch stays. ``whole``: this is all of it; what is not is kept as of revision 0, which
    no NIC has, and not in place of what is whole. Options that this version does not know are kept too: an up of it is without them, and
    a later version may know them.

    Raises NicInvalid for what no NIC can be, RecordTooNew for a newer version's file, IsUp where the NIC is up here, TryAgain where it is
    being worked on; HostRefused.
    """
    validate.uuid(uuid)
    changed = _kept(node, uuid, asked, call, whole)
    if changed is None:
        raise IsUp(f"NIC {uuid} is up: it is to be pushed")
    return changed


def ended_here(node: Node, uuid: str, asked: RegistryWanted) -> str:
    """Say which options a NIC is without because they have ended by this node's clock; "" for none. Raises HostRefused.

    The registry, which wants them still, ends them itself, so LATE seconds later one of the two clocks is wrong, or it is away.
    """
    wall = node.clock.wall()
    if not (over := [each for each in asked.options if 0 < each.until <= wall - LATE]):
        return ""
    found = changed_options.read(node, uuid, [], look=True)
    kept = {each.option for each in found.registry}
    gone = ", ".join(f"{each.name}={each.value}" for each in over if each.name not in kept)
    if not gone or found.revision != wanted.in_part(asked.revision):
        return ""
    clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))
    return f"it is without {gone}: by this node's clock ({clock}) the time of that is over, and the registry wants it still: set the clocks"


def as_kept(node: Node, uuid: str, asked: RegistryWanted) -> bool:
    """Tell whether what a registry wants of a NIC lies on disk, by its revision. A look: what is damaged stays. Raises HostRefused."""
    found = wanted.read(node.paths, validate.uuid(uuid), [], readonly=True)
    return (found.pending or found).revision == asked.revision and found.network == asked.network


def kept_in_part(node: Node) -> list[str]:
    """List the NICs of which only a part of what a registry wants lies on disk (EPOCH:0), such as what a wrong clock has left of it.

    A look: what is damaged stays. Raises HostRefused.
    """
    found = ((uuid, wanted.read(node.paths, uuid, [], readonly=True)) for uuid in wanted.uuids(node.paths))
    return [uuid for uuid, there in found if (told := (there.pending or there).revision) and told == wanted.in_part(told)]


def _before(asked: RegistryWanted, found: Wanted, whole: bool) -> bool:
    """Tell whether what is asked for is no news beside what is kept."""
    epoch, _, number = asked.revision.rpartition(":")
    before, _, kept = found.revision.rpartition(":")
    return validate.is_revision(asked.revision) and epoch == before and (int(number), whole) < (int(kept), True) and int(kept) > 0


def _kept(node: Node, uuid: str, asked: RegistryWanted, call: Call, whole: bool = True) -> bool | None:
    """As ``keep``; None where the NIC is up."""
    with locks(node, call) as held:
        held.uuids({uuid})
        if _up(node, uuid) is not None:
            return None
        found = _there(node, uuid, call)
        if _before(asked, found, whole):
            return False
        now = changed_options.moment(node)
        if not whole:
            asked = asked._replace(revision=wanted.in_part(asked.revision))
        after = taken(changed_options.decided(node, uuid, found), asked, now).without(now)
        if after != found:
            wanted.write(node.paths, uuid, after)
        return after != found


def drop(node: Node, uuid: str, call: Call) -> bool:
    """Forget what a registry wanted of a NIC that is not here; False where it is up, and something is kept: it stays what it is.

    Raises RecordTooNew for a newer version's file, TryAgain where the NIC is being worked on; HostRefused.
    """
    validate.uuid(uuid)
    with locks(node, call) as held:
        held.uuids({uuid})
        found = _there(node, uuid, call)
        after = changed_options.decided(node, uuid, found)._replace(registry=(), revision="", network="", tags=None, position=None, ip="")
        if after == found:
            return True
        if _up(node, uuid) is not None:
            return False
        wanted.write(node.paths, uuid, after)
        return True


def _there(node: Node, uuid: str, call: Call) -> Wanted:
    """Read what is kept of the NIC. Raises TryAgain where a change of it is under way in another network namespace."""
    problems: list[str] = []
    wanted.refuse_newer(node.paths, uuid)
    found = wanted.read(node.paths, uuid, problems)
    for problem in problems:
        call.log.error(problem)
    if found.pending is not None and node.store.elsewhere(uuid):
        raise TryAgain(f"NIC {uuid} is being changed in another network namespace")
    return found


def keep_network(node: Node, network: NetworkWanted) -> tuple[str, ...]:
    """Keep what a registry says of a network; give the UUIDs of the NICs that are up in it, which are to be pushed now.

    Give them also where nothing is new: whoever was cut off before it had pushed them asks again.

    Raises HostRefused, RecordTooNew for a newer version's file.
    """
    networks.write(node.paths, network)
    return in_network(node, network.uuid)


def drop_network(node: Node, uuid: str) -> tuple[str, ...]:
    """Forget what was said of a network, unless NICs are up in it: their UUIDs are given, and nothing is done. Raises HostRefused."""
    there = in_network(node, validate.uuid(uuid, "network"))
    if not there:
        networks.remove(node.paths, uuid)
    return there


def network_as_kept(node: Node, uuid: str, revision: str) -> bool:
    """Tell whether what a registry says of a network lies on disk, by its revision. A look: what is damaged stays. Raises HostRefused."""
    found = networks.read(node.paths, uuid, [], readonly=True)
    return found is not None and found.revision == revision


def in_network(node: Node, uuid: str) -> tuple[str, ...]:
    """Give the UUIDs of the NICs that are up in a network, by their hypervisor, or by the registry where that names none."""
    found = []
    for record in node.store.each([]):
        if not _is_up(node, record):
            continue
        named = record.nic.network.uuid or changed_options.read(node, record.uuid, [], look=True).network
        if uuid == named or (record.nic.told is not None and record.nic.told.uuid == uuid):
            found.append(record.uuid)
    return tuple(found)


def retain(node: Node, nics: Collection[str], told: Collection[str], call: Call) -> list[tuple[tuple[str, str], str]]:
    """Forget what a registry wanted of all other NICs, and said of all other networks, but for those that are up here.

    Give what was not done, and why: ("nic" or "network", UUID), "" where a NIC is up. Raises HostRefused where the folders cannot be read.
    """
    left = []
    going = [("nic", uuid) for uuid in wanted.uuids(node.paths) if uuid not in nics]
    going += [("network", uuid) for uuid in networks.uuids(node.paths) if uuid not in told]
    for kind, uuid in going:
        try:
            gone = drop(node, uuid, call) if kind == "nic" else not drop_network(node, uuid)
        except NetcommonError as error:
            left.append(((kind, uuid), str(error)))
        else:
            left += [] if gone else [((kind, uuid), "")]
    return left


def _up(node: Node, uuid: str) -> Record | None:
    record = node.store.read(uuid)
    return record if record is not None and _is_up(node, record) else None


def _is_up(node: Node, record: Record) -> bool:
    return record.state in (UP, CLOSING, CHANGING) and not record.moved and alive(node, node.host.view(), record)
