"""change: options of a NIC that is up, by the same means as a second up, and kept for its next ones (runtime.wanted).

What is asked for is on disk as pending before anything is done. It counts from when the NIC has it: a change that does not hold leaves
the NIC, and what is kept of it, as they were (netcommon.lifecycle.way_back).
"""

from __future__ import annotations

import math
import os
from contextlib import suppress

from netcommon.lifecycle import changed_options, execute, run_effects, site_scripts
from netcommon.lifecycle.bring_up import BringUp
from netcommon.lifecycle.context import ADOPT, Outcome, about, alive, locks, to_its_end, usable
from netcommon.lifecycle.down import give_back, left_undone
from netcommon.lifecycle.migration import awaited
from netcommon.lifecycle.renamed_device import follow, name_of
from netcommon.lifecycle.stale_state import refuse_port
from netcommon.log import recording
from netcommon.operations.link import device_link
from netcommon.options.model import Options
from netcommon.options.schema import OPTIONS
from netcommon.options.shown import shown
from netcommon.options.sources import of_settings, options_of
from netcommon.options.tags import of_changed
from netcommon.plan.planner import effects, plan
from runtime import wanted
from runtime.environment import environment_of, is_twin, nic_from_environment
from runtime.errors import HostRefused, Interrupted, NetcommonError, NicInvalid, SettingsInvalid
from runtime.folder import refuse_unwritable
from runtime.nic import LOCAL, NetworkWanted
from runtime.record import CHANGING, CLOSING, UP
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.log import Log
    from netcommon.operations.base import Operation
    from netcommon.settings.model import Settings
    from runtime.locks import Locks
    from runtime.nic import Nic
    from runtime.record import Record
    from runtime.wanted import Wanted

    #: What has tags, and the revision as of which a registry has told them.
    Said = Wanted | NetworkWanted

    #: What is wanted of a NIC, made of what was wanted before.
    Edit = Callable[[Wanted], Wanted]

    #: execute.resolve, or what takes and gives the same.
    Resolve = Callable[[Node, View, Iterable[Operation], Sequence[Operation], str, Log], list[Operation]]

#: The longest time for which an option may be changed (seconds): ten years.
LONGEST = 10 * 366 * 86400.0


class Difference(NamedTuple):
    """Tell what a change comes to: the options that differ, with their values before and after, and the operations that go and come.

    What goes because another comes in its place is never undone: it holds until that does.
    """

    device: str  #: its name now
    options: tuple[tuple[str, object, object], ...]
    gone: tuple[Operation, ...]  #: what is undone
    replaced: tuple[Operation, ...]
    made: tuple[Operation, ...]
    released: tuple[Operation, ...] = ()  #: what goes from its record alone: others need it, or it is as it was before us already
    recorded: bool = False  #: what its record says of the NIC becomes another, such as tags that nothing follows from
    kept: str = ""  #: what is kept otherwise, though no option becomes another by that

    @property
    def any(self) -> bool:
        return bool(self.options or self.changes or self.recorded or self.kept)

    @property
    def changes(self) -> bool:
        """Tell whether anything becomes another on the host."""
        return bool(self.gone or self.replaced or self.made or self.released)


def setting(node: Node, sets: Mapping[str, str], unset: Iterable[str], seconds: float = 0.0) -> Edit:
    """Give what sets and unsets options on this node; ``seconds``: those that are set end after so long, 0 for never."""
    end = None
    if seconds:
        since = changed_options.moment(node)
        until = since._replace(monotonic=since.monotonic + seconds, wall=since.wall + seconds)
        end = wanted.End(since, until)
    unset = tuple(unset)
    return lambda before: before._replace(local=wanted.changed(before.local, sets, unset, end))


def unchanged(before: Wanted) -> Wanted:
    """Give what is wanted as it is: what has ended goes, and the NIC becomes what settings and tags say today."""
    return before


def ended(before: Wanted) -> Wanted:
    """Give the same where options have ended by themselves: what else becomes of the NIC nobody has asked for, so it is said."""
    return before


def change(
    node: Node,
    key: str,
    call: Call,
    edit: Edit = unchanged,
    tags: Sequence[str] | None = None,
    held_back: Callable[[Difference], None] | None = None,
    closing: bool = False,
    patience: float = math.inf,
    beside: Collection[str] = (),
) -> Outcome:
    """Makes the NIC of the record ``key`` what it would be with the options that ``edit`` wants, and keeps them; ``tags``: its new tags.

    An emulated twin of Xen's gets what is kept of its NIC, which is changed first, whatever ``edit`` wants.

    ``held_back``: only told what would differ; nothing is done, and what the host would refuse is raised as if it were.
    ``closing``: a NIC that waits for its device to go is changed too.
    ``patience``: how long locks are waited for (seconds), besides the call's own deadline.
    ``beside``: the UUIDs of NICs that would be changed likewise before, where that is only told.

    Raises NicInvalid for a NIC that is not up and for options that it cannot have, SettingsInvalid where the settings cannot be read;
    HostRefused or TryAgain where the host refuses: then the NIC is as before.
    """
    usable(node.settings)
    for _attempt in range(5):
        seen = node.store.read(key)
        if seen is None:
            raise _not_up(key)
        names = {seen.device, name_of(node, node.host.view(), seen)}
        if held_back is not None:
            _refuse_alone(node, seen, edit, beside)
            held_back(_foretold(node, seen, *_asked(node, seen, edit, tags, call, closing), call.log))
            return Outcome(False, "")
        with locks(node, call._replace(deadline=min(call.deadline, node.clock.now() + patience))) as held:
            held.devices(names)
            held.uuids({seen.uuid})
            record = node.store.read(key)
            if record is None or record.device != seen.device:
                continue
            outcome = _changed(node, record, call, edit, tags, held, closing)
        return outcome()
    raise _not_up(key)


def _not_up(name: str) -> NicInvalid:
    return NicInvalid("NIC", name, "a NIC that is up: netcommon list shows them")


def refuse(node: Node, record: Record, call: Call, edit: Edit = unchanged, tags: Sequence[str] | None = None) -> None:
    """Raise NicInvalid where the NIC cannot be changed so, SettingsInvalid where a template or an extension that it needs is wrong.

    Of several NICs none is touched if one cannot. Nothing is said or set aside.
    """
    log = recording()[0]
    try:
        nic = _asked(node, record, edit, tags, call._replace(log=log), look=True)[1]
        difference(node, execute.once(node), record, nic, log)  # a plan alone reads no template
    except (NicInvalid, SettingsInvalid):
        raise
    except NetcommonError:
        pass  # the host's affair, not that of who has named the NICs


def _asked(
    node: Node, record: Record, edit: Edit, tags: Sequence[str] | None, call: Call, closing: bool = False, look: bool = False
) -> tuple[Wanted, Nic]:
    """Give what is to be wanted of the NIC, and the NIC with it. Raises NicInvalid, and HostRefused where it is not ours to change.

    ``look``: a damaged file stays where it is.
    """
    view = node.host.view()
    changeable = record.state in (UP, CLOSING, CHANGING) and (closing or not record.closing)
    if not changeable or record.moved or not alive(node, view, record):
        raise _not_up(record.nic.label)
    kept = changed_options.kept_uuid(node, record.nic)
    wanted.refuse_newer(node.paths, kept)
    standing = _standing(record)
    nic = follow(node, view, standing).nic
    if site_scripts.set_up_instead(node, standing):
        raise HostRefused(f"{nic.label} is set up by a script of the site's, instead of us", "change it where the script takes it from")
    problems: list[str] = []
    now = changed_options.moment(node)
    before = changed_options.read(node, kept, problems, look)
    after = edit(before).without(now)
    for problem in problems:
        call.log.error(problem)
    adopted = standing.door == ADOPT  # its tags are nobody's words
    if tags is None and _news(after, before, nic.tags, nic.index, adopted):
        tags = after.tags
        nic = _moved(nic, after.position)
    if tags is not None:
        nic = _tagged(nic, "TAGS", tags)
    unfit: list[str] = []
    held = standing.nic.told
    told = _told(node, nic, after, held, unfit, look)
    if told is not None and nic.network.uuid and _news(told, held, nic.network.tags):
        nic = _tagged(nic, "NETWORK_TAGS", told.tags or ())
    made = edit(wanted.NOTHING)
    asked = {each.option for each in (*made.local, *made.registry)}
    force, has = after.force(now), {each.option for each in standing.nic.wanted}
    known = tuple(each for each in force if each.source == LOCAL or each.option in has or changed_options.is_known(each))
    list(of_changed(each for each in known if each.option in asked))
    # what the NIC came up without keeps no other option from its end
    changed_options.refuse_unknown(node, kept, [each for each in known if edit is not ended or each.option in has])
    fit = changed_options.fitting(node, nic, changed_options.not_without(known, standing.nic, asked), unfit, asked)
    nic = nic._replace(wanted=fit, revision=changed_options.partly(after.revision, force, fit), told=told)
    for text in unfit:
        call.log.error(text)
    plan(nic, node.settings)  # an option may be wrong for this NIC alone
    for option in OPTIONS:
        if any(each.option == option.name and each not in standing.nic.wanted for each in nic.wanted) and (void := option.void(nic)):
            call.log.warning(f"{option.name} means {void}")
    return after, nic


def _told(node: Node, nic: Nic, after: Wanted, held: NetworkWanted | None, problems: list[str], look: bool) -> NetworkWanted | None:
    """Give what a registry says of the NIC's network. Where another address waits for a restart, its network does too: ``held`` stays."""
    has = nic.ip.partition("/")[0]
    if nic.network.uuid or not has or after.ip in ("", has):
        return changed_options.told_of(node, nic, after.network, problems, look)
    return held and (changed_options.told_of(node, nic, held.uuid, problems, look) or held)


def _news(told: Said, before: Said | None, tags: Sequence[str], index: int | None = None, adopted: bool = False) -> bool:
    """Tell whether a Ganeti cluster has changed tags, or the index by which they are read, since the NIC got those that it has.

    That is known only where the same registry has told before what the NIC has. What is told first, of another epoch (a backup that was
    restored) or beside an up with other tags may be older than what the hypervisor has said to that up: an importer may have been away.
    ``adopted``: the tags that the NIC has are not its hypervisor's, so every change is news. The order of tags says nothing.
    """
    if told.tags is None or before is None or before.tags is None or _epoch(told) != _epoch(before):
        return False
    has, was, now = ({*tags}, index), _meant(before, index), _meant(told, index)
    return (was == has or adopted) and now not in (was, has)


def _meant(said: Said, index: int | None) -> tuple[set[str], int | None]:
    """Give tags as they were told, and the index by which they are read: ``index`` where nobody says it."""
    position = None if isinstance(said, NetworkWanted) else said.position
    return set(said.tags or ()), index if position is None else position


def _epoch(said: Said) -> str:
    return said.revision.rpartition(":")[0]


def _tagged(nic: Nic, variable: str, tags: Sequence[str]) -> Nic:
    """Give the NIC with the tags in a variable: itself, not what its variables would make of it, which a second device of Xen's is not."""
    text = " ".join(tags)
    given = nic_from_environment({**environment_of(nic), variable: text})
    network = nic.network._replace(tags=given.network.tags)
    return nic._replace(tags=given.tags, network=network, environment={**nic.environment, variable: text})


def _moved(nic: Nic, position: int | None) -> Nic:
    """Give the NIC at its position of today. One of Xen keeps its own: by that it and its emulated twin know each other."""
    if position is None or nic.index is None or "XENBUS_PATH" in nic.environment:
        return nic
    return nic._replace(index=position, environment={**nic.environment, "INTERFACE_INDEX": str(position)})


def _standing(record: Record) -> Record:
    """Give what the NIC is, and goes back to first where a change of it was cut off: what that was to make of it nobody asks for now."""
    return record.before or record


def _resolve_each(
    node: Node, view: View, planned: Iterable[Operation], earlier: Sequence[Operation], record_key: str, log: Log
) -> list[Operation]:
    """Resolve what the host does not refuse, and give the rest as it is on record."""
    return execute.resolve_each(node, view, planned, earlier, record_key, log)[0]


def _refuse_alone(node: Node, record: Record, edit: Edit, changed: Collection[str]) -> None:
    """Raise HostRefused for an emulated twin that is to be another than its NIC. ``changed``: UUIDs of NICs that are changed likewise."""
    if is_twin(record.nic) and (uuid := changed_options.kept_uuid(node, record.nic)) not in changed:
        before = changed_options.read(node, uuid, [], look=True)
        if edit(before) != before:
            raise _alone(record)


def _alone(record: Record) -> HostRefused:
    return HostRefused(f"{record.device} is an emulated twin: it has the options of its NIC, and those were not changed")


def _foretold(node: Node, record: Record, after: Wanted, nic: Nic, log: Log) -> Difference:
    """Say what a change would lose and make; raise what it would raise for what can be seen of the host before it is touched."""
    before = changed_options.read(node, changed_options.kept_uuid(node, record.nic), [], look=True)
    if after != before and not is_twin(record.nic):
        refuse_unwritable(node.paths.wanted)
    view = execute.once(node)
    refuse_port(view, device_link(view, nic.interface), nic.mode)
    found = difference(node, view, record, nic, log, execute.resolve)
    undoing = execute.undo(node, view, found.gone, record.key, recording()[0])
    ended = [operation for operation, _what in (*undoing.pairs, *undoing.failures)]
    things = {operation.identity() for operation in ended} - {""}  # one of two operations about a thing may undo it for both
    gone = [one for one in found.gone if one in ended or one.identity() in things]
    found = found._replace(
        gone=tuple(gone),
        released=tuple(one for one in found.gone if one not in gone),
        recorded=record.state == CHANGING or follow(node, view, record).nic.description != nic.description,
        kept="" if is_twin(nic) else _kept_otherwise(before, after),
    )
    if found.any or (record.nic, record.by_settings) != (nic, of_settings(nic, node.settings)):
        refuse_unwritable(os.path.dirname(node.store.path(record.key)))
    return found


def difference(node: Node, view: View, record: Record, nic: Nic, log: Log, resolve: Resolve = _resolve_each) -> Difference:
    """Say what a NIC on record would lose and get as ``nic``, with today's settings. Raises NicInvalid where they do not fit it.

    ``resolve``: by default what the host refuses is as it is on record; execute.resolve raises it.
    """
    standing = follow(node, view, _standing(record))
    recorded = execute.decode(standing)[0]
    later = awaited(node, standing)
    wanted_now = [one for one in plan(nic, node.settings) if not (later and one.exclusive())]
    planned = resolve(node, view, wanted_now, recorded, record.key, log)
    among = execute.Among(planned)
    outdated = among.lacks(recorded)
    gone = among.leaves(outdated)
    new = {*execute.Among(recorded).lacks(planned), *(operation for operation, _text in execute.drift(view, planned))}
    made = [operation for operation in planned if operation in new]
    replaced = tuple(operation for operation in outdated if operation not in gone)
    return Difference(standing.device, _differing(node, standing, nic), tuple(gone), replaced, tuple(made))


def _differing(node: Node, standing: Record, nic: Nic) -> tuple[tuple[str, object, object], ...]:
    """List the options that are others than those that the NIC came up with, with both values.

    What its mode does not have counts only where it was changed for this NIC: the settings are for NICs of every mode.
    """
    settings = settings_then(standing, node.settings)
    changed = {each.option for each in (*standing.nic.wanted, *nic.wanted)}
    had = {option.name for option in OPTIONS if option.name in changed or not option.void(nic)}
    found = differing(_options(standing.nic, settings), _options(nic, node.settings))
    return tuple(one for one in found if one[0] in had)


def settings_then(standing: Record, settings: Settings) -> Settings:
    """Give the settings with the options that they gave a NIC when it came up, as far as its record says it."""
    if standing.by_settings is None:
        return settings
    known = {name: value for name, value in standing.by_settings.items() if name in Options._fields}
    return settings._replace(nic=known, networks={})


def _options(nic: Nic, settings: Settings) -> Options | None:
    try:
        return options_of(nic, settings)
    except NicInvalid:  # by these settings its tags mean nothing any more
        return None


def differing(before: Options | None, after: Options | None) -> tuple[tuple[str, object, object], ...]:
    """List the options whose values differ, with both."""
    old, new = (before or after, after or before)
    if old is None or new is None:
        return ()
    return tuple((name, getattr(old, name), getattr(new, name)) for name in new._fields if getattr(old, name) != getattr(new, name))


def _changed(
    node: Node, record: Record, call: Call, edit: Edit, tags: Sequence[str] | None, held: Locks, closing: bool
) -> Callable[[], Outcome]:
    """Does it under the locks; returns what is left to be done without them, which gives the outcome."""
    after, nic = _asked(node, record, unchanged if is_twin(record.nic) else edit, tags, call, closing)
    call = about(call, record)
    before = changed_options.settle(node, record.nic, [])
    if is_twin(record.nic) and edit(before) != before:
        raise _alone(record)
    more = _what_else(node, record, nic) if edit is not unchanged and tags is None else ""
    what = _differing(node, _standing(record), nic)
    pending = before if after == before else before._replace(pending=after)  # what is kept as it is needs no file to be written
    _keep(node, nic, before, pending)
    attempt = BringUp(node, nic, call, held, run_scripts=False, changes=True)
    try:
        outcome = attempt.run(record, None)
    except BaseException as error:  # of Ctrl-C too the other NICs know nothing
        failure = error
        try:
            _keep(node, nic, pending, after if attempt.done else before)  # Ctrl-C may come when it holds already
        except NetcommonError as second:  # it does not count: the record does not say that the NIC has it
            call.log.warning(f"it does not hold, and is still written down as pending: {second}")

        def failed() -> Outcome:
            give_back(node, call)
            if attempt.settled is not None:
                run_effects.arrived(node, attempt.settled, call.log, seen=attempt.view)
            raise failure

        return failed
    cut: Interrupted | None = None

    def keep() -> None:
        _keep(node, nic, pending, after)

    try:
        to_its_end(keep, keep, call.log)
    except Interrupted as error:
        cut = error
    except NetcommonError as error:  # it holds: who reads that it is pending sees on the record what became of it
        call.log.warning(f"it holds, and is still written down as pending: {error}")

    def done() -> Outcome:
        try:
            if cut is not None:
                raise cut
            give_back(node, call)
            if attempt.settled is not None:
                elsewhere = _to_be_told(node, record, attempt.settled)
                run_effects.arrived(node, attempt.settled, call.log, seen=attempt.view, elsewhere=elsewhere)
            if what:
                site_scripts.changed(node, call, nic, what)
        except Interrupted as error:
            left_undone(call, error)
        if more:
            call.log.warning(f"it was brought up to date with today's settings too: {more}")
        said = in_words(what) or _kept_otherwise(before, after)
        done_so = outcome.changed or record.state == CHANGING
        text = f"{nic.label} on {nic.interface}: {said or ('brought up to date' if done_so else 'is so already')}"
        return Outcome(done_so or bool(said), text)

    return done


def _what_else(node: Node, record: Record, nic: Nic) -> str:
    """Say what is done along with what was asked: what today's settings make another than the NIC came up with, and what has drifted."""
    with suppress(NetcommonError):
        view, silent = execute.once(node), recording()[0]
        standing = follow(node, view, _standing(record))
        found = difference(node, view, record, standing.nic, silent)
        done = difference(node, view, record, nic, silent)
        # what a change that was cut off has left undone is put back, and that is said
        made = execute.Among(execute.decode(standing)[0]).lacks(found.made) if record.state == CHANGING else found.made
        more = [in_words([each for each in found.options if each in done.options])]
        more += [operation.undo() for operation in found.gone if operation in done.gone]
        more += [operation.describe() for operation in made if operation in done.made]
        return "; ".join(filter(None, more))
    return ""


def in_words(options: Iterable[tuple[str, object, object]]) -> str:
    """Say which options differ, each with its values after and before; "" for none."""
    return "; ".join(f"{name} is {shown(name, now)}, was {shown(name, was)}" for name, was, now in options)


def _kept_otherwise(before: Wanted, after: Wanted) -> str:
    """Say which options are kept no more, or for another time, though the NIC has not become another by that."""
    kept, had = ({each.option: each for each in part} for part in (after.local, before.local))
    gone = [name for name in had if name not in kept]
    longer = [name for name in kept if name in had and (had[name].end is None) != (kept[name].end is None)]
    said = [f"no change of {', '.join(gone)} is kept any more"] if gone else []
    said += [f"{name} holds {'until it is unset' if kept[name].end is None else 'for a while'}" for name in longer]
    return "; ".join(said)


def _to_be_told(node: Node, before: Record, after: Record) -> bool:
    """Tell whether what says where the guest is has changed, or what is told of that: else nobody is told again."""
    if before.state == CHANGING:
        return True  # its frames may have come from where the change that was cut off has put it
    old, new = (execute.decode(record)[0] for record in (before, after))
    changed = [*execute.Among(old).lacks(new), *execute.Among(new).lacks(old)]
    if any(operation.exclusive() for operation in changed):
        return True
    with suppress(NetcommonError):
        return effects(before.nic, node.settings) != effects(after.nic, node.settings)
    return True


def _keep(node: Node, nic: Nic, before: Wanted, after: Wanted) -> None:
    """Write what is wanted of the NIC, if that is another than before; of an emulated twin its NIC's file says it."""
    if after != before and not is_twin(nic):
        wanted.write(node.paths, nic.uuid, after)


def differ(node: Node, records: Iterable[Record]) -> int:
    """Count the NICs that are up and would be others by today's settings; one that these do not fit counts too."""
    view, log, number = node.host.snapshot(), recording()[0], 0
    for record in records:
        if record.state != UP or record.moved or not alive(node, view, record) or site_scripts.set_up_instead(node, record):
            continue
        try:
            found = difference(node, view, record, follow(node, view, record).nic, log)
            number += found.changes
        except NetcommonError:
            number += 1
    return number
