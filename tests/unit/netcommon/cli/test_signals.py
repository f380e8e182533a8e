"""A command that is told to end: what it has begun of one NIC is done, nothing is begun of the next, and it dies of the signal."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.cli import signals
from netcommon.host.api.host import View
from netcommon.lifecycle import change as changes
from netcommon.lifecycle import run_effects
from netcommon.lifecycle.context import Call, Node
from netcommon.log import Log
from runtime.errors import Interrupted
from runtime.record import Record
from tests.support.bootstrap import ROOT, VENV
from tests.support.cli import Cli
from tests.support.ganeti_guest import A, B, Guest


@pytest.fixture
def heeded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Heed signals as the command does."""
    monkeypatch.setattr(signals, "_came", [])
    before = [(number, signal.getsignal(number)) for number in signals.NUMBERS]
    signals.take()
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize("command", [["gc"], ["repair", "--all"]])
@pytest.mark.usefixtures("heeded")
def test_what_is_over_is_ended_of_no_other_nic(command: list[str], two: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes when the first one's change holds, and its file says so."""
    two("change", "tap0", "tap1", "spoof_guard=no", "--for", "60s")
    two.time += 61
    give_back, told = changes.give_back, list[str]()

    def signalled(node: Node, call: Call) -> None:
        if not told:
            told.append("once")
            signal.raise_signal(signal.SIGTERM)
        give_back(node, call)

    monkeypatch.setattr(changes, "give_back", signalled)
    with pytest.raises(Interrupted):
        two(*command)
    assert sorted(holds(two)) == [False, True]


@pytest.mark.usefixtures("heeded")
def test_no_other_nic_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes when the first one is on record, and is told of: it is adopted to the end, and the next is as it was."""
    cli = Cli(tmp_path)
    cli.host.add_bridge("br0")
    guest, arrived, told = Guest(cli), run_effects.arrived, list[str]()
    for number, uuid in enumerate((A, B)):
        guest.nic(uuid, descriptor=20 + number)
        guest.tap(f"tap{number}", 20 + number)

    def signalled(node: Node, record: Record, log: Log, seen: View | None = None, first: bool = False) -> None:
        if not told:
            told.append(record.uuid)
            signal.raise_signal(signal.SIGTERM)
        arrived(node, record, log, seen=seen, first=first)

    monkeypatch.setattr(run_effects, "arrived", signalled)
    with pytest.raises(Interrupted):
        guest.adopt()
    assert told == [A] and [record.uuid for record in cli.app().node().store.all()[0]] == [A]


def holds(cli: Cli) -> list[bool]:
    """Tell of each NIC whether it still has what was changed of it."""
    return ["set by change" in cli("explain", name).stdout for name in ("tap0", "tap1")]


def command(tmp_path: Path, before: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return of_program("netcommon", before, "--root", str(tmp_path), *arguments)


def of_program(name: str, before: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """``name`` in a process that runs ``before`` first, and whose caller ignores no signal, whatever ours does."""
    heeding = f"for number in {tuple(map(int, signals.NUMBERS))}: signal.signal(number, signal.SIG_DFL)"
    code = f"import atexit, os, signal, sys\n{heeding}\n{before}\nfrom {name}.cli import main\nmain()"
    words = [VENV / "bin/python", "-c", code, *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, check=False, timeout=60)


#: A signal as soon as a module is to be imported.
AT_IMPORT = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("module", ["click", "netcommon.cli.group", "netcommon.cli.commands.listing"])
def test_a_command_that_has_hardly_begun_dies_of_the_signal(tmp_path: Path, module: str, number: signal.Signals) -> None:
    done = command(tmp_path, AT_IMPORT.format(module=module, number=int(number)), "list")
    assert (done.returncode, done.stdout, done.stderr) == (-number, b"", b"netcommon: ended by signal %d\n" % number)


def test_mockcloud_says_its_own_name() -> None:
    done = of_program("mockcloud", AT_IMPORT.format(module="mockcloud.cli.group", number=int(signal.SIGINT)), "--help")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"mockcloud: ended by signal 2\n")
    done = of_program("mockcloud", "os.close(1); os.open('/dev/full', os.O_WRONLY)", "--help")
    assert (done.returncode, done.stderr) == (74, b"mockcloud: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_has_done_all_dies_of_the_signal(tmp_path: Path, number: signal.Signals) -> None:
    """No traceback of the interpreter's own end."""
    done = command(tmp_path, f"atexit.register(os.kill, os.getpid(), {int(number)})", "list")
    assert (done.returncode, done.stderr) == (-number, b"") and done.stdout


def test_what_the_caller_ignores_is_ignored(tmp_path: Path) -> None:
    """As in a script's background, and with nohup."""
    ignoring = "".join(f"signal.signal({int(number)}, signal.SIG_IGN)\n" for number in (signal.SIGINT, signal.SIGHUP))
    for number in (signal.SIGINT, signal.SIGHUP):
        done = command(tmp_path, ignoring + AT_IMPORT.format(module="click", number=int(number)), "list")
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout


def test_a_second_ctrl_c_leaves_the_way_back_its_time(tmp_path: Path) -> None:
    script = """
from netcommon.cli.commands import listing
def work(*_arguments, **_named):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        print("taken back", flush=True)
listing.COMMANDS["list"].callback = work
"""
    done = command(tmp_path, script, "list")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"taken back\n", b"netcommon: ended by signal 2\n")
