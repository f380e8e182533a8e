"""How people name NICs: by UUID (or a record's key), device, INSTANCE/INDEX, or instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click
from click.shell_completion import CompletionItem

from netcommon.cli.output import say
from netcommon.host.api.facts import Link
from netcommon.host.api.host import View
from runtime import definitions, validate
from runtime.environment import DownHint
from runtime.errors import NetcommonError, NicInvalid
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import Record
from runtime.store import Store

EXPECTED = "the UUID, device or INSTANCE/INDEX of a NIC: netcommon list shows them"
#: Where a definition alone does not do.
EXPECTED_UP = "the UUID, device or INSTANCE/INDEX of a NIC that is up, not only defined: netcommon list shows them"


def matching(records: Iterable[Record], name: str, instances: bool = True, view: View | None = None) -> list[Record]:
    """The records that ``name`` means: by key, else by UUID, else by device, else by INSTANCE/INDEX, else by instance.

    ``view``: else also by the name that a device has now, if it was renamed since. Raises NicInvalid for an INSTANCE/INDEX that several
    NICs have: Ganeti gives an index anew when it removes a NIC of a running instance, and tells nobody of those that move up. One whose
    device is gone does not count beside one whose device is there; that it is passed over is said on stderr.
    """
    records, uuid = list(records), name.lower()
    kinds = [
        [record for record in records if record.key == uuid],
        [record for record in records if record.uuid == uuid],
        [record for record in records if record.device == name],
        [record for record in records if record.nic.instance and record.nic.index is not None and record.nic.label == name],
        [record for record in records if instances and record.nic.instance == name],
    ]
    link = view.link(name) if view is not None and not any(kinds) and _fits(validate.interface, name) else None
    if link is not None:
        return [record for record in records if record.ifindex == link.index and link.alias.startswith(record.uuid if link.alias else "")]
    found = next((found for found in kinds if found), [])
    if view is not None and found and found is kinds[3] and len({record.uuid for record in found}) > 1:
        found = kinds[3] = _there(view, name, found)
    if found and found is kinds[3] and len({record.uuid for record in found}) > 1:
        raise _several(name, [f"{record.uuid} on {record.device}" for record in found], "are on record so; name it by one of these")
    return found


def _there(view: View, name: str, found: list[Record]) -> list[Record]:
    """Those of ``found`` whose device is there, and on stderr which are not; all of them where none is."""
    links = {record.key: view.link_at(record.ifindex) for record in found}
    there = [record for record in found if (link := links[record.key]) and (link.name == record.device or _bears(link, record))]
    for record in found if there else ():
        if record not in there:
            say(f"{name}: {record.uuid} on {record.device}, whose device is gone, is on record so too and is passed over", err=True)
    return there or found


def _bears(link: Link, record: Record) -> bool:
    """Tell whether the device bears our mark with the record's NIC."""
    return link.alias.startswith(record.uuid + " ")


def chosen(store: Store, names: Sequence[str], problems: list[str], view: View | None = None) -> list[Record]:
    """The records that ``names`` mean, each once; all where there are no names. ``problems`` gets what is wrong with others.

    Raises NicInvalid for a name that is on no record.
    """
    records, unreadable = store.all()
    problems += unreadable
    return meant_by(store, records, names, view) if names else sorted(records, key=order)


def meant_by(store: Store, records: Sequence[Record], names: Sequence[str], view: View | None = None) -> list[Record]:
    """Those of ``records``, all of ``store``, that ``names`` mean, each once.

    Raises NicInvalid for a name that is on no record, RecordTooNew for one that leads to a record of a newer version.
    """
    found: dict[str, Record] = {}
    for name in names:
        store.refuse_newer(name)
        meant = matching(records, name, view=view)
        if not meant:
            raise NicInvalid("NIC", name, EXPECTED_UP)
        found |= {record.key: record for record in meant}
    return list(found.values())


def order(record: Record) -> tuple[str, int, str]:
    """People look for instances by name."""
    return record.nic.instance, -1 if record.nic.index is None else record.nic.index, record.key


def single(records: Iterable[Record], name: str, view: View | None = None) -> Record | None:
    """The one record that ``name`` means; None where it is on none. Raises NicInvalid where it means several, or an instance."""
    records = list(records)
    found = matching(records, name, instances=False, view=view)
    if len(found) > 1:
        raise NicInvalid("NIC", name, "one NIC, not several: " + ", ".join(record.key for record in found))
    if not found:
        no_instance(name, [record.nic for record in matching(records, name)])
    return found[0] if found else None


def no_instance(name: str, nics: Sequence[Nic]) -> None:
    """Raises NicInvalid that names ``nics``, if there are any: they are those of an instance of that name."""
    if nics:
        labels = [nic.label for nic in nics]
        shown = [nic.label if nic.index is not None and labels.count(nic.label) == 1 else nic.uuid for nic in nics]
        raise NicInvalid("NIC", name, "one NIC; those of this instance are " + ", ".join(sorted(shown)))


def called(view: View, record: Record) -> str:
    """Tell what the record's device is called now, by our mark on it."""
    link = view.link_at(record.ifindex)
    return link.name if link is not None and _bears(link, record) else record.device


def hint(store: Store, paths: Paths, name: str, view: View) -> DownHint:
    """What ``name`` tells a down. Raises NicInvalid where it means several NICs or an instance, or cannot mean any.

    What is on no record is left to the lookup that the hooks use, which asks Ganeti's files.
    """
    found = single(store.all()[0], name, view)
    if found:
        return DownHint(found.uuid, called(view, found))
    if _fits(validate.uuid, name):
        return DownHint(name.lower())
    instance, slash, index = name.rpartition("/")
    if slash:
        return DownHint(instance=validate.instance(instance, "NIC"), index=validate.index(index, "NIC"))
    known = definitions.all_of(paths)[0]
    if not any(nic.interface == name for nic in known):
        no_instance(name, [nic for nic in known if nic.instance == name])
    if not _fits(validate.interface, name):
        raise NicInvalid("NIC", name, EXPECTED_UP)
    return DownHint(device=name)


def defined(paths: Paths, name: str) -> Nic:
    """The definition that ``name`` means: by UUID, else by device, else by INSTANCE/INDEX. Raises NicInvalid where there is none."""
    nic = _defined(paths, name)
    if nic is None:
        no_instance(name, [nic for nic in definitions.all_of(paths)[0] if nic.instance == name])
        raise NicInvalid("NIC", name, "the UUID, device or INSTANCE/INDEX of a NIC defined beforehand: netcommon define")
    return nic


def defined_only(paths: Paths, name: str) -> Nic:
    """The same for a name that is on no record: where there is no definition either, the NicInvalid says what names there are."""
    nic = _defined(paths, name)
    if nic is None:
        raise NicInvalid("NIC", name, EXPECTED)
    return nic


def _defined(paths: Paths, name: str) -> Nic | None:
    """The definition that ``name`` means, None where there is none. Raises NicInvalid where two have this INSTANCE/INDEX."""
    nic = None
    if _fits(validate.uuid, name):
        nic = definitions.read(paths, name.lower())
    elif _fits(validate.interface, name):
        nic = definitions.find(paths, name)
    if nic is not None:
        return nic
    labelled = [nic for nic in definitions.all_of(paths)[0] if nic.label == name]
    if len(labelled) > 1 and labelled[0].index is not None:
        raise _several(name, [f"{nic.uuid} on {nic.interface}" for nic in labelled], "are defined so")
    return labelled[0] if len(labelled) == 1 else None


def _several(name: str, nics: Iterable[str], why: str) -> NicInvalid:
    return NicInvalid("NIC", name, f"one NIC, not several: {', '.join(sorted(nics))} {why}")


def _fits(rule: Callable[[str], str], name: str) -> bool:
    try:
        rule(name)
    except NicInvalid:
        return False
    return True


def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For the shell: labels, devices and UUIDs on record and of definitions. Says nothing where they cannot be read."""
    root = str(ctx.find_root().params.get("root") or "")
    try:
        from netcommon.cli.app import App

        app = App(Paths.under(root) if root else Paths())
        nics = [record.nic for record in app.node(strict=False, readonly=True).store.all()[0]] + definitions.all_of(app.paths)[0]
    except NetcommonError:
        return []
    offered = {text: nic for nic in nics for text in (nic.uuid, nic.interface, nic.label)}
    return [CompletionItem(text, help=f"{nic.label} {nic.mode}") for text, nic in sorted(offered.items()) if text.startswith(incomplete)]
