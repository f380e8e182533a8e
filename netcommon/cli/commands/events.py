"""netcommon events: what happens to NICs, as it happens."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any

import click

from netcommon.cli import signals
from netcommon.cli.app import App
from netcommon.cli.names import complete
from netcommon.cli.output import coloured, json_option
from netcommon.views.live.events import Event, about, document, event, line, moment
from netcommon.views.topology.text import ASCII


class Printer:
    """Prints those that are wanted, each on one line, at once."""

    def __init__(self, names: Collection[str], since: float, as_json: bool, colour: bool) -> None:
        self._names, self._since, self._as_json = names, since, as_json
        self._style = ASCII._replace(colour=colour)

    def show(self, told: Iterable[Mapping[str, Any]]) -> None:
        for one in map(event, told):
            if one.when >= self._since and about(one, self._names):
                click.echo(self._line(one), color=self._style.colour)

    def _line(self, one: Event) -> str:
        return json.dumps(document(one)) if self._as_json else line(one, None, self._style)


@click.command("events")
@click.argument("names", nargs=-1, metavar="[NIC]...", shell_complete=complete)
@click.option("-f", "--follow", is_flag=True, help="Go on, and show what happens as it happens, until Ctrl-C.")
@click.option("--since", default="", metavar="TIME", help="Only what is not older: 90s, 10m, 2h, 1d, or a local time as 2026-11-22 04:41.")
@json_option
@click.pass_obj
def events(app: App, names: tuple[str, ...], follow: bool, since: str, as_json: bool) -> None:
    """Show what has happened to NICs: ups and downs, devices that went, drift, repairs, what was reaped, alarms; one line each.

    A NIC is named by its UUID, its device or INSTANCE/INDEX; INSTANCE means all of its NICs; without names all are shown, and what is
    about none. With --json each line is one JSON document. With --follow nothing of the past is shown unless --since is given.

    The agent tells, of the time since it started. Where none runs, the records tell when the NICs that are up came up, and with --follow
    ups and downs are seen as records come and go. What lasts longer is in the journal: journalctl -t netcommon -t netcommon-agent.
    """
    node = app.node(strict=False, readonly=True)
    begin = moment(since, app.clock.wall()) if since else 0.0
    colour = coloured(app.environ) and not as_json
    printer = Printer(names, begin, as_json, colour)
    following = import_module("netagent.observe.event_stream")

    def say(text: str) -> None:
        click.echo(f"netcommon: {text}", err=True)

    agent = following.OfAgent(app.paths.state, node.identity.netns)
    follower = following.Follower(agent, lambda: following.OfRecords(node.store, app.clock.wall), say, app.clock.now)
    signals.take_no_ctrl_c()
    try:
        past = follower.past()
        if since or not follow:
            printer.show([*(following.recorded(node.store) if follower.alone else ()), *past])
        while follow:
            follower.wait(app.clock.sleep)
            printer.show(follower.read())
    except KeyboardInterrupt:
        pass
    finally:
        follower.close()


COMMANDS = {"events": events}
