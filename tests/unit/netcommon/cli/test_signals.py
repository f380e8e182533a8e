"""SIGTERM to a command of many NICs: what it has begun of one is done, and nothing is begun of the next."""

from __future__ import annotations

import signal
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
from tests.support.cli import Cli
from tests.support.ganeti_guest import A, B, Guest


@pytest.fixture
def heeded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Heed signals as the command does."""
    monkeypatch.setattr(signals, "_came", [])
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGHUP)]
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
