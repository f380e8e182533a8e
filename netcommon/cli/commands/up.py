"""netcommon up: joins NICs to the network."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.names import complete, defined
from netcommon.cli.nicinput import read_environment
from netcommon.cli.output import json_option
from netcommon.cli.progress import each, progress_option
from netcommon.cli.results import Results
from netcommon.lifecycle.context import POST, PRE
from runtime import definitions
from runtime.environment import environment_of, nic_from_environment
from runtime.errors import USAGE
from runtime.nic import Nic


@click.command("up")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option("--env-file", default="", metavar="FILE", help='NAME=VALUE lines, or a dump of /proc/PID/environ; "-" is stdin.')
@click.option("--from-environment", is_flag=True, help="The variables of this process, as a hypervisor passes them.")
@click.option("--all", "every", is_flag=True, help="Every NIC that is defined.")
@click.option(
    "--incoming", "phase", flag_value=PRE, help="The guest is still on its way here: what may be on one node only is owed until it is here."
)
@click.option("--arrived", "phase", flag_value=POST, help="The guest has come: what was owed is done, and where it is is announced.")
@click.option("--present", is_flag=True, help="Only those whose device is there: the others come up when QEMU makes it.")
@progress_option
@json_option
@click.pass_context
def up(
    ctx: click.Context,
    names: tuple[str, ...],
    env_file: str,
    from_environment: bool,
    every: bool,
    phase: str | None,
    present: bool,
    progress: bool,
    as_json: bool,
) -> None:
    """Join NICs to the network: defined ones by UUID, device or INSTANCE/INDEX, or the one that an environment describes.

    Again for a NIC that is up: what has drifted is mended, and nothing else is changed. `up --all --present` after a reboot brings up
    what is defined on devices that are there before any guest is, such as persistent taps.

    On the target of a migration `up --incoming` before the guest comes, and `up --arrived` when it is there. Where QEMU itself calls a
    script the second alone is needed.
    """
    from netcommon.lifecycle.batch import up_all
    from netcommon.lifecycle.context import Outcome

    app: App = ctx.obj
    if sum(map(bool, (names, env_file, from_environment, every))) != 1:
        raise click.UsageError("name NICs that are defined, or give --env-file, --from-environment or --all")
    node, results = app.node(), Results()
    nics, unreadable = _nics(app, names, env_file, from_environment, every)
    for problem in unreadable:
        app.log.error(problem)

    there = {link.name for link in node.host.snapshot().links()} if present else {nic.interface for nic in nics}
    joined = up_all(node, [nic for nic in nics if nic.interface in there], lambda nic: app.call(nic=nic, phase=phase or ""))

    def work(nic: Nic) -> None:
        with results.of(nic):
            missing = Outcome(False, f"{nic.label}: {nic.interface} is not there yet")
            results.became(next(joined)[1] if nic.interface in there else missing)

    each(nics, work, "up", progress)
    ctx.exit(results.show(as_json) or (USAGE if unreadable else 0))


def _nics(app: App, names: tuple[str, ...], env_file: str, from_environment: bool, every: bool) -> tuple[list[Nic], list[str]]:
    """The NICs that are meant, and what is wrong with definitions that cannot be read. Raises NicInvalid."""
    if env_file or from_environment:
        return [nic_from_environment(read_environment(env_file) if env_file else app.environ)], []
    found, problems = definitions.all_of(app.paths) if every else ([defined(app.paths, name) for name in names], [])
    return [nic_from_environment(environment_of(nic)) for nic in found], problems


COMMANDS = {"up": up}
