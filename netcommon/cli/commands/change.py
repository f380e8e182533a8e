"""netcommon change: options of NICs that are up, at once and from then on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import click

from netcommon.cli.app import App
from netcommon.cli.duration import seconds_of
from netcommon.cli.names import complete, defined, matching, meant_by, order
from netcommon.cli.output import answer, json_option, say
from netcommon.cli.results import Results
from netcommon.host.api.host import View
from netcommon.lifecycle.change import Difference, change, refuse, setting, unchanged
from netcommon.lifecycle.changed_options import kept_uuid, read, take_back, twin_of
from netcommon.lifecycle.context import Node, Outcome, alive, taken_down
from netcommon.operations.base import Operation
from netcommon.options.shown import shown
from netcommon.options.tags import KINDS, value_of
from runtime import membership, wanted
from runtime.environment import is_twin
from runtime.errors import HostRefused, NicInvalid, escaped
from runtime.nic import Nic
from runtime.record import CHANGING, UP, Record

WHICH = "name NICs, or give --all: one of the two"


@click.command("change")
@click.argument("words", nargs=-1, metavar="[NIC]... [OPTION=VALUE]...", shell_complete=complete)
@click.option("--unset", multiple=True, metavar="OPTION", help="Take back what an earlier change has set; may be given several times.")
@click.option("--for", "duration", default=None, metavar="DURATION", help="Only for so long, such as 90s, 30m, 2h or 7d; then as before.")
@click.option("--all", "every", is_flag=True, help="Every NIC that is up; without options: as today's settings and the tags on record say.")
@click.option("--tags-from", default=None, metavar="FILE", help='The instance\'s new tags, one a line or parted by spaces; "-" is stdin.')
@click.option("--dry-run", is_flag=True, help="Only say what would differ.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    duration: str | None,
    every: bool,
    tags_from: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change options of NICs that are up: only what differs is done, and if it cannot be done, nothing is.

    Every option of `netcommon plan` will do. What is set holds until it is unset: over restarts of the guest and reboots of this node,
    and before tags and settings. It is of this node alone: a guest that migrates away has its tags' options there. On a node that has
    joined a registry options are set with --for alone. --unset alone takes it back of a NIC that is not up too, which is named by its
    UUID, or as it is defined. --all without options, and --tags-from, do what has been changed in the settings, or in the instance's
    tags, which a hypervisor tells only at the next start.

    A word that begins with an option and "=" is that option, also where a NIC is called so: such a NIC is named by its UUID.
    """
    app: App = ctx.obj
    seconds = 0.0 if duration is None else seconds_of(duration)
    if not (words or every):
        raise click.UsageError(WHICH)
    node = app.node(readonly=dry_run)
    known, view = _on_record(app, node), node.host.view()
    names, sets = _parted(app, words, every, known, view)
    if not (names or every) or (names and every):
        raise click.UsageError(WHICH)
    if not (sets or unset or every or tags_from is not None):
        raise click.UsageError("name what is to change: OPTION=VALUE, --unset or --tags-from")
    if seconds and not sets:
        raise click.UsageError("--for is about options that are set")
    for name in unset:
        if name in sets:
            raise NicInvalid("--unset", name, "an option that is not set by the same command")
    if sets and not seconds:
        _refuse_for_good(app, sets)
    tags = None if tags_from is None else _tags(tags_from)
    down = _down(node, known, view, names) if unset and not (sets or tags is not None or seconds) else {}
    up = [name for name in names if not down.get(name)]
    records = _with_twins(node, meant_by(node.store, known, up, view), up) if names else _changeable(known)
    if tags is not None and len(instances := sorted({record.nic.instance for record in records})) > 1:
        raise NicInvalid("--tags-from", str(tags_from), f"NICs of one instance, whose tags these are, not of {', '.join(instances)}")
    for name in set(unset).difference(KINDS):
        _refuse_never_set(node, name, [*(record.nic for record in records), *(uuid for nics in down.values() for uuid in nics)])
    edit = setting(node, sets, unset, seconds) if sets or unset else unchanged
    results, refused, found = Results(), Results(), list[Difference | None]()
    for record in records if names else ():  # with --all what one cannot have keeps no other from it
        with refused.of(record.nic):
            refuse(node, record, app.call(nic=record.nic), edit, tags)
    if refused.status:
        refused.rows = [row for row in refused.rows if row["error"]]
        ctx.exit(_foretell(refused, [None] * len(refused.rows), as_json) if dry_run else refused.show(as_json))
    for uuid, nic in {uuid: nic for nics in down.values() for uuid, nic in nics.items()}.items():
        with results.of(nic, uuid):
            results.rows[-1].setdefault("device", "")
            results.rows[-1]["uuid"] = uuid
            results.done(take_back(node, uuid, unset, app.call(nic=nic)))
        found.append(None)
    view, changed = node.host.view(), set[str]()
    for record in records:
        told: list[Difference] = []
        with results.of(record.nic):
            if every and not alive(node, view, record):
                why = taken_down(view, record) or f"its device {record.device} is gone"
                results.done(Outcome(False, f"{record.nic.label}: {why}, which gc cleans up after"))
            else:
                held_back = told.append if dry_run else None
                results.done(change(node, record.key, app.call(nic=record.nic), edit, tags, held_back, beside=changed))
                changed.add(record.uuid)
        found.append(told[0] if told else None)
    ctx.exit(_foretell(results, found, as_json) if dry_run else results.show(as_json))


def _refuse_never_set(node: Node, option: str, nics: Iterable[Nic | str]) -> None:
    """Raise NicInvalid for an option that there is not, unless it is kept of one of the NICs, or UUIDs: a newer version may have set it."""
    for each in nics:
        kept = read(node, each if isinstance(each, str) else kept_uuid(node, each), [], look=True)
        if option in {one.option for one in kept.local}:
            return
    raise NicInvalid("--unset", option, f"an option, one of {', '.join(sorted(KINDS))}")


def _parted(app: App, words: Sequence[str], every: bool, records: Sequence[Record], view: View) -> tuple[list[str], dict[str, str]]:
    """Part names of NICs from OPTION=VALUE: the name of a device, an instance or a label may have a "=" too.

    A word is the option where it begins with one, whatever others call their NICs: that is said, and keeps nobody from the option. Raises
    NicInvalid for an option that is none, for a value that it cannot have, and for a word that is a NIC's name too where no other word
    names a NIC, nor ``every`` does.
    """
    names, sets = list[str](), dict[str, str]()
    words_of_options = [word for word in words if "=" in word and word.partition("=")[0] in KINDS]
    for word in words:
        if word in words_of_options:
            continue
        if "=" in word and not (matching(records, word, view=view) or _defined(app, word)):
            value_of(*word.split("=", 1))  # it raises: there is no such option
        names.append(word)
    for word in words_of_options:
        option, _, value = word.partition("=")
        if option in sets:
            raise NicInvalid("OPTION=VALUE", word, f"{option} once")
        if uuids := ", ".join(sorted((_called(records, word, view) | _defined(app, word)) - {name.lower() for name in names})):
            if not (names or every):
                raise NicInvalid(
                    "OPTION=VALUE", word, f"the name of a NIC besides it: a NIC is called so too, and is named by its UUID, {uuids}"
                )
            say(f"netcommon: {escaped(word)} is the option: the NIC that is called so is named by {uuids}", err=True)
        value_of(option, value)
        sets[option] = value
    return names, sets


def _called(records: Sequence[Record], word: str, view: View) -> set[str]:
    """Give the UUIDs of the NICs that ``word`` would mean if it were no option's; of those of one INSTANCE/INDEX, all of them."""
    try:
        return {record.uuid for record in matching(records, word, view=view)}
    except NicInvalid:
        return {record.uuid for record in records if record.nic.label == word}


def _defined(app: App, word: str) -> set[str]:
    """Give the UUID of the NIC that is defined, up or not, and that ``word`` would mean; none where there is none, or are several."""
    with suppress(NicInvalid):
        return {defined(app.paths, word).uuid}
    return set()


def _refuse_for_good(app: App, sets: Mapping[str, str]) -> None:
    """Raise HostRefused on a node that has joined a registry: what holds for good is set there, for every node that the guest comes to."""
    if membership.read(app.paths) is not None:
        there = " ".join(f"options.{name}={shlex.quote(value)}" for name, value in sets.items())
        raise HostRefused(
            "this node has joined a registry, where options are set for good: here they are set for a while",
            f"give --for, such as --for 2h, or set them there: netcommon registry nic set NIC {there}",
        )


def _tags(path: str) -> list[str]:
    """Read tags. Raises NicInvalid."""
    try:
        if path == "-":
            if tags := sys.stdin.read().split():
                return tags
            raise NicInvalid("--tags-from", path, "tags: a command in front of a pipe may have failed; of none at all an empty file tells")
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except (OSError, ValueError) as error:
        raise NicInvalid("--tags-from", path, f"a file of tags that can be read: {error}") from None


def _on_record(app: App, node: Node) -> list[Record]:
    """Read all records; what is wrong with others goes to the log."""
    records, problems = node.store.all()
    for problem in problems:
        app.log.warning(problem)
    return records


def _down(node: Node, records: Sequence[Record], view: View, names: Sequence[str]) -> dict[str, dict[str, Nic | None]]:
    """Give, by the names that mean only NICs that are not up, those of which something is kept: UUID and, where it is known, NIC."""
    kept = set(wanted.uuids(node.paths))
    found: dict[str, dict[str, Nic | None]] = {}
    for name in names if kept else ():
        meant: dict[str, Nic | None] = {name.lower(): None}
        if on_record := matching(records, name, view=view):
            meant = {} if any(alive(node, view, each) for each in on_record) else {each.uuid: each.nic for each in on_record}
        else:
            with suppress(NicInvalid):
                nic = defined(node.paths, name)
                meant = {nic.uuid: nic}
        found[name] = {uuid: nic for uuid, nic in meant.items() if uuid in kept}
    return found


def _changeable(records: Sequence[Record]) -> list[Record]:
    """Those of NICs that are up, in the order in which people look for them, emulated twins behind."""
    return _twins_last(record for record in sorted(records, key=order) if record.state in (UP, CHANGING) and not record.moved)


def _with_twins(node: Node, meant: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """Give the records, and of each NIC of Xen its emulated twin's, of each twin its NIC's: what one may send the other may not forbid.

    A guest's own drivers make QEMU close the twin's device, and nobody tells us: such a twin keeps nothing from its NIC. One that is
    itself named stays, so that it is said of it that it is not up.
    """
    found: dict[str, Record] = {}
    for record in meant:
        found[record.key] = record
        if is_twin(record.nic):
            try:
                nic = node.store.read(kept_uuid(node, record.nic))
            except HostRefused:
                continue  # of its NIC nothing is known: what is done about the twin says so, and keeps no other NIC from its change
            if nic is None:
                raise NicInvalid("NIC", record.device, "a NIC that is up: this is an emulated twin, and its NIC is not")
            found[nic.key] = nic
    view = node.host.view()
    for record in list(found.values()):
        twin = twin_of(node, record.nic)
        if twin is None:
            continue
        if alive(node, view, twin) and not twin.closing:
            found.setdefault(twin.key, twin)
        elif not {twin.key, twin.uuid, twin.device} & {*names, *(name.lower() for name in names)}:
            found.pop(twin.key, None)
    return _twins_last(found.values())


def _twins_last(records: Iterable[Record]) -> list[Record]:
    """Order the records so that a twin gets what its NIC has by then."""
    return sorted(records, key=lambda record: is_twin(record.nic))


def _foretell(results: Results, found: Sequence[Difference | None], as_json: bool) -> int:
    """Say what would differ, and of which NICs that cannot be told; return the exit status. ``found``: None for one without an answer."""
    if as_json:
        answer("change", nics=[_document(row, one) for row, one in zip(results.rows, found, strict=True)])
        return results.status
    for row, one in zip(results.rows, found, strict=True):
        if one is None:
            if not row["error"]:
                say(str(row["text"]))
            continue
        head = f"{row['nic']} on {one.device}: "
        if not one.any:
            say(f"{head}is so already")
            continue
        say(head + ("would change" if one.changes else "would be on record, and change nothing"))
        for name, before, after in one.options:
            say(f"  {name} = {shown(name, after)}, is {shown(name, before)}")
        for what, operations in _operations(one).items():
            for operation in operations:
                say(f"  {what}: {operation.describe()}")
        if one.kept:
            say(f"  {one.kept}")
    failed = [row for row in results.rows if row["error"]]
    if results.rows and not failed:
        return results.status
    results.rows = failed
    return results.show(as_json)


def _operations(one: Difference) -> Mapping[str, Sequence[Operation]]:
    """List what becomes of operations, by the word for it."""
    return {"undone": one.gone, "released": one.released, "replaced": one.replaced, "done": one.made}


def _document(row: Mapping[str, object], one: Difference | None) -> dict[str, object]:
    one = one or Difference(str(row["device"]), (), (), (), ())
    return {
        **{name: row[name] for name in ("nic", "uuid")},
        "device": one.device,
        "options": [{"name": name, "before": shown(name, was), "after": shown(name, now)} for name, was, now in one.options],
        **{what: [operation.describe() for operation in operations] for what, operations in _operations(one).items()},
        "changed": one.any,
        "kept": one.kept,
        "error": row["error"],
    }


COMMANDS = {"change": command}
