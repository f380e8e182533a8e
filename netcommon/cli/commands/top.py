"""netcommon top: what NICs send and receive, live."""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.commands.tree import draws
from netcommon.cli.output import able, emit, json_option
from netcommon.cli.terminal import Screen, Terminal
from netcommon.lifecycle import execute
from netcommon.lifecycle.context import Clock
from netcommon.views.live import top as model
from netcommon.views.live.hook_stats import Calls, calls
from netcommon.views.live.rates import Reading, read
from netcommon.views.live.top import SORTS, Agent, Look, Top
from netcommon.views.live.top_text import screen, standing, text
from netcommon.views.topology.gather import examine
from netcommon.views.topology.text import ASCII, UNICODE, Style
from runtime.errors import NetcommonError

#: Between two looks at records and drift: seconds, and so many times as long as one takes, or a node with many NICs did nothing else.
SLOW, SHARE = 10.0, 10.0

#: The agent has so long to answer (seconds): the picture waits for it.
PATIENCE = 0.5


class Looks:
    """What was found when records and host were last compared; ``done`` is monotonic seconds, and how long it took."""

    def __init__(self, looks: Iterable[Look], problems: Iterable[str], done: float | None, took: float = 0.0) -> None:
        self.looks, self.problems, self.done, self.took = list(looks), list(problems), done, took


Ask = Callable[[str], Mapping[str, Any]]
Job = Callable[[], Looks]


def aside(job: Job) -> Future[Looks]:
    """Does it in a thread of its own, which nobody waits for at the end: it only reads."""
    future: Future[Looks] = Future()

    def work() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # whoever takes the result is told
            future.set_exception(error)

    Thread(target=work, name="looks", daemon=True).start()
    return future


class Watcher:
    """Makes one picture after the other. ``later`` does what compares all NICs: that takes seconds where they are thousands."""

    def __init__(self, app: App, later: Callable[[Job], Future[Looks]], ask: Ask) -> None:
        self._app, self._later, self._ask, self._clock = app, later, ask, app.clock
        self._node = app.node(strict=False, readonly=True)
        records, problems = self._node.store.all()
        self._looks = Looks(map(model.unlooked, records), problems, None)
        self._coming: Future[Looks] | None = None
        self._before = self._reading()

    def _reading(self) -> Reading:
        return read(self._node.host.view(), self._clock.now())

    def look(self) -> None:
        """Compares everything now, and waits for it."""
        self._looks = compare(self._app, self._looks.looks)

    def begin(self) -> None:
        """The next picture is of what happens from here on."""
        self._before = self._reading()

    def picture(self, sort: str) -> Top:
        """What has happened since the one before."""
        self._take()
        trouble = []
        try:
            after = self._reading()
        except NetcommonError as error:  # it may answer the next time
            after, trouble = self._before, [str(error)]
        found = model.rows(self._looks.looks, self._before, after)
        seconds, self._before = after.when - self._before.when, after
        states, conditions = model.counted(found)
        agent, answer = self._agent()
        done = self._looks.done
        ago = None if done is None else after.when - done
        said = (*self._looks.problems, *trouble)
        return Top(os.uname().nodename, seconds, ago, agent, answer, states, conditions, said, tuple(model.ordered(found, sort)))

    def _take(self) -> None:
        """What has been compared meanwhile; begins anew when it is time."""
        if self._coming is not None and self._coming.done():
            self._looks, self._coming = self._coming.result(), None
        done = self._looks.done
        if self._coming is None and (done is None or self._clock.now() - done >= max(SLOW, self._looks.took * SHARE)):
            self._coming = self._later(partial(compare, self._app, self._looks.looks))

    def _agent(self) -> tuple[Agent, tuple[Calls, ...]]:
        try:
            status, answer = self._ask("status"), self._ask("hooks")
            alarms = tuple(f"{name}: {said}" for name, said in status["alarms"].items())
            return Agent(True, standing(str(status["state"]), float(status["uptime"]), float(status["turned"])), alarms), calls(answer)
        except NetcommonError as error:
            return Agent(False, str(error), ()), ()
        except (KeyError, TypeError, ValueError, AttributeError):
            return Agent(True, "it runs, but is of another version: restart it", ()), ()


def compare(app: App, earlier: Iterable[Look]) -> Looks:
    """Every record against one snapshot of the host, with a host of its own: this runs in another thread. ``earlier``: if that fails."""
    began = app.clock.now()
    node = app.node(strict=False, readonly=True)
    try:
        records, problems = node.store.all()
        view, found = node.host.snapshot(), []
        known: execute.Known = {}
        for record in records:
            report, untold = examine(node, view, record, known)
            found.append(model.looked(report, untold, view))
        return Looks(found, problems, app.clock.now(), app.clock.now() - began)
    except NetcommonError as error:
        return Looks(earlier, [f"not compared: {error}"], app.clock.now(), app.clock.now() - began)
    finally:
        node.store.close()
        node.host.close()


def run(watcher: Watcher, display: Screen, clock: Clock, interval: float, sort: str, style: Style) -> None:
    """Draws until somebody quits."""
    names, first = list(SORTS), 0
    shown = watcher.picture(sort)
    due = clock.now() + interval
    while True:
        width, height = display.size()
        page = max(1, height - 8)
        first = max(0, min(first, len(shown.nics) - 1))
        display.draw(screen(shown, sort, first, width, height, style))
        for key in display.keys(due - clock.now()):
            if key == "quit":
                return
            if key in ("sort", "sort back"):
                sort = names[(names.index(sort) + (1 if key == "sort" else -1)) % len(names)]
                shown = shown._replace(nics=tuple(model.ordered(shown.nics, sort)))
                first = 0
            first += {"on": 1, "back": -1, "down": page, "up": -page, "home": -len(shown.nics), "end": len(shown.nics)}.get(key, 0)
        if clock.now() >= due:
            shown = watcher.picture(sort)
            due = clock.now() + interval


@click.command("top")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Seconds between two readings.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="traffic", show_default=True, help="What comes first.")
@click.option("--once", is_flag=True, help="Print one picture, of all NICs, after one interval.")
@json_option
@click.pass_obj
def top(app: App, interval: float, sort: str, once: bool, as_json: bool) -> None:
    """Show what each NIC receives and sends, what is dropped, and its condition; above it, how the agent and the hooks do.

    In and out are as the guest sees them. Keys: q quits, s sorts by the next column, arrows, space and b turn pages. Where the output is
    no terminal, and with --json, it is as with --once. Changes nothing; drift is looked at every ten seconds, and less often where that
    takes long.
    """
    control = import_module("netagent.observe.control")
    netns = app.host(strict=False).identity().netns

    def ask(question: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = control.ask(app.paths.state, netns, question, PATIENCE)
        return answer

    watcher = Watcher(app, aside, ask)
    if once or as_json or not (able(sys.stdout, app.environ) and sys.stdin.isatty()):
        watcher.look()
        watcher.begin()
        app.clock.sleep(interval)
        shown = watcher.picture(sort)
        if as_json:
            emit(model.document(shown))
        else:
            click.echo(text(shown, sort, ASCII))
        return
    style = UNICODE if draws(sys.stdout.encoding or "ascii", locale.getencoding()) else ASCII
    with Terminal(sys.stdin.fileno(), sys.stdout.fileno(), sys.stdout.encoding or "ascii") as terminal:
        run(watcher, terminal, app.clock, interval, sort, style._replace(colour=not app.environ.get("NO_COLOR")))


COMMANDS = {"top": top}
