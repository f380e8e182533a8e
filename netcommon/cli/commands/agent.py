"""netcommon agent: runs the node's agent, and shows how it is.

The agent is a package of its own that nothing of netcommon imports; this names it only.
"""

from __future__ import annotations

from importlib import import_module

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say
from runtime.errors import HostRefused, TryAgain

#: Exit status of ``status`` where an alarm is on.
ALARMED = 1

#: What the agent's own document calls otherwise than that of --json, which has a version of its own.
NAMES = {"version": "netcommon"}


@click.group("agent")
def agent() -> None:
    """Run the node's agent, or show how it is."""


@agent.command("run")
@click.pass_context
def run(ctx: click.Context) -> None:
    """Run the agent, until it is told to end (SIGTERM). SIGHUP: read the settings again.

    There is one for each network namespace. It stays in the foreground; the service manager starts it (netcommon-agent.service).
    """
    app: App = ctx.obj
    if not app.is_root:
        raise HostRefused("this changes the host, which only root can do", "run it as root")
    try:
        status = import_module("netagent.agent").run(app.paths, app.clock, app.environ, app.verbose)
    except TryAgain as error:
        error.advice = "netcommon agent status shows how the other one is"
        raise
    ctx.exit(status)


@agent.command("status")
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show how the agent is: what it does, and its alarms.

    The one of this network namespace is asked. Exit status 1 if there is an alarm, 69 if no agent runs, 75 if it does not answer.
    """
    app: App = ctx.obj
    try:
        said = import_module("netagent.observe.control").ask(app.paths.state, app.host(strict=False).identity().netns)
    except HostRefused as error:
        error.advice = "systemctl start netcommon-agent starts it; journalctl -u netcommon-agent says why it ended"
        raise
    if as_json:
        answer("agent", **{NAMES.get(name, name): value for name, value in said.items() if name != "format"})
    else:
        say(import_module("netagent.observe.status").render(said))
    ctx.exit(ALARMED if said.get("alarms") else 0)


COMMANDS = {"agent": agent}
