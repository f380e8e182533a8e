"""Move a registry between its file and an etcd, and see to it that it is in one place alone, whatever ends a move.

What is left behind says where the registry is, before that counts there: a file names the etcd, and an etcd the file. So no service that is
started on either takes it for the registry, also where a move was ended halfway; the same command ends it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from netregistry.stores import files
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_client import Client
from netregistry.stores.etcd_facts import Facts, Overtaken, begun, facts
from netregistry.stores.etcd_place import place
from netregistry.stores.sqlite import SqliteStore
from netregistry.stores.sqlite_file import ENDS, MARK, MOVED, NEW, UNFINISHED, moved_to, removed, synchronise_folder
from netregistry.stores.whereabouts import is_own, own
from netregistry.transfer import EACH, TOLD, compared, count, filled, said, write_all
from runtime.errors import HostRefused, TryAgain, escaped

if TYPE_CHECKING:
    from netregistry.stores.base import Store

TRIAL = "00000000"  #: epoch of a file that is made to see whether it can be
GOES_ON = "nothing was changed, and services go on: mend that first, or do it on another machine"
LOST = "--lost goes on where what the registry was moved to is lost for good"


def move(path: str, where: str, lost: bool = False) -> tuple[str, int]:
    """Bring the registry in a file to an etcd that holds nothing, in a new epoch; give that, and how many keys it has.

    The file is put aside when the copy is whole and the same. Begun again after an interruption, it does what is left. ``lost``: an etcd to
    which an earlier move was interrupted is not asked.

    Raises TryAgain where a service has the file open; HostRefused, Damaged, Unavailable.
    """
    with files.alone(path), contextlib.closing(Client(place(where), EACH, TOLD)) as client:
        aside = not os.path.exists(path) and os.path.exists(path + MOVED)
        at = path + MOVED if aside else path
        before = moved_to(at)
        try:
            source = SqliteStore(at, moved=True)
        except TryAgain as error:
            raise TryAgain(f"{error}: stop the service first: systemctl stop netcommon-registry") from None
        with source:  # nobody else can open it meanwhile
            name, found = _name(source), facts(client)
            if found is not None and found.whole and found.source == name:
                source.note(**{MARK: where})
            elif aside:
                raise HostRefused(
                    f"the registry was moved to {escaped(before, 1000)} before", "netcommon registry move --back brings it back"
                )
            else:
                if found is not None and found.whole:
                    raise HostRefused(f"{client.place} holds a registry already, of epoch {found.epoch}", "name an etcd that holds nothing")
                if found is not None and found.moved and found.epoch != source.epoch:
                    what = f"the registry that {client.place} held was moved to {escaped(found.moved)}, and this is another one"
                    raise HostRefused(what, "name an etcd that holds nothing")
                if before and before != where and not lost:
                    _given_up(before, path)
                found = _marked(client, source, name, found, where, before)
        if not aside:
            _aside(path)
        return found.epoch, count(EtcdStore.unfinished(client))


def _name(source: Store) -> str:
    """Name the state of a store: its epoch and revision."""
    return f"{source.epoch}:{source.list('', limit=1).revision}"


def _marked(client: Client, source: SqliteStore, name: str, found: Facts | None, where: str, before: str) -> Facts:
    """Copy a file to an etcd; the file says that it was moved before the etcd says that it is whole. Raises as ``move`` does.

    It says so no more where the copy was refused, and the etcd has not become the registry, and will not.
    """
    marked = False

    def last() -> None:
        nonlocal marked
        source.note(**{MARK: where})
        marked = True

    try:
        return filled(client, source, name, found, last, own(source.path))
    except Overtaken:
        source.note(**{MARK: before})
        raise
    except HostRefused as error:
        if marked and not _never(client, name):
            remedy = "netcommon registry move --to the same etcd, once it answers, finishes it"
            raise HostRefused(f"it is not known whether {client.place} has become the registry: {error}", remedy) from None
        source.note(**{MARK: before})
        raise


def _never(client: Client, name: str) -> bool:
    """Tell whether the copy of a file has not become the registry in an etcd, and see to it that it will not. ``name``: its state."""
    try:
        found = facts(client)
        if found is None or found.whole or found.moved or found.source != name:
            return False  # it is, or has been for a moment: another copy may have begun since
        begun(client, found, found)  # the word that it is whole may be under way still: it is refused from now on
    except (TryAgain, HostRefused):
        return False
    return True


def _aside(path: str) -> None:
    """Rename a file whose content is elsewhere now, so that no service takes it for the registry. Raises HostRefused."""
    try:
        for end in reversed(ENDS):  # the file last: without it nothing says that it was moved
            if os.path.exists(path + end):
                os.replace(path + end, path + MOVED + end)
        synchronise_folder(path)
    except OSError as error:
        raise HostRefused(f"cannot rename {escaped(path)}, which counts no more: {error.strerror}", "move it away") from None


def only_here(path: str, lost: bool) -> None:
    """See to it, before a copy is put in the place of a file, that no etcd keeps the registry, unless what kept it is ``lost``.

    Raises HostRefused where one does, TryAgain where that is not known.
    """
    aside = os.path.exists(path + MOVED)
    where = moved_to(path + MOVED if aside else path)
    if lost or not (aside or where):
        return
    if not where:
        raise HostRefused(f"{escaped(path + MOVED)} says that the registry was moved, but not where", LOST)
    _given_up(where, path)


def _given_up(where: str, path: str) -> None:
    """See to it that an etcd does not become the registry of a file: what an interrupted move may still have under way comes to nothing.

    Raises HostRefused where it is the registry; TryAgain where that is not known.
    """
    try:
        with contextlib.closing(Client(place(where))) as client:
            found = facts(client)
            if found is not None and not found.whole and not found.moved:
                begun(client, found, found)
    except (TryAgain, HostRefused) as error:
        raise TryAgain(f"it is not known whether {escaped(where, 1000)} keeps the registry: {error}; {LOST}") from None
    if found is not None and found.whole:
        remedy = "[registry] store is to name it, for restore too; netcommon registry move --back brings it back from there"
        raise HostRefused(f"the registry is in {escaped(where, 1000)}, to which it was moved", remedy)
    if found is not None and found.moved and not is_own(found.moved, path):
        raise HostRefused(f"the registry was moved from {escaped(where, 1000)} to {escaped(found.moved)}", f"restore it there; {LOST}")


def still_there(found: Facts | None, where: str, lost: bool) -> None:
    """Raise HostRefused where the registry of an etcd was moved to a file, unless that is ``lost``: restored in both it would be two."""
    if found is not None and found.moved and not lost:
        remedy = f"restore it there, or bring it here again by netcommon registry move --to; {LOST}"
        raise HostRefused(f"the registry in {escaped(where, 1000)} was moved to {escaped(found.moved)}", remedy)


def _from_here(found: Facts, path: str) -> None:
    """Raise HostRefused where the registry of an etcd came from another machine: typed on the wrong one, the way back ends there.

    What lies at its old place says still that it is in the etcd, and whoever looks for it looks there.
    """
    if found.came and not found.moved and not is_own(found.came, path):
        remedy = "do it there; --lost brings it to this machine, where that one is lost"
        raise HostRefused(f"the registry came from {escaped(found.came)}, and this is {escaped(own(path))}", remedy)


def back(path: str, where: str, lost: bool = False) -> tuple[str, int]:
    """Bring the registry in an etcd to a file that is not there, in a new epoch; give that, and how many keys it has.

    First the etcd says where its registry goes: services over it end, and none is started on it; last, that it is there. Begun again after
    an interruption, it does what is left. ``lost``: what it was moved to before is lost: another file, this one, or another etcd.

    Raises HostRefused, Damaged, Unavailable.
    """
    with files.alone(path), contextlib.closing(Client(place(where), EACH, TOLD)) as client:
        found = facts(client)
        if found is None or not (found.whole or found.moved):
            what = "no registry" if found is None else "a copy that is not finished"
            raise HostRefused(f"there is {what} in {client.place}", "[registry] store is to name the etcd that keeps it")
        if not is_own(found.moved, path):
            still_there(found, where, lost)
        there = os.path.exists(path)
        if there and not (is_own(found.moved, path) and _epoch(path) == found.epoch):
            raise HostRefused(f"{escaped(path)} is there already", "move it away")
        if not lost:
            _from_here(found, path)
            if found.arrived and not there:  # what the etcd holds is of then
                what = f"the registry was brought back from {escaped(where, 1000)} before, and {escaped(path)} is not there any more"
                raise HostRefused(what, f"put it back, or restore a backup; {LOST}")
            _nowhere_else(path, where, found)
        if not there:
            if found.whole:
                _tried(client, path)  # as long as the registry goes on where it is
            # in a new epoch each time: a file that was there once may have had commits in the earlier one
            found = _said(client, Facts(secrets.token_hex(4), False, found.source, 0, moved=own(path), came=found.came), found)
        try:
            if not there:
                _fetched(client, found, path + NEW)
                files.replaced(path, path + NEW)
            elif os.path.exists(path + MOVED):
                files.set_aside(path)
        except OSError as error:
            raise _stands_still(path, where, f"cannot make {escaped(path)}: {error.strerror}") from None
        except Overtaken:
            raise
        except HostRefused as error:
            raise _stands_still(path, where, str(error)) from None
        except TryAgain as error:
            raise TryAgain(str(_stands_still(path, where, str(error)))) from None
        if not found.arrived:
            found = _said(client, found._replace(arrived=True), found)
        return found.epoch, count(EtcdStore.unfinished(client))


def _tried(client: Client, path: str) -> None:
    """Make once, beside a file, what is to stand there, of what services may go on to change; it is removed again.

    Raises HostRefused, Unavailable where that cannot be: a folder that cannot be written to, no room.
    """
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            removed(path + NEW)
            with SqliteStore.create(path + NEW, TRIAL, unfinished=True) as target:
                write_all(EtcdStore.unfinished(client), target)
        finally:
            with contextlib.suppress(OSError):
                removed(path + NEW)
    except OSError as error:
        raise HostRefused(f"cannot make {escaped(path)}: {error.strerror}", GOES_ON) from None
    except HostRefused as error:
        raise HostRefused(str(error), GOES_ON) from None
    except TryAgain as error:
        raise TryAgain(f"{error}: {GOES_ON}") from None


def _stands_still(path: str, where: str, why: str) -> HostRefused:
    """Say of a registry which is on its way from an etcd to a file why it did not come there, and how it goes on."""
    what = f"{why}: the registry stands still: {escaped(where, 1000)} says already that it goes to {escaped(path)}, and no service starts"
    return HostRefused(what, "mend that, then netcommon registry move --back goes on where it was")


def _said(client: Client, goes: Facts, before: Facts) -> Facts:
    """Let an etcd say where its registry goes; give that as it is written. Raises HostRefused, Unavailable."""
    said(client, goes, before, clear=False)
    found = facts(client)
    if found is None or found.says != goes.says:
        raise HostRefused(f"somebody else has begun with {client.place}, too")
    return found


def _nowhere_else(path: str, where: str, found: Facts) -> None:
    """See to it, before the registry is brought back from an etcd, that the file was not moved to another one, which keeps it now.

    What lies beside the file names that: the settings may name an earlier one. ``found``: what the etcd at ``where`` says; by that it is
    known wherever it has another address. Raises HostRefused; TryAgain where it is not known.
    """
    if not os.path.exists(path + MOVED):
        return
    latest = moved_to(path + MOVED)
    if latest == where:
        return
    if not latest:
        raise HostRefused(f"{escaped(path + MOVED)} says that the registry was moved, but not where", LOST)
    try:
        with contextlib.closing(Client(place(latest))) as client:
            keeps = facts(client)
    except (TryAgain, HostRefused) as error:
        raise TryAgain(f"it is not known whether {escaped(latest, 1000)} keeps the registry: {error}; {LOST}") from None
    if keeps is None or keeps == found:
        return
    if keeps.whole or (not is_own(keeps.moved, path) and not found.whole):
        what = f"the registry was moved to {escaped(latest, 1000)}, and {escaped(where, 1000)} is an earlier place of it"
        raise HostRefused(what, f"[registry] store is to name {escaped(latest, 1000)}; {LOST}")


def _epoch(path: str) -> str:
    """Give the epoch of a file; "" where it cannot be used. Raises TryAgain where a service has it."""
    try:
        with SqliteStore(path, moved=True) as store:
            return store.epoch
    except TryAgain:
        raise
    except HostRefused:
        return ""


def _fetched(client: Client, found: Facts, file: str) -> None:
    """Copy what an etcd holds, which nobody changes any more, to a new file, and compare it. Raises HostRefused, Unavailable, OSError."""
    removed(file)
    source = EtcdStore.unfinished(client)
    with SqliteStore.create(file, found.epoch, unfinished=True) as target:
        write_all(source, target)
        compared(source, target)
        if facts(client) != found:
            raise Overtaken(f"somebody else has begun with {client.place}, too")
        target.note(**{UNFINISHED: ""})
