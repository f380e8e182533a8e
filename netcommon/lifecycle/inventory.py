"""The whole picture, before anything is collected: what of the host bears our mark, then the records that say whose it is.

In this order: what a hook makes meanwhile is on a record by the time we look for its owner. Complete, or an error: a dump that was
interrupted, or a service that does not answer, ends it.
"""

from __future__ import annotations

from netcommon.lifecycle import execute
from netcommon.lifecycle.guest_device import has_marked
from netcommon.operations import every
from netcommon.operations.link import ALIAS, LinkSetting, marked
from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.operations.base import Operation, Owned
    from runtime.record import Record


#: What is kept of a record's operations where it has our mark on the device.
MARK = ({"kind": LinkSetting.KIND, "setting": ALIAS},)


class Seen(NamedTuple):
    """What the host was like at one moment: a snapshot, and everything in it that bears our mark."""

    view: View
    owned: tuple[Owned, ...]


class Records(NamedTuple):
    """Every record, and what they say is theirs."""

    all: tuple[Record, ...]  #: without the environments of their NICs, and of their operations with ``MARK`` alone: those are most of them
    problems: tuple[str, ...]  #: what is wrong with those that could not be read, one line each
    lost: bool  #: a record could not be read, now or earlier (quarantine): what it tells of looks like nobody's
    held: frozenset[str]  #: identities of their operations' things (Operation.identity)
    told: frozenset[str]  #: the devices that they are about
    uuids: frozenset[str]
    doubtful: frozenset[str] = frozenset()  #: devices of records with operations that we do not know, which may have made what we find
    bare: bool = False  #: devices bear no mark on this node (the setting tap_alias): one that is held may be ours


def look(node: Node) -> Seen:
    """Reads the host. Raises TryAgain or HostRefused where any part of it cannot be read whole."""
    view = node.host.snapshot()
    view.links()
    return Seen(view, tuple(thing for made in every() for thing in _owned(made, view)))


def _owned(made: type[Operation], view: View) -> Iterable[Owned]:
    """What of its kind bears our mark. Raises HostRefused where an extension fails to say: then nothing is swept."""
    try:
        return tuple(made.owned(view))
    except NetcommonError:
        raise
    except Exception as error:  # of a site's own
        raise HostRefused(f"what there is of the kind {made.KIND} cannot be told: {type(error).__name__}: {error}") from error


def records(node: Node) -> Records:
    """Reads the records, after ``look``. Raises HostRefused where the state directory cannot be read."""
    found: list[Record] = []
    problems: list[str] = []
    held: set[str] = set()
    doubtful: set[str] = set()
    for record in node.store.each(problems):
        found.append(record._replace(operations=MARK if has_marked(record) else (), nic=record.nic._replace(environment={})))
        try:
            operations, unknown = execute.decode(record)
            held |= {operation.identity() for operation in operations}
            doubtful |= {record.device} if unknown else set()
        except Exception as error:  # whatever a damaged record makes of it: what it holds cannot be told
            problems.append(f"{record.key}: what it holds cannot be told: {type(error).__name__}: {error}")
    lost = bool(problems or node.store.quarantined())
    devices, uuids = frozenset(record.device for record in found), frozenset(record.uuid for record in found)
    return Records(
        tuple(found), tuple(problems), lost, frozenset(held - {""}), devices, uuids, frozenset(doubtful), not node.settings.tap_alias
    )


def unrecorded(seen: Seen, known: Records) -> Iterator[tuple[Owned, str]]:
    """What bears our mark and is on no record, each with why it stays all the same; "" for what nobody needs.

    It stays while its device is there and no record tells of that device but one may have been lost (quarantine, a newer version's
    record): the guest may be alive behind it. What is of no device stays while there is any such guest, which may share it.
    """
    told = known.told | _renamed(seen.view, known)
    orphans = [link for link in seen.view.links() if _alive_behind(link, known.bare) and link.name not in told]
    for thing in seen.owned:
        if thing.identity in known.held:
            continue
        link = seen.view.link(thing.device) if thing.device else None
        if known.doubtful and (not thing.device or thing.device in known.doubtful):
            yield thing, f"{sorted(known.doubtful)[0]} has operations on record that this version does not know: they may have made it"
            continue
        if link and thing.device not in told and (known.lost or _alive_behind(link, known.bare)):
            yield thing, f"on no record, but {thing.device} is there: adopt it, or down it"
        elif not thing.device and orphans and known.lost:
            yield thing, f"on no record, but {orphans[0].name} is there, which may need it: adopt it, or down it"
        else:
            yield thing, ""


def _renamed(view: View, known: Records) -> set[str]:
    """The names that devices on record have now."""
    found = ((record, view.link_at(record.ifindex)) for record in known.all)
    return {link.name for record, link in found if link is not None and (known.bare or link.alias.startswith(record.uuid + " "))}


def _alive_behind(link: Link, bare: bool) -> bool:
    """Whether somebody uses the device, which is one of ours by its mark; or may be, where devices bear none."""
    return link.holders != 0 if marked(link) else bare and link.holders > 0
