"""netcommon registry compact: what a registry has overwritten is forgotten, and its file becomes smaller."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import click

from netcommon.cli.app import App
from netcommon.cli.commands.registry_files import called, copied, expected_here
from netcommon.cli.commands.registry_objects import dry_option
from netcommon.cli.output import answer, json_option, say
from netcommon.cli.registry_client import as_root, client, elsewhere, file_of, in_etcd, served
from runtime.errors import HostRefused


def _etcd_elsewhere(app: App) -> bool:
    """Tell whether an etcd keeps the registry that is meant, and the settings of its service's machine alone name it."""
    if served(app) or elsewhere(app) is None:
        return False
    with client(app) as asked:
        return bool(asked.get("status").body.get("store") == "etcd")


@click.command("compact")
@dry_option
@json_option
@click.pass_obj
def compact(app: App, dry_run: bool, as_json: bool) -> None:
    """Forget what was overwritten, and make the file smaller.

    By itself the service forgets it after an hour, and uses the space again. Nobody else is answered meanwhile, and nodes whose streams
    are cut off before they have read all begin anew. --dry-run does it to a copy. An etcd's file is made smaller by etcdctl defrag,
    for each member, after it.
    """
    as_root(app)
    etcd = in_etcd(app) or _etcd_elsewhere(app)
    if etcd and (dry_run or (in_etcd(app) and not served(app))):
        remedy = "etcdctl defrag gives what is free back to the file system, member by member"
        raise HostRefused("an etcd is compacted by its registry's service, at once, and not on trial", remedy)
    if dry_run:
        before, after = import_module("netregistry.rehearsal").compacted(partial(copied, app))
    elif served(app) or elsewhere(app) is not None:
        with client(app) as asked:
            said = asked.change("POST", "compact").body
        before, after = said["before"], said["after"]
    else:
        expected_here(file_of(app))
        before, after, _revision = import_module("netregistry.stores.files").compact(file_of(app))
    if as_json:
        answer("registry-compact", done=not dry_run, before=before, after=after)
    elif etcd:
        say(f"the etcd has {before} bytes, {after} of them in use: etcdctl defrag, for each member, frees the others")
    else:
        which = file_of(app) if elsewhere(app) is None else called(app)
        say(f"{which} {'has' if dry_run else 'had'} {before} bytes, and {'would have' if dry_run else 'has'} {after} bytes")
