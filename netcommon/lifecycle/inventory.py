"""The whole picture, before anything is collected: what of the host bears our mark, then the records that say whose it is.

In this order: what a hook makes meanwhile is on a record by the time we look for its owner. Complete, or an error: a dump that was
interrupted, or a service that does not answer, ends it.
"""

from __future__ import annotations

from netcommon.lifecycle import execute, underlay
from netcommon.lifecycle.guest_device import has_marked, may_have_guest
from netcommon.operations import every
from netcommon.operations.link import MARK, marked
from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.operations.base import Operation, Owned
    from runtime.record import Record


#: What ends the doubt.
REMEDY = "adopt it (netcommon adopt), or restart or stop its guest: this goes when the device has gone"


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
    of_node: frozenset[str] = frozenset()  #: those of ``held`` that are the node's own, and no NIC's
    untold: str = ""  #: why nobody can tell what is the node's own
    bare: bool = False  #: devices are to bear no mark on this node (the setting tap_alias)
    indices: frozenset[int] = frozenset()  #: of the devices of this node's records, in this boot


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
        found.append(record._replace(operations=(MARK,) if has_marked(record) else (), nic=record.nic._replace(environment={})))
        try:
            operations, unknown = execute.decode(record)
            held |= {operation.identity() for operation in operations}
            doubtful |= {record.device} if unknown else set()
        except Exception as error:  # whatever a damaged record makes of it: what it holds cannot be told
            problems.append(f"{record.key}: what it holds cannot be told: {type(error).__name__}: {error}")
    of_node, untold = frozenset[str](), ""
    try:
        of_node = underlay.identities(node)
    except NetcommonError as error:
        untold = str(error)
        problems.append(untold)
    lost = bool(problems or node.store.quarantined())
    devices, uuids = frozenset(record.device for record in found), frozenset(record.uuid for record in found)
    here = (record.ifindex for record in found if (record.boot, record.netns) == (node.identity.boot, node.identity.netns))
    return Records(
        tuple(found),
        tuple(problems),
        lost,
        frozenset(held - {""}) | of_node,
        devices,
        uuids,
        frozenset(doubtful),
        of_node,
        untold,
        bare=not node.settings.tap_alias,
        indices=frozenset(here),
    )


def unrecorded(seen: Seen, known: Records) -> Iterator[tuple[Owned, str]]:
    """What bears our mark and is on no record, each with why it stays all the same; "" for what nobody needs.

    It stays while its device is there, and on no record, and a guest may be behind it (netcommon.lifecycle.guest_device), or a record may
    have been lost (quarantine, a newer version's record). What is for a name alone may have been left by an earlier device of it: where
    the device bears no mark, and should, it stays if anything else is there that was made for this one. What is of no device stays while
    there is any such guest, which may share it.
    """
    orphans: list[str] | None = None
    ours = {thing.device for thing in seen.owned if not thing.named}
    for thing in seen.owned:
        if thing.identity in known.held:
            continue
        if known.untold and thing.of_node:
            yield thing, f"on no record, but {known.untold}"
            continue
        link = seen.view.link(thing.device) if thing.device else None
        if known.doubtful and (not thing.device or thing.device in known.doubtful):
            yield thing, f"{sorted(known.doubtful)[0]} has operations on record that this version does not know: they may have made it"
            continue
        its = link is not None and (not thing.named or known.bare or marked(link) or link.name in ours)
        if link and link.index not in known.indices and (known.lost or (its and may_have_guest(seen.view, link))):
            yield thing, f"on no record, but {thing.device} is there, and a guest may be behind it: {REMEDY}"
            continue
        if known.lost and not thing.device and orphans is None:
            orphans = [each.name for each in seen.view.links() if each.index not in known.indices and may_have_guest(seen.view, each)]
        if known.lost and not thing.device and orphans:
            yield thing, f"on no record, but {orphans[0]} is there, and a guest behind it may need it: {REMEDY}"
        else:
            yield thing, ""
