"""Open the store that is named, whatever engine it has."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from netregistry.stores import files
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_place import is_etcd, place
from netregistry.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from netregistry.stores.base import Store


def opened(where: str) -> Store:
    """Open the registry in a file, or in an etcd, for a service. Raises HostRefused, Damaged, TryAgain, Unavailable."""
    if is_etcd(where):
        return EtcdStore(place(where))
    store = SqliteStore(where)
    files.swept(where)
    return store


def begin(where: str) -> str:
    """Make a registry that holds nothing; give its epoch. Raises HostRefused where there is anything, Unavailable."""
    if not is_etcd(where):
        return files.begin(where)
    epoch = secrets.token_hex(4)
    EtcdStore.create(place(where), epoch).close()
    return epoch
