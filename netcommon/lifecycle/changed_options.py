"""Tell what is wanted of a NIC beyond what its hypervisor says (runtime.wanted): what is in force, and what ends."""

from __future__ import annotations

from netcommon.lifecycle.context import Outcome, alive, any_changed, locks
from runtime.environment import described_uuid, emulated_uuid, is_twin
from runtime.errors import HostRefused, NetcommonError, NicInvalid, escaped
from runtime.nic import LOCAL, REGISTRY
from runtime.record import CLOSING, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from netcommon.lifecycle.context import Call, Node
    from netcommon.log import Log
    from runtime.nic import Changed, NetworkWanted, Nic
    from runtime.record import Record
    from runtime.wanted import Moment, Wanted


def moment(node: Node) -> Moment:
    """Give the time as both clocks have it."""
    from runtime.wanted import Moment

    return Moment(node.identity.boot, node.clock.now(), node.clock.wall())


def with_wanted(node: Node, nic: Nic, log: Log) -> Nic:
    """Give ``nic`` with what was changed of it and has not ended, and with what a registry says of its network.

    A file that is damaged is put aside, and that is an error in the log. Nothing counts where others could have written it, or where it
    cannot be read; that is an error in the log too. An option or a value that this version does not know, such as a newer one's, stays in
    the file, and keeps no other from the NIC (``fitting``).
    """
    nic = nic._replace(wanted=(), revision="", told=None)
    if not any_changed(node):
        return nic
    problems: list[str] = []
    try:
        found = settle(node, nic, problems)
    except HostRefused as error:
        log.error(f"{nic.label} has its tags' and settings' options, whatever was changed: {error}")
        return nic
    now = moment(node)
    found = found.without(now)
    force = fitting(node, nic, found.force(now), problems)
    try:
        told = told_of(node, nic, found.network, problems)
    except HostRefused as error:
        problems.append(f"guests are told what the settings say of their networks, whatever the registry says: {error}")
        told = None
    for problem in problems:
        log.error(problem)
    return nic._replace(wanted=force, revision=partly(found.revision, found.force(now), force), told=told)


def with_fitting(node: Node, nic: Nic, log: Log) -> Nic:
    """Give ``nic`` with what it can have of what is wanted of it; what it cannot is an error in the log."""
    problems: list[str] = []
    force = fitting(node, nic, nic.wanted, problems)
    for problem in problems:
        log.error(problem)
    return nic._replace(wanted=force, revision=partly(nic.revision, nic.wanted, force))


def told_of(node: Node, nic: Nic, network: str, problems: list[str], look: bool = False) -> NetworkWanted | None:
    """Give what a registry says of the NIC's network: of that which its hypervisor names, else of ``network``. Raises HostRefused."""
    uuid = nic.network.uuid or network
    if not uuid:
        return None
    from runtime import networks

    return networks.read(node.paths, uuid, problems, look or node.store.readonly)


def fitting(node: Node, nic: Nic, found: tuple[Changed, ...], problems: list[str], asked: Collection[str] = ()) -> tuple[Changed, ...]:
    """Select of ``found``, weakest first, what ``nic`` can have as it is today; ``problems`` says what it cannot, and how to take it back.

    What was changed fitted the NIC then, which may have another mode by now, or no MAC: that keeps no guest from its start. ``asked``: the
    options that are asked for just now stay, whatever they are, and the planner refuses them.
    """
    if not found or _refusal(node, nic, found) is None:
        return found
    rest = [each for each in found if each.option not in asked]
    rest.reverse()  # the strongest first: what it hides need not fit
    kept = [each for each in found if each.option in asked]

    def refusal(more: Iterable[Changed]) -> NicInvalid | None:
        having = [*kept, *more]
        return _refusal(node, nic, tuple(each for each in found if each in having))

    # a NIC may need one of them, such as the only address of a routed one
    needed = next(filter(lambda some: refusal(some) is None, ((), *((each,) for each in rest))), None)
    if needed is None:
        return tuple(kept)  # it cannot be had without them either, and the planner says why
    kept += needed
    for each in rest:
        if each in kept:
            continue
        if (error := refusal([each])) is None:
            kept.append(each)
        else:
            remedy = f": netcommon change {nic.uuid} --unset {each.option} takes it back" if each.source == LOCAL else ""
            who = "change" if each.source == LOCAL else "the registry"
            problems.append(f"{nic.label} is without {each.option}={each.value}, set by {who}: {error}{remedy}")
    return tuple(each for each in found if each in kept)


def partly(revision: str, wanted: Iterable[Changed], has: Collection[Changed]) -> str:
    """Give the revision of a NIC that ``has`` this of what is wanted: as of 0, which nobody has, where some of a registry's is left out."""
    if not revision or all(each in has for each in wanted if each.source == REGISTRY):
        return revision
    from runtime.wanted import in_part

    return in_part(revision)


def not_without(found: tuple[Changed, ...], standing: Nic, asked: Collection[str] = ()) -> tuple[Changed, ...]:
    """Select of ``found`` what a NIC that is up is to have: not what of a registry's its up had to leave out, until it is ``asked`` for."""
    if not standing.revision.endswith(":0"):
        return found
    return tuple(each for each in found if each.source != REGISTRY or each.option in asked or each in standing.wanted)


def is_known(one: Changed) -> bool:
    """Tell whether this version knows an option, and its value."""
    from netcommon.options.tags import of_changed

    try:
        return bool(list(of_changed((one,))))
    except NicInvalid:
        return False


def refuse_unknown(node: Node, uuid: str, changed: Iterable[Changed]) -> None:
    """Raise HostRefused for an option or a value that this version does not know, of what is kept of the NIC ``uuid``.

    A newer version may have set it, and may have done for it on the host what this one would not do again.
    """
    for each in changed:
        if not is_known(each):
            what = f"{node.paths.wanted}/{uuid}.json has {each.option}={escaped(each.value)}, which this version does not know"
            remedy = f"nothing is changed; netcommon change {uuid} --unset {each.option} takes it back" if each.source == LOCAL else ""
            raise HostRefused(what, remedy)


def _refusal(node: Node, nic: Nic, changed: tuple[Changed, ...]) -> NicInvalid | None:
    """Tell why ``nic`` cannot have what was ``changed``; None where it can, or where something else is wrong, which who plans it says."""
    from netcommon.plan.planner import plan

    try:
        plan(nic._replace(wanted=changed), node.settings)
    except NicInvalid as error:
        return error
    except NetcommonError:
        pass
    return None


def read(node: Node, uuid: str, problems: list[str], look: bool = False) -> Wanted:
    """Give what is wanted of the NIC (runtime.wanted.read), with what was pending decided. ``look``: a damaged file stays."""
    from runtime import wanted

    return decided(node, uuid, wanted.read(node.paths, uuid, problems, look or node.store.readonly))


def settle(node: Node, nic: Nic, problems: list[str]) -> Wanted:
    """As ``read``; what became of what is pending is on disk then. Under the lock of the UUID, before the record says something else.

    An emulated twin has what its NIC has; it writes nothing, since the lock of that is not held for it.
    """
    from runtime import wanted

    uuid = kept_uuid(node, nic)
    found = wanted.read(node.paths, uuid, problems, node.store.readonly)
    settled = decided(node, uuid, found)
    if settled != found and uuid == nic.uuid and not node.store.readonly:
        try:
            wanted.write(node.paths, uuid, settled)
        except NetcommonError as error:  # a full disk: it is decided again by whoever reads it next
            problems.append(f"what was changed may not be remembered: {error}")
    return settled


def decided(node: Node, uuid: str, found: Wanted) -> Wanted:
    """Say what became of what is pending: a change holds from the moment when the NIC's record says so, and a kill may come right then."""
    if found.pending is None:
        return found
    try:
        record = node.store.read(uuid)
    except NetcommonError:
        record = None
    if record is None or record.state not in (UP, CLOSING):
        return found._replace(pending=None)
    has, pending = record.nic, found.pending
    # what it cannot have is pending all the same
    fit = fitting(node, has, not_without(pending.whole, has), [])
    revision = partly(pending.revision, pending.whole, fit)
    return pending if (has.revision, {*has.wanted}) == (revision, {*fit}) else found._replace(pending=None)


def take_back(node: Node, uuid: str, options: Collection[str], call: Call) -> Outcome:
    """Unset options of a NIC that is not up, so that its next up is without them. The log has what is wrong with their file.

    Raises NicInvalid where the NIC is up by now, HostRefused where it is another network namespace's or the file cannot be written,
    TryAgain where somebody else is at work on the NIC.
    """
    from runtime import wanted

    def edited() -> tuple[Wanted, Wanted]:
        record, problems = node.store.read(uuid), list[str]()
        if record is not None and alive(node, node.host.view(), record):
            raise NicInvalid("NIC", uuid, "a NIC that is not up")
        if record is None and node.store.elsewhere(uuid):
            raise HostRefused(f"NIC {uuid} is up in another network namespace", "change it there")
        wanted.refuse_newer(node.paths, uuid)
        there = wanted.read(node.paths, uuid, problems, node.store.readonly)
        for problem in problems:
            call.log.error(problem)
        before = decided(node, uuid, there)
        return there, before._replace(local=wanted.changed(before.local, {}, options, None))

    if node.store.readonly:
        there, after = edited()
    else:
        with locks(node, call) as held:
            held.uuids({uuid})
            there, after = edited()
            if after != there:
                wanted.write(node.paths, uuid, after)
    gone = ", ".join(each.option for each in there.local if each not in after.local)
    text = f"NIC {uuid} is not up: {f'its next up is without {gone}, as it was set' if gone else 'nothing such is kept of it'}"
    return Outcome(bool(gone), text)


def kept_uuid(node: Node, nic: Nic) -> str:
    """Give the UUID under which is kept what was changed of ``nic``: of an emulated twin of Xen's its NIC's.

    A twin whose variables are damaged on record is known by its own UUID, which is made from that of its NIC. Raises HostRefused where
    that is on no record either: nobody can tell then what is kept of the twin.
    """
    uuid = described_uuid(nic) if is_twin(nic) else nic.uuid
    if not uuid:
        of_instance = (each.nic for each in node.store.each([]) if each.nic.instance == nic.instance)
        uuid = next((one.uuid for one in of_instance if emulated_uuid(one.instance, one.index, one.uuid) == nic.uuid), "")
    if not uuid:
        what = f"the record of {nic.label} on {nic.interface}, an emulated twin, is damaged"
        raise HostRefused(f"{what}: it does not say of which NIC", "start the guest anew")
    return uuid


def twin_of(node: Node, nic: Nic) -> Record | None:
    """Give the record of the emulated twin of a NIC of Xen; None where there is none."""
    if nic.index is None or "XENBUS_PATH" not in nic.environment:
        return None
    return node.store.read(emulated_uuid(nic.instance, nic.index, nic.uuid))


def forget(node: Node, uuid: str, log: Log) -> None:
    """Drop what was changed on this node of a NIC that has left it for good, unless it is up in another network namespace.

    What a registry wants of the NIC stays: it may come back.
    """
    if any_changed(node):
        from runtime import wanted

        try:
            if node.store.elsewhere(uuid):
                return
            found = wanted.read(node.paths, uuid, [], readonly=True)
            kept = decided(node, uuid, found).by_registry
            if kept.empty:
                gone = wanted.remove(node.paths, uuid)
            else:
                gone = bool(found.local or found.pending)
                if kept != found:
                    wanted.write(node.paths, uuid, kept)
            if gone:
                log.info("the options that were changed on this node are forgotten")
        except NetcommonError as error:
            log.error(f"the options that were changed on this node are kept: {error}")
