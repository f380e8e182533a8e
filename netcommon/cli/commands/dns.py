"""netcommon dns: the records of Ganeti's instances in the DNS."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say, table
from netcommon.dns import ganeti
from netcommon.dns.store import FOLDER, Store
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid, TryAgain
from runtime.locks import Locks

#: Seconds for all of it; each answer of a server has a limit of its own.
LIMIT = 600.0


@click.group("dns")
def dns() -> None:
    """Records of Ganeti's instances in the DNS, on the master node."""


@dns.command("list")
@json_option
@click.pass_obj
def list_(app: App, as_json: bool) -> None:
    """List the instances on record, their names, and what went wrong."""
    store = _store(app)
    intents = [intent for name in store.names() if (intent := store.read(name))]
    rows = [(one.guest.name, "done" if one.done else "pending", " ".join(one.names), one.error) for one in intents]
    for problem in store.problems:
        app.log.warning(problem)
    if as_json:
        answer("dns-list", instances=[dict(zip(("instance", "state", "names", "error"), row, strict=True)) for row in rows])
    elif rows:
        say(table(("INSTANCE", "STATE", "NAMES", "ERROR"), rows))
    else:
        say("no instances on record")


@dns.command("sync")
@click.argument("instances", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every instance that Ganeti has, and every one on record.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
@click.pass_context
def sync(ctx: click.Context, instances: tuple[str, ...], everything: bool, dry_run: bool, as_json: bool) -> None:
    """Bring the records of INSTANCES in the DNS up to date.

    They are made as Ganeti's configuration has it; without names, those of the instances that failed before. A second run changes
    nothing. Names that do not bear our mark are never changed. With --all, and for an INSTANCE that Ganeti does not have, records that
    bear our cluster's mark and are no instance's any more are found in the zones, which the key must be allowed to transfer, and removed.
    """
    from netcommon.dns.sync import Outcome, Run, pending

    app: App = ctx.obj
    settings = app.settings()
    if not settings.dns_zones:
        raise SettingsInvalid("there are no dns.zones in the settings, so no DNS is kept: give [dns] zones and servers (docs/dns.md)")
    folder = app.root.rstrip("/") + ganeti.FOLDER
    master = ganeti.master_name(folder)
    if master and not ganeti.is_master(master, folder):
        raise HostRefused(f"the master node is {master}", "run it there")
    known = ganeti.configured(folder)
    there = {*known.guests, *known.unread} if known is not None else set()

    def certain() -> ganeti.Certain:
        return ganeti.certain(folder, app.root.rstrip("/") + ganeti.SOCKETS)

    store = _store(app)
    names = sorted({*store.names(), *there}) if everything else list(instances) or pending(store)
    strange = [name for name in instances if store.read(name) is None and name not in there]
    if strange and known is None:
        raise HostRefused(f"{strange[0]}: it is not on record, and no zone was asked: {_nothing_says(folder)}", "run it on Ganeti's master")
    run = Run(settings, store, app.log, app.clock.now() + LIMIT, app.clock.now, lambda: known, dry_run)
    try:
        outcomes: list[Outcome] = []
        if asked := [name for name in names if name not in strange]:
            try:
                known = None if known is None else certain().instances
            except NetcommonError as why:
                error = _uncertain("nothing on record was brought up to date", why)
                outcomes += [Outcome(name, (), (error,)) for name in (("",) if everything else asked)]
            else:
                outcomes += run.apply((), asked)
        if everything and known is None:
            nothing = HostRefused(f"what no instance has any more was not looked for: {_nothing_says(folder)}", "run it on Ganeti's master")
            outcomes.append(Outcome("", (), (nothing,)))
        for name in ("",) if everything and known is not None else strange:
            try:
                found = run.remove_stale(certain, name)
            except NetcommonError as why:
                found = [Outcome(name, (), (_uncertain("what no instance has any more was not looked for", why),))]
            if name and not found:
                raise _unknown(name)
            outcomes += found
    finally:
        run.close()
    for outcome in outcomes:
        for error in outcome.errors:
            app.log.bind(outcome.instance).error(str(error))
    for problem in store.problems:
        app.log.warning(problem)
    if as_json:
        rows = [{"instance": one.instance, "done": list(one.done), "errors": [str(error) for error in one.errors]} for one in outcomes]
        answer("dns-sync", instances=rows)
    else:
        say("\n".join(f"{one.instance}: {text}" for one in outcomes for text in one.done) or "nothing to change")
    ctx.exit(next((error.status for one in outcomes for error in one.errors), 0))


def _uncertain(what: str, why: NetcommonError) -> NetcommonError:
    """Say what was not done for a configuration that cannot be relied on."""
    kind = TryAgain if isinstance(why, TryAgain) else HostRefused
    return kind(f"{what}: {why}")


def _nothing_says(folder: str) -> str:
    return f"there is no configuration of Ganeti in {folder} that says which instances there are"


def _unknown(name: str) -> HostRefused:
    unknown = f"{name}: neither Ganeti's configuration here nor our record knows this instance, and no zone has a mark of it"
    return HostRefused(unknown, "netcommon dns list has those on record")


def _store(app: App) -> Store:
    if not app.is_root:
        raise HostRefused("what is on record of the DNS is for root alone", "run it as root")
    deadline = app.clock.now() + LIMIT
    return Store(app.root.rstrip("/") + FOLDER, lambda folder: Locks(folder, deadline, app.clock.now, app.clock.sleep))


COMMANDS = {"dns": dns}
