"""mockcloud run and fault: scenarios from files, and single faults of a cloud that is there."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import click

from mockcloud import state
from mockcloud.cli.nodes import seed_option
from mockcloud.cli.opened import cloud_option, not_empty, opened
from mockcloud.cli.output import answer
from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.file import LATEST, SETTLE, read
from mockcloud.scenarios.running import play
from mockcloud.scenarios.striking import document, struck
from mockcloud.served.client import ask, connection
from netcommon.cli.output import json_option, say, table
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mockcloud.scenarios.faults import Fault

MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made there
VIOLATED = 1  #: the exit status where something was found that must not be


@click.command("run")
@click.argument("file", type=click.Path())
@seed_option
@click.option(
    "--keep",
    "folder",
    default="",
    metavar="FOLDER",
    callback=not_empty,
    help="Make the cloud there, and let it stay; by default it goes with the run.",
)
@click.option(
    "--log", "log", default="", metavar="FILE", callback=not_empty, help="Write all that nodes and registry did, line by line, into a file."
)
@json_option
def run(file: str, seed: int, folder: str, log: str, as_json: bool) -> None:
    """Run the scenario in FILE on a cloud of its own, and say what of it must not be.

    The file says which nodes and networks there are, and in [[steps]] what is done to instances and what goes wrong, and when. At the end
    all faults are ended, what an administrator would do is done, and everything is held against each other: files, simulated kernels, and
    the registry. Everything by chance comes from the seed: the same seed, the same log, byte for byte.

    Exit status 1 if something was found that must not be.
    """
    scenario = read(file)
    with ExitStack() as stack:
        if folder and state.there(folder):
            raise HostRefused(f"there is a mock cloud in {escaped(folder)} already", "name another folder, or remove it")
        lines = stack.enter_context(_opened(log)) if log else None
        root = folder or stack.enter_context(scratch())
        found = play(scenario, root, seed, lines)
    _end(document(found), as_json)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Give a folder for a cloud that goes again: in memory where that can be, since its registry synchronises every commit."""
    made = None if os.environ.get("TMPDIR") or not os.access(MEMORY, os.W_OK) else MEMORY
    return tempfile.TemporaryDirectory(prefix="mockcloud-", dir=made)


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    try:
        file = open(path, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - see below
    except OSError as error:
        raise HostRefused(f"cannot write {escaped(path)}: {error.strerror}") from None
    try:
        yield file
    finally:
        with suppress(OSError):  # what it has not taken was said already
            file.close()


class Group(click.Group):
    """Make the command of each fault."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(FAULTS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name, FAULTS[cmd_name]) if cmd_name in FAULTS else None


@click.group("fault", cls=Group)
def fault() -> None:
    """Let something go wrong in a cloud that is there, for a while, and look what becomes of it.

    All agents run; the fault begins, and ends after --for seconds of virtual time. Then what an administrator would do is done, and when
    all has been quiet for a while (--settle) everything is held against each other, as at the end of a scenario. A cloud that is served
    goes on with its other work after that.

    Exit status 1 if something was found that must not be.
    """


def _command(name: str, one: Fault) -> click.Command:
    def work(folder: str, seed: int, settle: float, as_json: bool, nodes: tuple[str, ...] = (), lasts: float = 0.0, **given: Any) -> None:
        for variable, value in (("--for", lasts), ("--settle", settle)):
            if not 0.0 <= value <= LATEST:
                raise NicInvalid(variable, f"{value:g}", f"a number from 0 to {LATEST:g}")
        wanted = {**given, "settle": settle, "seed": seed}
        wanted |= {"for": lasts} if one.ends is not None else {}
        wanted |= {"nodes": list(nodes)} if nodes else {}
        connected = connection(folder)
        if connected is not None:
            found = ask(connected, "POST", "/faults", {"task": name, "params": wanted})
        else:
            with opened(folder, seed=seed) as cloud:
                found = struck(cloud, name, wanted)
        _end(found, as_json)

    params: list[click.Parameter] = [click.Argument(["nodes"], nargs=-1, metavar="[NODE...]")] if one.of_node else []
    for each, parameter in one.takes.items():
        shown: dict[str, Any] = {"type": str, "metavar": "COMMAND"}
        if parameter.default != "":
            bounds = parameter.least, parameter.most, parameter.default
            shown = {"type": click.Choice(parameter.choices) if parameter.choices else _Range(*bounds), "show_default": True}
        params.append(click.Option([f"--{each}"], default=parameter.default, help=parameter.help, **shown))
    if one.ends is not None:
        text = "After how many seconds it is over, by the clock of the nodes."
        params.append(click.Option(["--for", "lasts"], type=float, default=30.0, show_default=True, metavar="SECONDS", help=text))
    text = "How long all is to be quiet before the last look."
    params.append(click.Option(["--settle"], type=float, default=SETTLE, show_default=True, metavar="SECONDS", help=text))
    nodes = " NODES are hostnames or UUIDs, all of them by default." if one.of_node else ""
    made = click.Command(name, params=params, callback=work, help=f"{one.help}{nodes}", short_help=one.help)
    return json_option(cloud_option(seed_option(made)))


class _Range(click.ParamType[float]):
    """A number within bounds, whole where the default is."""

    name = "number"

    def __init__(self, least: float, most: float, default: float) -> None:
        self._least, self._most, self._whole = least, most, isinstance(default, int)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | int:
        try:
            found = int(value) if self._whole else float(value)
        except (TypeError, ValueError):
            found = None
        if found is None or not self._least <= found <= self._most:
            self.fail(
                f"{value!a:.80}: expected a {'whole ' if self._whole else ''}number from {self._least:g} to {self._most:g}", param, ctx
            )
        return found


def _end(found: dict[str, Any], as_json: bool) -> None:
    """Print what a run came to, and end with its exit status."""
    show(found, as_json)
    if found["violations"]:
        raise SystemExit(VIOLATED)


def show(found: dict[str, Any], as_json: bool) -> None:
    """Print what a run came to."""
    if as_json:
        answer("run", **found)
        return
    say(table(("AT", "WHAT"), [(f"{each['at']:.1f}", each["text"]) for each in found["outcomes"]]))
    for each in found["violations"]:
        say(f"violation at {each['at']:.1f} ({each['when']}): {each['text']}")
    said = f"{found['seconds']:.0f} s, {found['actions']} actions of nodes, seed {found['seed']}"
    say(f"{len(found['violations'])} violations; {said}")
    say(f"log: {found['lines']} lines, SHA-256 {found['sha256']}")


COMMANDS = {"run": run, "fault": fault}
