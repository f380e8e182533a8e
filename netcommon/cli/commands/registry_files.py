"""netcommon registry backup, restore, move, export and import: a registry as a whole."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.commands import registry_ganeti
from netcommon.cli.commands.registry_objects import dry_option
from netcommon.cli.output import answer, json_option, say
from netcommon.cli.progress import progress_option, steps
from netcommon.cli.registry_client import as_root, client, elsewhere, file_of, in_etcd, served, store_of, text, warn_of_key
from runtime.errors import UNAVAILABLE, HostRefused, NetcommonError, escaped

STREAM = "-"


def write_new(file: str, pieces: Iterable[bytes]) -> None:
    """Write a new file, synchronised; nothing stays of one that was cut off. Raises HostRefused where there is one already, or no room."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostRefused(f"cannot make {file}: {error.strerror}", "name another file") from None
    try:
        with open(descriptor, "wb") as target:
            for piece in pieces:
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        os.unlink(file)
        raise HostRefused(f"cannot write {file}: {error.strerror}", "name a file where there is room") from None
    except BaseException:
        os.unlink(file)
        raise


@click.command("backup")
@click.argument("file", type=click.Path())
@json_option
@click.pass_obj
def backup(app: App, file: str, as_json: bool) -> None:
    """Copy the registry to a new FILE.

    The service may run: it makes the copy then. On another machine, which has joined as an operator, the copy comes from there.
    """
    as_root(app)
    copied(app, file)
    if as_json:
        answer("registry-file", path=os.path.abspath(file), epoch="", kept="")
    else:
        say(f"{called(app)} is copied to {file}")


def called(app: App) -> str:
    """Give what people call the registry that is meant: one elsewhere by its address."""
    found = None if in_etcd(app) else elsewhere(app)
    return f"the registry at {text(list(found.addresses))}" if found is not None else "the registry"


def copied(app: App, file: str) -> None:
    """Copy the registry to a new file: by its service, where one runs, here or elsewhere."""
    import_module("netregistry.stores.sqlite_file").no_log_alone(file)  # it would go into the copy
    if in_etcd(app):
        import_module("netregistry.transfer").copy(store_of(app), file)
        return
    if not served(app) and elsewhere(app) is None:
        path = file_of(app)
        expected_here(path)
        import_module("netregistry.stores.files").copy(path, file)
        return
    with client(app) as asked:
        pieces = asked.backup()
        write_new(file, chain([next(pieces, b"")], pieces))  # a refusal comes before the file is made


def expected_here(path: str) -> None:
    """Raise HostRefused where there is no registry here: to make one would help nobody who wants the whole of one."""
    if not (os.path.exists(path) or os.path.exists(path + import_module("netregistry.stores.files").MOVED)):
        remedy = (
            "do it on the registry's machine, or join that as an operator: netcommon registry token create operator NAME there, then join"
        )
        raise HostRefused(f"{path} is not there, and no registry elsewhere is joined", remedy)


lost_option = click.option("--lost", is_flag=True, help="What the registry was moved to before is lost for good: do not ask it.")


@click.command("restore")
@click.argument("file", type=click.Path())
@lost_option
@json_option
@click.pass_obj
def restore(app: App, file: str, lost: bool, as_json: bool) -> None:
    """Put a copy in the registry's place, in a new epoch. What stood there is kept beside it.

    The log of SQLite's that lies beside FILE (FILE-wal), of a machine that ended in the middle, is read with it: copy both.

    The service of a file must not run; those over an etcd begin anew by themselves. Nothing is given out before
    every live node has reported once. What stood in an etcd is kept in /var/lib/netregistry as well. Its name is said:
    registry.sqlite.replaced, with a number behind it where there is one already. A registry that was moved elsewhere is not restored
    where it was, unless that is --lost. A copy has no key of an authority: /var/lib/netregistry/authority is put back as well.
    """
    as_root(app)
    path, moving, aside = store_of(app), import_module("netregistry.moving"), [""]
    if in_etcd(app):
        kept = file_of(app) + import_module("netregistry.stores.sqlite_file").REPLACED
        allowed = partial(moving.still_there, where=path, lost=lost)
        epoch = import_module("netregistry.transfer").bring_back(file, path, kept, allowed, aside.append)
    else:
        moving.only_here(path, lost)
        epoch = import_module("netregistry.stores.files").bring_back(file, path, aside.append)
    if as_json:
        answer("registry-file", path=path, epoch=epoch, kept=aside[-1])
    else:
        stood = f"what stood there is kept in {aside[-1]}\n" if aside[-1] else ""
        say(f"{path} is {file} now, epoch {epoch}\n{stood}next: systemctl start netcommon-registry")
    with contextlib.suppress(NetcommonError):  # it is restored, and the service will say what is wrong with it
        warn_of_key(app, import_module("netregistry.authority.signer").signing(path))


@click.command("move")
@click.option("--to", "where", default="", metavar="ADDRESS", help="The etcd, which must hold nothing; as in [registry] store.")
@click.option("--back", is_flag=True, help="From the etcd that [registry] store names to the file.")
@lost_option
@json_option
@click.pass_obj
def move(app: App, where: str, back: bool, lost: bool, as_json: bool) -> None:
    """Bring the registry to an etcd, or back to its file.

    It begins a new epoch. The service of a file must not run; those over an etcd end by themselves. The copy is compared with what it was
    made of, which says from then on where the registry is: no service starts on it. A move that was interrupted is begun again by the same
    command.
    """
    as_root(app)
    if bool(where) == back:
        raise click.UsageError("one of --to ADDRESS and --back says where")
    moving, settings = import_module("netregistry.moving"), app.paths.config
    if not back and in_etcd(app):
        _not_moved(app, where)
    if back and not in_etcd(app):
        raise HostRefused("[registry] store names no etcd to bring the registry back from", f"name the one that keeps it in {settings}")
    at, act, source = (file_of(app), moving.back, store_of(app)) if back else (where, moving.move, where)
    epoch, count = act(file_of(app), source, lost)
    if as_json:
        answer("registry-file", path=at, epoch=epoch, kept="")
        return
    say(f"{count} keys are in {at} now, epoch {epoch}")
    next_step = "no store" if back else f'store = "{where}"'
    if not back and in_etcd(app):
        say("next: systemctl start netcommon-registry")
        return
    say(f"next: {next_step} below [registry] in {settings}; systemctl start netcommon-registry")


def _not_moved(app: App, where: str) -> None:
    """Raise HostRefused where the settings name an etcd, unless it is where the registry in the file goes: they were written first."""
    if not os.path.lexists(file_of(app)):
        raise HostRefused("the registry is kept in an etcd already", "--back brings it to the file; backup and restore bring it elsewhere")
    if where != store_of(app):
        remedy = f"name that one, or another one in {app.paths.config}"
        raise HostRefused(f"[registry] store names {escaped(store_of(app), 1000)}, and --to {escaped(where, 1000)}", remedy)


@click.command("export")
@click.argument("file", type=click.Path(), default=STREAM)
@click.pass_obj
def export(app: App, file: str) -> None:
    """Write what is wanted as JSON, one document a line.

    To a new FILE, or to stdout. Networks, nodes, NICs, reservations and settings; a backup has the history and what is seen, too.
    """
    with client(app) as asked:
        pieces = asked.export()
        lines = chain([next(pieces, b"")], pieces)
        if file != STREAM:
            write_new(file, lines)
            return
        for line in lines:
            click.echo(line, nl=False)


@click.command("import")
@click.argument("file", type=click.Path(), default=STREAM)
@click.option("--ganeti", is_flag=True, help="The configuration of the Ganeti cluster whose master this node is, instead of a file.")
@click.option("--watch", is_flag=True, help="With --ganeti: go on, and import whenever it changes, until SIGTERM.")
@click.option("--take-over", is_flag=True, help="With --ganeti: also where the registry knows another master, or a later configuration.")
@dry_option
@progress_option
@json_option
@click.pass_context
def import_(
    ctx: click.Context, file: str, ganeti: bool, watch: bool, take_over: bool, dry_run: bool, progress: bool, as_json: bool
) -> None:
    """Ask for all that an export has, of a FILE or stdin.

    What is so already is passed over: an import that was cut off goes on where it was. A line that the registry refuses does not stop
    the others. --dry-run does it on a copy, and says what would be refused.

    With --ganeti it makes the registry have what the configuration of a Ganeti cluster says: instances, NICs, networks and tags. What
    is missing there is deleted by a second reading, five seconds later. netcommon-importer.service does it with --watch.
    """
    app: App = ctx.obj
    if (watch or take_over) and not ganeti:
        raise click.UsageError("--watch and --take-over are for --ganeti")
    if ganeti and file != STREAM:
        raise click.UsageError("--ganeti reads no FILE: it is the configuration of this node's cluster")
    if watch and (dry_run or as_json or take_over):
        raise click.UsageError("--watch goes on until it is told to end, and prints nothing: leave out the other options")
    if watch:
        registry_ganeti.follow(app)
        return
    if ganeti:
        ctx.exit(registry_ganeti.import_once(app, partial(copied, app), dry_run, take_over, as_json))
    exchange = import_module("netregistry.exchange")
    try:
        with open(file, "rb") if file != STREAM else sys.stdin.buffer as source:
            lines = list(exchange.decoded(source))
    except OSError as error:
        raise HostRefused(f"cannot read {file}: {error.strerror}", "name a file that export has written") from None
    with client(app) as asked:
        there = {line.name: line for _number, line in exchange.decoded(asked.export())}
        todo = exchange.asked(lines, there)
        batches = list(exchange.batches(todo))
        refused = _rehearsed(app, batches, progress) if dry_run else _made(app, batches, progress)
    asked_for = {step.line for step in todo}
    made, so = len(asked_for - set(refused)), len(lines) - len(asked_for)
    if as_json:
        rows = [{"line": number, "detail": detail} for number, detail in sorted(refused.items())]
        answer("registry-import", done=not dry_run, made=made, there=so, refused=rows)
    else:
        for number, detail in sorted(refused.items()):
            say(f"netcommon: line {number}: {detail}", err=True)
        would = "would be " if dry_run else ""
        say(f"{made} {would}made, {so} there already, {len(refused)} {would}refused")
    ctx.exit(UNAVAILABLE if refused else 0)


def _made(app: App, batches: list[Any], progress: bool) -> dict[int, str]:
    """Ask for everything, each as whom it is to be asked; give what was refused (``_asked_for``)."""
    clients: dict[str, Any] = {}

    def ask(role: str, parts: list[Any]) -> None:
        if role not in clients:
            clients[role] = client(app, role)
        clients[role].change("POST", "batch", {"parts": parts})

    try:
        return _asked_for(ask, batches, progress)
    finally:
        for asked in clients.values():
            asked.close()


def _rehearsed(app: App, batches: list[Any], progress: bool) -> dict[int, str]:
    """Do everything on a copy of the registry; give what was refused. What is asked for stands on what was before: nothing less tells."""
    if not batches:
        return {}
    rehearsal = import_module("netregistry.rehearsal")
    with rehearsal.copied(partial(copied, app)) as store, rehearsal.Rehearsal(store) as copy:
        return _asked_for(copy.batch, batches, progress)


def _asked_for(ask: Callable[[str, list[Any]], None], batches: list[Any], progress: bool) -> dict[int, str]:
    """Ask for everything, and give what was refused: the number of the line, and why. Raises TryAgain where the registry cannot answer."""
    problem = import_module("netregistry.client").Problem
    refused: dict[int, str] = {}
    with steps("import", len(batches), progress) as step:
        for batch in batches:
            step(f"line {batch[0].line}")
            for part in [batch, *([one] for one in batch if len(batch) > 1)]:
                try:
                    ask(batch[0].role, [each.part for each in part])
                except problem as error:
                    if error.retry:
                        raise
                    if len(part) == 1:
                        refused.setdefault(part[0].line, str(error).removeprefix("parts[0]: "))
                else:
                    if part is batch:
                        break
    return refused


COMMANDS = {"backup": backup, "restore": restore, "move": move, "export": export, "import": import_}
