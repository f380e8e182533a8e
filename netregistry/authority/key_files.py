"""Keep the keys of authorities on the machine that signs: a folder of root's alone, a file each, named by the authority."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from netregistry.authority.x509 import make_authority
from netregistry.local import Local
from netregistry.model.history import Identity
from netregistry.request import Call, new_id
from netregistry.stores.opening import opened
from runtime.errors import HostRefused, RecordUnreadable
from runtime.folder import Folder

if TYPE_CHECKING:
    from netregistry.authority.x509 import Made

FOLDER = "authority"  #: beside the registry's file
LONGEST = 1 << 14  #: bytes


def keep(folder: str, made: Made) -> None:
    """Keep an authority's key, to outlive a power failure. Raises HostRefused."""
    with Folder.make(folder, sync=True) as there:
        os.fchmod(there.descriptor, 0o700)
        there.write(f"{made.authority.id}.key", made.key.encode("ascii"), sync=True)


def key(folder: str, label: str) -> str:
    """Give the key of an authority; "" where it is not here. Raises HostRefused where it is, and cannot be used."""
    there = Folder.find(folder)
    if there is None:
        return ""
    with there:
        try:
            data = there.read(f"{label}.key", LONGEST)
        except RecordUnreadable as error:
            raise HostRefused(f"the authority's key cannot be used: {error}", "put it back from a copy") from None
    return data.decode("ascii", "replace") if data is not None else ""


def forget(folder: str, label: str) -> None:
    """Remove the key of an authority that counts no more. Raises HostRefused."""
    there = Folder.find(folder)
    if there is not None:
        with there:
            there.remove(f"{label}.key")
            there.flush()


def begin(where: str, folder: str) -> str:
    """Make the first authority of a registry that no service has open; give its fingerprint. Raises HostRefused, TryAgain, Unavailable."""
    made = make_authority(time.time())
    keep(folder, made)
    body = made.authority._replace(made=0.0)._asdict()
    with contextlib.closing(opened(where)) as store:
        local = Local(store, time.time)
        chance = int.from_bytes(os.urandom(10), "big") >> 6
        call = Call(new_id(local.core.moment, chance), "authority.add", "", body)
        response = local.answer(call, Identity("operator", "root", "unix"))
        local.close()
    if response.status != 201:
        raise HostRefused(f"the authority is not taken: {response.body['detail']}")
    return made.authority.fingerprint
