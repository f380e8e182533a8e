"""netcommon registry import --ganeti: a Ganeti cluster's configuration, on its master."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from netcommon.cli.app import App
from netcommon.cli.output import answer, say
from netcommon.cli.registry_client import as_root, client, joined
from netcommon.dns import ganeti
from netcommon.process.notify import Notifier
from runtime.errors import UNAVAILABLE

HOURLY = 3600.0
LOOKED = 300.0  #: seconds from one look whether the certificate is due to the next one: the shortest is good for an hour


def import_once(app: App, copied: Callable[[str], None], dry_run: bool, take_over: bool, as_json: bool) -> int:
    """Import the configuration once; give the exit status. What is missing in it is deleted by a second reading, some seconds later.

    ``copied``: writes a copy of the registry to a new file of this name. Raises HostRefused, TryAgain, and what the registry refuses.
    """
    as_root(app)
    source = _source(app)
    found, seen = source.read()
    with contextlib.ExitStack() as stack:
        if dry_run:
            rehearsal = import_module("netregistry.rehearsal")
            copy = stack.enter_context(rehearsal.Rehearsal(stack.enter_context(rehearsal.copied(copied))))
            if take_over:
                _asking().take_over(copy, found)
            importer = _importer(_asking().Rehearsing(copy, found.cluster), 0.0)
        else:
            if take_over:
                with client(app) as operator:
                    _asking().take_over(operator, found)
            asked = stack.enter_context(client(app, f"importer:{found.cluster}"))
            importer = _importer(_asking().Asking(asked, found.cluster))
        outcomes = [importer.take(found, seen, time.monotonic())]
        while not dry_run and outcomes[-1].absent and (left := importer.due - time.monotonic()) < float("inf"):
            time.sleep(max(0.0, left))
            found, seen = source.read()
            outcomes.append(importer.take(found, seen, time.monotonic()))
    return _shown(found, outcomes, dry_run, as_json)


def follow(app: App) -> None:
    """Import the configuration whenever it changes, until SIGTERM. Raises HostRefused."""
    as_root(app)
    watch = import_module("netregistry.importer.watch")
    made: list[Any] = []  # what the importer is for and where it asks, the client, and the importer
    looked = [time.monotonic()]

    def importer(cluster: str) -> Any:
        if time.monotonic() >= looked[0] + LOOKED:
            looked[0] = time.monotonic()
            joined(app, "importer", HOURLY)  # renews the certificate, if the registry is elsewhere
        where = cluster, _joined_to(app)
        if not made or made[0] != where:
            asked = client(app, f"importer:{cluster}")
            if made:
                made[1].close()
            made[:] = where, asked, _importer(_asking().Asking(asked, cluster))
        return made[2]

    watch.Watcher(_source(app), importer, watch.pipe_of_signals(), Notifier(app.environ), app.log).run()


def _joined_to(app: App) -> tuple[str, tuple[str, ...]] | None:
    """Give as whom, and to which addresses, this machine has joined as an importer; None where it has not. Raises HostRefused."""
    found = import_module("netregistry.credentials").read(app.paths.lib, "importer")
    return None if found is None else (found.name, found.addresses)


def _asking() -> Any:
    return import_module("netregistry.importer.asking")


def _importer(registry: Any, *absent: float) -> Any:
    return import_module("netregistry.importer.importer").Importer(registry, *absent)


def _source(app: App) -> Any:
    root = app.root.rstrip("/")
    folder, sockets = f"{root}{ganeti.FOLDER}", f"{root}{ganeti.SOCKETS}"
    return import_module("netregistry.importer.source").Source(
        folder,
        app.paths.lib,
        lambda node: ganeti.is_master(node, folder),
        lambda cluster, node: ganeti.confirm(cluster, node, folder, sockets),
    )


def _shown(found: Any, outcomes: list[Any], dry_run: bool, as_json: bool) -> int:
    """Print what has become of it; give the exit status."""
    made, changed, deleted = (sum(getattr(each, name) for each in outcomes) for name in ("made", "changed", "deleted"))
    refused, apart = outcomes[-1].refused, list(outcomes[-1].apart)
    if as_json:
        rows = [{"uuid": uuid, "detail": why} for uuid, why in sorted(refused.items())]
        counts = {"made": made, "changed": changed, "deleted": deleted}
        about = {"cluster": found.cluster, "node": found.node, "serial": found.serial, "apart": apart}
        answer("registry-import-ganeti", done=not dry_run, **about, **counts, refused=rows, problems=list(found.problems))
    else:
        for line in (*found.problems, *(f"{uuid}: {why}" for uuid, why in sorted(refused.items()))):
            say(f"netcommon: {line}", err=True)
        for line in import_module("netregistry.importer.watch").warnings(found.cluster, apart):
            say(f"netcommon: {line}", err=True)
        would = "would be " if dry_run else ""
        said = f"{made} {would}made, {changed} {would}changed, {deleted} {would}deleted, {len(refused)} {would}refused"
        say(f"configuration {found.serial} of {found.cluster}: {said}")
    return UNAVAILABLE if refused or found.problems else 0
