"""Copy a registry from one engine to another: whole and compared, or not at all.

A copy to an etcd first says there that it has begun, so that no service takes a part of it for a registry, and last that it is whole. Each
of its commits tests that nobody else has begun another one. Whatever it was ended by, it is begun again from nothing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from itertools import zip_longest
from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.stores.base import LARGEST, MOST, Compacted, Put, Unavailable, Unknown, commit_size
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_client import Client
from netregistry.stores.etcd_facts import Facts, Overtaken, begun, facts
from netregistry.stores.etcd_place import place
from netregistry.stores.files import alone, opened
from netregistry.stores.sqlite import SqliteStore
from netregistry.stores.sqlite_file import NEW, UNFINISHED, removed, synchronise_folder, unused
from runtime.errors import HostRefused, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netregistry.stores.base import Item, Store

EACH, TOLD = 30.0, 60.0  #: seconds for one member, and for all: what is removed at once may be much
AGAIN = 5  #: times that a commit without answer is sent
PAGE = 1000  #: items of a listing at once
LIVING = 60.0  #: seconds for nodes that were alive to say so to the new registry, before they are taken for gone


def bring_back(
    backup: str,
    where: str,
    kept: str,
    allowed: Callable[[Facts | None], None] = lambda _found: None,
    told: Callable[[str], object] = lambda _name: None,
) -> str:
    """Put a copy in the place of the registry in an etcd, in a new epoch; give that. What stood there is kept in a file.

    Its name is ``kept``, with a number behind it where there is one already; ``told`` is called with it. Services that have it open end.
    ``allowed``: raises HostRefused where what the etcd says is not to be replaced.

    Raises HostRefused, Damaged, Unavailable.
    """
    with alone(kept), contextlib.closing(Client(place(where), EACH, TOLD)) as client, _copied(backup) as source:
        found = facts(client)
        allowed(found)
        if found is not None and (found.whole or found.moved):
            told(_kept(client, found, unused(kept)))
        came = found.came if found is not None else ""
        return filled(client, source, f"{source.epoch}:{source.list('', limit=1).revision}", found, lambda: None, came).epoch


def _kept(client: Client, found: Facts, file: str) -> str:
    """Copy the registry in an etcd to a file, which has that name when it is whole, and of what was ``found``; give the name.

    Raises HostRefused, also where somebody else has begun meanwhile: then there is no file; Unavailable.
    """
    made = file + NEW
    try:
        removed(made)
        filed(EtcdStore.unfinished(client), made)
        if facts(client) != found:
            removed(made)
            raise HostRefused(f"somebody else has begun with {client.place}, too")
        os.replace(made, file)
        synchronise_folder(file)
    except OSError as error:
        raise HostRefused(f"cannot make {escaped(file)}: {error.strerror}") from None
    return file


def copy(where: str, file: str) -> None:
    """Copy the registry in an etcd, as it is at one revision, to a new file. Services go on. Raises HostRefused, Unavailable."""
    with EtcdStore(place(where)) as source:
        filed(source, file)


def filed(source: EtcdStore, file: str) -> None:
    """Write all of a store, as it is at one revision, to a new file. Others go on with it. Raises HostRefused, Unavailable.

    The file says until the end that it is a part: whoever is killed at it leaves that behind.
    """
    target = SqliteStore.create(file, source.epoch, unfinished=True)
    try:
        with target:
            write_all(source, target)
            target.note(**{UNFINISHED: ""})
    except BaseException:
        removed(file)
        raise


def filled(client: Client, source: Store, name: str, before: Facts | None, last: Callable[[], None], came: str = "") -> Facts:
    """Copy a registry to an etcd, in a new epoch, and say that it is whole. ``before``: what the etcd has said until now.

    ``last``: called when the copy is whole, and does not say so yet; ``came``: the file that it is moved from.

    Raises HostRefused where somebody else copies, too; Unavailable.
    """
    epoch = secrets.token_hex(4)
    said(client, Facts(epoch, False, name, 0, came=came), before)
    with_a_part = EtcdStore.unfinished(client)
    if with_a_part.epoch != epoch:
        raise HostRefused(f"somebody else copies to {client.place}, too")
    write_all(source, with_a_part)
    compared(source, with_a_part)
    last()
    said(
        client, Facts(epoch, True, name, 0, came=came), with_a_part.facts, clear=False
    )  # as it was for its commits: another may have begun since
    found = facts(client)
    if found is None or found.epoch != epoch or not found.whole:
        raise HostRefused(f"somebody else copies to {client.place}, too")
    return found


def said(client: Client, to_say: Facts, before: Facts | None, clear: bool = True) -> None:
    """Let an etcd say something else of the registry in it; where no answer came, look whether it does. ``clear``: and hold nothing.

    Raises Overtaken where it does not, and never has, since somebody else was first; HostRefused, Unavailable.
    """
    for attempt in range(AGAIN):
        try:
            begun(client, to_say, before, clear=clear)
        except (Unknown, HostRefused) as error:  # refused may be what was sent again
            if isinstance(error, Overtaken) and not attempt:
                raise
            found = facts(client)
            if found is not None and found.says == to_say.says:
                return
            if isinstance(error, Overtaken):
                raise HostRefused(str(error)) from None  # what was sent first may have been done
            if isinstance(error, HostRefused):
                raise
        else:
            return
    raise Unavailable(f"{client.place} does not answer: begin it again")


def write_all(source: Store, target: Store) -> None:
    """Write all that a store has to another one, in commits as large as they may be."""
    batch: list[Put] = []
    for item in _items(source):
        put = Put(item.key, item.value)
        if batch and (len(batch) == MOST or commit_size((), [*batch, put]) > LARGEST):
            _written(target, batch)
            batch = []
        batch.append(put)
    if batch:
        _written(target, batch)


def _written(target: Store, batch: list[Put]) -> None:
    """Write some keys; twice does no harm. A sign of life lasts for a while."""
    if any(keys.kind(put.key) == "alive" for put in batch):
        lease = target.grant(LIVING)
        batch = [put._replace(lease=lease) if keys.kind(put.key) == "alive" else put for put in batch]
    for attempt in range(AGAIN):
        try:
            target.commit((), batch)
        except Unknown:
            if attempt + 1 == AGAIN:
                raise
        else:
            return


def _items(source: Store) -> Iterator[Item]:
    """Give all that a store has at one revision but for its leader, which is a service and no content.

    Raises Unavailable where the store forgets that revision meanwhile: the same from the beginning is of a later one.
    """
    after, revision, more = "", 0, True
    while more:
        try:
            listing = source.list("", after, PAGE, revision)
        except Compacted:
            raise Unavailable("the registry was compacted while it was copied: begin the copy again") from None
        revision, more = listing.revision, listing.more
        yield from (item for item in listing.items if item.key != keys.LEADER)
        after = listing.items[-1].key if listing.items else ""


def count(source: Store) -> int:
    """Count the keys of a store."""
    return sum(1 for _ in _items(source))


def compared(source: Store, target: Store) -> None:
    """Raise HostRefused where two stores differ, but for signs of life that have ended."""
    lasting = ((item for item in _items(store) if keys.kind(item.key) != "alive") for store in (source, target))
    for one, other in zip_longest(*lasting):
        if one is None or other is None or (one.key, one.value) != (other.key, other.value):
            which = escaped((one or other).key)
            raise HostRefused(f"the copy is not the same, first at {which}: nothing was changed but the copy", "begin it again")


@contextlib.contextmanager
def _copied(backup: str) -> Iterator[SqliteStore]:
    """Open a copy of a copy and of its log: it is examined as any that is opened, and stays as it is. Raises HostRefused, Damaged."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="netregistry-restore-") as folder,
            opened(backup, f"{folder}/registry.sqlite") as store,
        ):
            yield store
    except OSError as error:
        raise HostRefused(f"cannot copy {escaped(backup)} to {escaped(tempfile.gettempdir())}: {error.strerror}") from None
