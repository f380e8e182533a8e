"""Tell which authority signs in a registry that no service has open: a copy that was put in its place comes without the key."""

from __future__ import annotations

import contextlib
import time

from netregistry.local import Local
from netregistry.rules.holders import authorities
from netregistry.stores.opening import opened


def signing(where: str) -> str:
    """Give the ID of the authority that signs, of the registry in a file or an etcd; "" where none does. Raises as ``opened`` does."""
    with contextlib.closing(opened(where)) as store, contextlib.closing(Local(store, time.time)) as local:
        found = authorities(local.view, time.time())
    return found[-1].id if found else ""
