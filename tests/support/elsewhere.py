"""A registry that is elsewhere for the machine of a test, and that it joins by TLS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from netregistry.service.tls import Listening
from netregistry.stores.sqlite import SqliteStore
from tests.support.cli import Cli
from tests.support.service import Served, served
from tests.support.tls import NAMES, free_port


@contextlib.contextmanager
def registry(home: Cli) -> Iterator[tuple[Served, str]]:
    """Serve a registry that others reach by TLS; give it, and its URL."""
    (home.root / "run/netregistry").mkdir(parents=True)
    home("registry", "init")
    port, keys = free_port(), str(home.root / "var/lib/netregistry/authority")
    store = SqliteStore(str(home.root / "var/lib/netregistry/registry.sqlite"))
    with served(home.root / "run/netregistry", store=store, others=Listening((("127.0.0.1", port),), NAMES, keys)) as service:
        service.until(lambda: service.service.figures.until > 0)
        yield service, f"https://localhost:{port}"
