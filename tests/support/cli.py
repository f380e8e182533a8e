"""Runs the command line in this process, on a simulated node whose files are below one folder."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from netcommon.cli.app import App
from netcommon.cli.group import netcommon
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle.context import Clock
from netcommon.log import Recorder
from runtime.paths import Paths

ROOT = Path(__file__).resolve().parents[2]
BRIDGED = ("define", "--interface", "tap0", "--mode", "bridged", "--link", "br0", "--instance", "web1", "--index", "0")
ROUTED = ("define", "--interface", "tap1", "--mode", "routed", "--link", "guests", "--ip", "10.0.0.5", "--instance", "web1", "--index", "1")
#: Commands whose document is more than one list.
WHOLE = ("tree", "graph", "explain", "trace", "top", "events")
UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(10)]


class Cli:
    """``cli("up", "tap0")`` runs ``netcommon up tap0``. The clock stands still but for sleeping."""

    def __init__(self, root: Path) -> None:
        self.root, self.paths, self.host = root, Paths.under(str(root)), MemoryHost({"guests": 100})
        self.environ: Mapping[str, str] = {}
        self.uid = 0
        self.features: Mapping[str, str] = {}
        self.log = Recorder()
        self.time = 1000.0
        self.wall = 1.7e9
        self._uuids = itertools.cycle(UUIDS)
        self.new_uuid: Callable[[], str] = lambda: next(self._uuids)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def app(self) -> App:
        clock = Clock(lambda: self.time, lambda: self.wall, self.sleep)
        return App(
            self.paths, clock, lambda *_: self.host, self.log, self.environ, self.uid, self.new_uuid, str(self.root), lambda: self.features
        )

    def __call__(self, *arguments: str, status: int | None = 0, stdin: str | bytes | None = None) -> Result:
        """Runs it; the exit status must be ``status``, if that is not None."""
        result = CliRunner().invoke(netcommon, arguments, obj=self.app(), input=stdin, prog_name="netcommon", catch_exceptions=False)
        assert status in (None, result.exit_code), f"exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result

    def json(self, *arguments: str, status: int = 0) -> Any:
        """The same with --json: the document, of WHOLE; of the others what it says, without its schema, and the list alone if it is one."""
        said = json.loads(self(*arguments, "--json", status=status).stdout)
        assert said["schema"].startswith("netcommon-") and said["version"] == 1
        if arguments[0] in WHOLE:
            return said
        del said["schema"], said["version"]
        (first, *more) = said.values()
        return first if isinstance(first, list) and not more else said


def equipped(root: Path) -> Cli:
    """A node with a bridge and two taps that QEMU holds; nothing is defined."""
    made = Cli(root)
    made.host.add_bridge("br0", mtu=1400)
    made.host.add_tap("tap0", holder=77)
    made.host.add_tap("tap1", holder=77)
    return made


def with_two(cli: Cli) -> Cli:
    """The same with a bridged and a routed NIC defined and up."""
    cli(*BRIDGED)
    cli(*ROUTED)
    cli("up", "--all")
    return cli
