"""netcommon registry import --ganeti: a Ganeti cluster's configuration, on its master."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from netcommon.cli.app import App
from netcommon.cli.output import answer, say
from netcommon.cli.registry_client import as_root, client, elsewhere, in_etcd, joined, served, text
from netcommon.dns import ganeti
from netcommon.process.notify import Notifier
from netcommon.views.format import several
from runtime.errors import UNAVAILABLE, HostRefused

HOURLY = 3600.0
NAMED = 10  #: MACs and addresses
LOOKED = 300.0  #: seconds from one look whether the certificate is due to the next one: the shortest is good for an hour


def import_once(app: App, copied: Callable[[str], None], dry_run: bool, take_over: bool, as_json: bool) -> int:
    """Import the configuration once; give the exit status. What is missing in it is deleted by a second reading, some seconds later.

    ``copied``: writes a copy of the registry to a new file of this name. Raises HostRefused, TryAgain, and what the registry refuses.
    """
    as_root(app)
    if dry_run or take_over:
        _only_operators(app, dry_run)
    source, renamed, twice = _source(app), list[Any](), list[str]()
    found, seen = source.read()
    with contextlib.ExitStack() as stack:
        if dry_run:
            _warn_of_role(app, found.cluster)
            rehearsal = import_module("netregistry.rehearsal")
            copy = stack.enter_context(rehearsal.Rehearsal(stack.enter_context(rehearsal.copied(copied))))
            if take_over:
                renamed = _asking().take_over(copy, found)
                twice = _asking().contended(copy, found.cluster) if renamed else []
            importer = _importer(_asking().Rehearsing(copy, found.cluster), 0.0)
        else:
            asking = _asking().Asking(stack.enter_context(client(app, f"importer:{found.cluster}")), found.cluster)
            if take_over:
                asking.epoch()  # who cannot import is refused before anything is renamed
                with client(app) as operator:
                    renamed = _asking().take_over(operator, found)
                    twice = _asking().contended(operator, found.cluster) if renamed else []
            importer = _importer(asking)
        for each in renamed:
            say(_said(each, found.cluster, dry_run), err=as_json)  # at once: the import may be refused after it
        if twice:
            say(f"netcommon: {_wanted(twice, found.cluster, dry_run)}", err=True)
        outcomes = [importer.take(found, seen, time.monotonic())]
        while not dry_run and outcomes[-1].absent and (left := importer.due - time.monotonic()) < float("inf"):
            time.sleep(max(0.0, left))
            found, seen = source.read()
            outcomes.append(importer.take(found, seen, time.monotonic()))
    return _shown(found, outcomes, renamed, dry_run, as_json)


def _only_operators(app: App, dry_run: bool) -> None:
    """Raise HostRefused where the registry is elsewhere, and this machine has not joined it as an operator."""
    found = None if dry_run and in_etcd(app) else elsewhere(app)
    if found is None and not dry_run and not served(app):
        found = import_module("netregistry.credentials").read(app.paths.lib, "importer")
    if found is not None and found.role != "operator":
        text = f"{'--dry-run' if dry_run else '--take-over'} is for operators, and this machine has joined as {found.role}"
        raise HostRefused(text, "netcommon registry token create operator NAME, and netcommon registry join URL TOKEN here")


def _warn_of_role(app: App, cluster: str) -> None:
    """Say in a rehearsal why the import itself would be refused, where this machine is the importer of another cluster."""
    try:
        client(app, f"importer:{cluster}").close()
    except HostRefused as error:
        say(f"netcommon: {error}", err=True)


def _said(renamed: Any, cluster: str, dry_run: bool) -> str:
    """Say which name a cluster had, and how much goes with its new one."""
    counts = f"{several(renamed.nics, 'NIC')}, {several(renamed.networks, 'network')}, {several(renamed.nodes, 'node')}"
    return f"{renamed.before} {'would be' if dry_run else 'is'} called {cluster}{'' if dry_run else ' now'}: {counts}"


def _wanted(twice: list[str], cluster: str, dry_run: bool) -> str:
    """Say what more than one NIC has by a cluster's new name, as those do that had it in two clusters before."""
    what = f"several NICs of {cluster} {'would want' if dry_run else 'want'} the same: {text(twice[:NAMED])}"
    more = f" and {len(twice) - NAMED} more" if len(twice) > NAMED else ""
    return f"{what}{more}{'' if dry_run else ': netcommon registry conflicts shows whose'}"


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


def _shown(found: Any, outcomes: list[Any], renamed: list[Any], dry_run: bool, as_json: bool) -> int:
    """Print what has become of it; give the exit status."""
    made, changed, deleted = (sum(getattr(each, name) for each in outcomes) for name in ("made", "changed", "deleted"))
    refused, apart = outcomes[-1].refused, list(outcomes[-1].apart)
    if as_json:
        rows = [{"uuid": uuid, "detail": why} for uuid, why in sorted(refused.items())]
        counts = {"made": made, "changed": changed, "deleted": deleted}
        about = {"cluster": found.cluster, "node": found.node, "serial": found.serial, "apart": apart}
        about |= {"renamed": [each._asdict() for each in renamed], "problems": list(found.problems)}
        answer("registry-import-ganeti", done=not dry_run, **about, **counts, refused=rows)
    else:
        for line in (*found.problems, *(f"{uuid}: {why}" for uuid, why in sorted(refused.items()))):
            say(f"netcommon: {line}", err=True)
        for line in import_module("netregistry.importer.watch").warnings(found.cluster, apart):
            say(f"netcommon: {line}", err=True)
        would = "would be " if dry_run else ""
        said = f"{made} {would}made, {changed} {would}changed, {deleted} {would}deleted, {len(refused)} {would}refused"
        say(f"configuration {found.serial} of {found.cluster}: {said}")
    return UNAVAILABLE if refused or found.problems else 0
