"""The agent's connections to Open vSwitch: daemons that do not listen yet, that go and come, and flows that somebody restores."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.events import FLOWS, INDEX, NAME, SWITCH, Came, Changed, Event, Gone, Mark, Overrun
from netagent.index import Entry, Nics
from netagent.loop import Loop
from netagent.sources import flow_events
from netagent.sources.flow_events import FlowEvents
from netagent.sources.switches import Switches
from netcommon.host.api.facts import FLOW_MARK
from netcommon.host.ovs.openflow_bundle import HEADER, message
from runtime.record import UP

COOKIE = FLOW_MARK | 7
MARKS: frozenset[Mark] = frozenset({(INDEX, 7), (NAME, "tap0"), (SWITCH, "ovs0"), (FLOWS, ("ovs0", COOKIE))})
NIC = Entry("a", "a", "tap0", 7, UP, "web1", MARKS)
ALL = Came(((SWITCH, "ovs0"),))
MONITOR = struct.pack("!HH4x", flow_events.FLOW_MONITOR, 0)


class Daemon:
    """The other end of one socket: there first, listening later."""

    def __init__(self, path: Path) -> None:
        self.path, self.peer = path, socket.socket()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))

    def listen(self) -> None:
        self.listener.listen()

    def accept(self) -> bytes:
        """Takes a connection; what it asks."""
        self.peer.close()
        self.listener.settimeout(5)
        self.peer = self.listener.accept()[0]
        return self.peer.recv(1 << 16)

    def close(self) -> None:
        self.peer.close()
        self.listener.close()
        self.path.unlink(missing_ok=True)


class Place:
    """Connections of one NIC with flows. The loop turns until a condition holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events, self.restored, self.errors = folder, list[Event](), 0, list[Exception]()
        self.nics, self.loop = Nics(), Loop(time.monotonic, self.errors.append)
        self.nics.put(NIC)
        self.switches = Switches(str(folder / "db.sock"), time.monotonic, self.loop, self.nics, self.ready, self.count)
        self.daemons: list[Daemon] = []

    def ready(self) -> None:
        self.events += self.switches.read()

    def count(self) -> None:
        self.restored += 1

    def daemon(self, name: str) -> Daemon:
        self.daemons.append(Daemon(self.folder / name))
        return self.daemons[-1]

    def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, self.events
            self.loop.turn(0.05)
        assert self.errors == []

    def close(self) -> None:
        self.switches.close()
        for each in self.daemons:
            each.close()
        self.loop.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def said(**rows: object) -> dict[str, Any]:
    return {"id": 1, "error": None, "result": rows}


def config(**options: str) -> dict[str, Any]:
    return {"Open_vSwitch": {"u": {"new": {"other_config": ["map", list(map(list, options.items()))]}}}}


def tell(daemon: Daemon, *messages: object) -> None:
    daemon.peer.sendall("".join(map(json.dumps, messages)).encode())


def update(tables: dict[str, Any]) -> dict[str, Any]:
    return {"id": None, "method": "update", "params": [None, tables]}


def test_a_socket_that_is_there_before_it_listens(place: Place) -> None:
    """A refusal is tried again, without any further event."""
    database, bridge = place.daemon("db.sock"), place.daemon("ovs0.mgmt")
    place.switches.need(NIC)
    place.switches.appeared("db.sock")
    place.switches.appeared("ovs0.mgmt")
    for _ in range(3):
        place.loop.turn(0.05)
    assert not place.switches.connected
    for daemon in (database, bridge):
        daemon.listen()
    place.until(lambda: all(line.connection.connected for line in place.switches._lines.values()))
    database.accept()
    tell(database, said())
    place.until(lambda: place.events == [ALL])
    bridge.accept()
    bridge.peer.sendall(message(flow_events.BARRIER_REPLY, 3))
    place.until(lambda: place.events == [ALL, ALL])
    assert place.switches.connected and place.restored == 0


def test_daemons_that_go_and_come(place: Place) -> None:
    for turn in range(3):
        database, bridge = place.daemon("db.sock"), place.daemon("ovs0.mgmt")
        for daemon in (database, bridge):
            daemon.listen()
        place.switches.again() if turn == 0 else place.switches.appeared("ovs0.mgmt")
        place.until(lambda: all(line.connection.connected for line in place.switches._lines.values()))
        database.accept()
        bridge.accept()
        tell(database, said())
        bridge.peer.sendall(message(flow_events.BARRIER_REPLY, 3))
        place.until(lambda: place.events == [ALL, ALL])
        database.close()
        bridge.close()
        place.until(lambda: len(place.events) == 4)
        assert set(place.events[2:]) == {Overrun("ovsdb"), Gone(((SWITCH, "ovs0"),))}
        place.events.clear()
    assert not place.switches.connected


def test_nobody_needs_it_any_more(place: Place) -> None:
    place.switches.need(NIC)
    place.nics.drop("a")
    place.until(lambda: place.loop._patience(None) is None)
    for name in ("db.sock", "ovs0.mgmt"):
        place.daemon(name).listen()
    place.loop.turn(0.05)
    assert not any(line.connection.connected for line in place.switches._lines.values())


def test_somebody_restores_flows(place: Place) -> None:
    """When that ends all is compared, and what came back of NICs that are gone is removed; also if the database was restarted meanwhile."""
    database = place.daemon("db.sock")
    database.listen()
    place.switches.need(NIC)
    database.accept()
    tell(database, said(**config(**{"flow-restore-wait": "true"})))
    place.until(lambda: place.events == [ALL])
    tell(database, update(config(**{"flow-restore-wait": "true", "hw-offload": "false"})))
    tell(database, update({"Bridge": {"u": {"new": {"name": "ovs5"}}}}))
    place.until(lambda: Came(((SWITCH, "ovs5"),)) in place.events)
    assert place.restored == 0
    database.close()
    place.until(lambda: Overrun("ovsdb") in place.events)
    place.events.clear()
    database = place.daemon("db.sock")
    database.listen()
    place.until(lambda: place.switches._database.connected)
    database.accept()
    tell(database, said(**config(**{"flow-restore-wait": "true"})))
    place.until(lambda: place.events == [ALL])
    assert place.restored == 0
    tell(database, update(config()))
    place.until(lambda: place.events == [ALL, ALL])
    assert place.restored == 1


def test_a_daemon_that_was_stopped_and_goes_on(place: Place) -> None:
    """Nobody tells of that: it is asked when something has failed. One that answers at once has not been stopped."""
    database, bridge = place.daemon("db.sock"), place.daemon("ovs0.mgmt")
    place.switches._clock = lambda: now  # type: ignore[method-assign]
    place.switches._database._clock = place.switches._clock
    now = time.monotonic()
    for daemon in (database, bridge):
        daemon.listen()
    place.switches.need(NIC)
    database.accept()
    tell(database, said())
    bridge.accept()
    bridge.peer.sendall(message(flow_events.BARRIER_REPLY, 3))
    place.until(lambda: place.events == [ALL, ALL])
    for silent in (0.0, 60.0, 0.0):
        place.events.clear()
        for _ in range(3):
            place.switches.ask()
        assert json.loads(database.peer.recv(1 << 16))["method"] == "echo", "once"
        assert bridge.peer.recv(1 << 16) == message(flow_events.ECHO_REQUEST, 4)
        now += silent
        tell(database, {"id": 2, "error": None, "result": []}, update({"Bridge": {"u": {"new": {"name": "ovs5"}}}}))
        bridge.peer.sendall(message(flow_events.ECHO_REPLY, 4) + message(flow_events.MULTIPART_REPLY, 0, MONITOR + flow(2, COOKIE)))
        place.until(lambda: {Came(((SWITCH, "ovs5"),)), Gone(OURS)} <= set(place.events))
        assert place.events.count(ALL) == (2 if silent else 0)


# -- what a bridge says of its flows


def flow(event: int, cookie: int, port: int = 0, length: int | None = None) -> bytes:
    fields = struct.pack("!HBBI", 0x8000, 4 << 1, 4, 9) + (struct.pack("!HBBI", 0x8000, 0, 4, port) if port else b"")
    whole = struct.pack("!HH", 1, 4 + len(fields)) + fields
    whole += bytes(-len(whole) % 8)
    size = flow_events.UPDATE.size + len(whole) if length is None else length
    return struct.pack("!HHBBHHH4xQ", size, event, 0, 0, 0, 0, 9, cookie) + whole


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[tuple[FlowEvents, Daemon]]:
    daemon = Daemon(tmp_path / "ovs0.mgmt")
    daemon.listen()
    events = FlowEvents(str(daemon.path), "ovs0", lambda number: ["tap0"] if number == 3 else [], time.monotonic)
    assert events.open() and events.open() and events.descriptor >= 0
    asked = daemon.accept()
    assert [HEADER.unpack_from(asked, at)[1] for at in (0, 8, 48)] == [0, flow_events.MULTIPART_REQUEST, flow_events.BARRIER_REQUEST]
    yield events, daemon
    events.close()
    daemon.close()


OURS, OTHERS = ((FLOWS, ("ovs0", COOKIE)),), 5 << 60
TOLD: dict[str, tuple[bytes, list[Event]]] = {
    "ours removed": (flow(flow_events.REMOVED, COOKIE), [Gone(OURS)]),
    "ours modified": (flow(flow_events.MODIFIED, COOKIE, 3), [Changed(OURS)]),
    "ours added, as by every up": (flow(flow_events.ADDED, COOKIE, 3), []),
    "another's in its place": (flow(flow_events.ADDED, OTHERS, 3), [Changed(((NAME, "tap0"),))]),
    "ours made another's": (flow(flow_events.MODIFIED, 0, 3), [Changed(((NAME, "tap0"),))]),
    "another's": (flow(flow_events.ADDED, OTHERS) + flow(flow_events.ADDED, OTHERS, 8) + flow(flow_events.REMOVED, OTHERS, 3), []),
    "many, each once": (flow(flow_events.REMOVED, COOKIE) * 40, [Gone(OURS)]),
    "all flows removed": (
        flow(flow_events.REMOVED, COOKIE) * 40 + flow(flow_events.REMOVED, OTHERS, 3),
        [Gone(OURS), Gone(((SWITCH, "ovs0"),))],
    ),
    "of our own": (struct.pack("!HHI", 8, 4, 1) + flow(flow_events.REMOVED, COOKIE), [Gone(OURS)]),
    "more than it could tell": (struct.pack("!HHI", 8, flow_events.PAUSED, 0), [Gone(((SWITCH, "ovs0"),))]),
}


@pytest.mark.parametrize("what", TOLD)
def test_what_a_bridge_tells_of_flows(bridge: tuple[FlowEvents, Daemon], what: str) -> None:
    events, daemon = bridge
    body, expected = TOLD[what]
    whole = message(flow_events.MULTIPART_REPLY, 0, MONITOR + body)
    daemon.peer.sendall(whole[:9])
    assert events.read() == []
    daemon.peer.sendall(whole[9:] + message(flow_events.ECHO_REQUEST, 5, b"x"))
    assert events.read() == expected and events.read() == []
    assert daemon.peer.recv(99) == message(flow_events.ECHO_REPLY, 5, b"x")


@pytest.mark.parametrize("answer", [message(flow_events.BARRIER_REPLY, 3), message(flow_events.ERROR, 2, b"\0\1\0\2")])
def test_a_bridge_that_tells_or_cannot(bridge: tuple[FlowEvents, Daemon], answer: bytes) -> None:
    """An older Open vSwitch refuses the monitor; that it ends is seen all the same."""
    events, daemon = bridge
    assert not events.subscribed
    daemon.peer.sendall(answer)
    assert events.read() == [] and events.subscribed
    daemon.peer.close()
    assert events.read() == [Gone(((SWITCH, "ovs0"),))] and not events.connected and not events.subscribed


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("!BBHI", 5, 19, 4, 0),
        message(flow_events.MULTIPART_REPLY, 0, b"\0"),
        message(flow_events.MULTIPART_REPLY, 0, MONITOR + flow(flow_events.REMOVED, COOKIE, length=0)),
        message(flow_events.MULTIPART_REPLY, 0, MONITOR + flow(flow_events.REMOVED, COOKIE)[:12]),
        message(flow_events.MULTIPART_REPLY, 0, MONITOR + flow(flow_events.ADDED, OTHERS, 3)[:26]),
    ],
)
def test_nonsense_ends_the_connection(bridge: tuple[FlowEvents, Daemon], sent: bytes) -> None:
    events, daemon = bridge
    daemon.peer.sendall(sent)
    assert events.read() == [Gone(((SWITCH, "ovs0"),))] and not events.connected


def test_nobody_is_there(tmp_path: Path) -> None:
    events = FlowEvents(str(tmp_path / "none"), "ovs0", lambda number: [], time.monotonic)
    assert not events.open() and events.descriptor == -1
