"""What subscriptions make of what they are told: files by inotify, the database of Open vSwitch, nftables, and rtnetlink's filter."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.agent import _lock_closed, _record_changed
from netagent.events import BASE, INDEX, NAME, SWITCH, TABLE, Came, Changed, Gone, LockClosed, Overrun, RecordChanged
from netagent.sources import nft_events
from netagent.sources.inotify import FileEvents
from netagent.sources.listener import (
    ATTRIBUTE,
    EQUAL,
    FIND,
    LOAD_BYTE,
    LOAD_HALF,
    LOAD_WORD_X,
    NUMBER,
    NUMBER_X,
    RETURN,
    TO_X,
    Listener,
)
from netagent.sources.ovs_events import OvsEvents
from netagent.sources.rtnetlink import FILTER, RTM_NEWADDR, KernelEvents
from netcommon.host.api.nftables import ARP, NETDEV, Drop, NftChain, NftElement, NftTable, Put
from netcommon.host.nftables import encode as nfencode
from netcommon.host.rtnetlink.encode import RTM_DELNEIGH, RTM_DELROUTE, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE
from runtime import inotify
from runtime.errors import HostRefused
from tests.support.nics import U1

# -- files


@pytest.fixture
def files() -> Iterator[FileEvents]:
    made = FileEvents()
    yield made
    made.close()


def test_records_and_locks(files: FileEvents, tmp_path: Path) -> None:
    """A rename counts, a temporary file and another lock set do not; several changes of one file are one event."""
    for name in ("nics", "locks"):
        (tmp_path / name).mkdir()
    descriptor = os.open(tmp_path / "nics", os.O_RDONLY)
    assert files.watch("nics", descriptor, inotify.NAMES, _record_changed)
    assert files.watch("locks", str(tmp_path / "locks"), inotify.IN_CLOSE, _lock_closed)
    record = tmp_path / "nics" / f"{U1}.json"
    for _ in range(3):
        (tmp_path / "nics" / ".netcommon-tmp-1").write_text("x")
        os.rename(tmp_path / "nics" / ".netcommon-tmp-1", record)
    for name in ("uuid-07", "device-07", "uuid-x"):
        (tmp_path / "locks" / name).touch()
    assert files.read() == [RecordChanged(U1), LockClosed(7)]
    record.unlink()
    assert files.read() == [RecordChanged(U1)] and files.read() == []
    os.close(descriptor)


def test_a_watched_folder_that_goes(files: FileEvents, tmp_path: Path) -> None:
    assert not files.watch("missing", str(tmp_path / "missing"), inotify.NAMES, _record_changed)
    folder = tmp_path / "nics"
    folder.mkdir()
    assert files.watch("nics", str(folder), inotify.NAMES, _record_changed)
    folder.rmdir()
    assert files.read() == [Overrun("inotify")] and files.lost == {"missing", "nics"}
    folder.mkdir()
    assert files.watch("nics", str(folder), inotify.NAMES, _record_changed) and files.lost == {"missing"}


def test_a_queue_that_is_full(files: FileEvents, tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    assert files.watch("nics", str(tmp_path), inotify.NAMES, lambda name: None)
    path = tmp_path / "x"
    for _ in range(limit // 2 + 10):  # each of them is two events: closed after writing, and removed
        path.touch()
        path.unlink()
    assert files.read() == [Overrun("inotify")]


@pytest.mark.parametrize("name", ["", ".json", "x.json", f"{U1}.txt", f"{U1.upper()}.json", f"{U1}.json.tmp"])
def test_what_is_no_record(name: str) -> None:
    assert _record_changed(name) is None


def test_moved_records() -> None:
    assert _record_changed(f"{U1}.12.json") == RecordChanged(f"{U1}.12")


# -- Open vSwitch


class Database:
    """The other end of a subscription."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.peer: socket.socket | None = None

    def accept(self) -> dict[str, Any]:
        """Takes the connection; what was asked."""
        self.peer = self.listener.accept()[0]
        asked: dict[str, Any] = json.loads(self.peer.recv(1 << 16))
        return asked

    def say(self, *messages: object) -> None:
        assert self.peer
        self.peer.sendall("".join(map(json.dumps, messages)).encode())

    def update(self, **tables: object) -> dict[str, object]:
        return {"id": None, "method": "update", "params": [None, tables]}

    def close(self) -> None:
        for each in (self.peer, self.listener):
            if each:
                each.close()
        self.peer = None


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "db.sock")
    yield made
    made.close()


def test_what_the_database_tells(database: Database) -> None:
    events = OvsEvents(database.path, time.monotonic)
    assert events.open() and events.open() and events.descriptor >= 0
    asked = database.accept()
    assert asked["method"] == "monitor" and set(asked["params"][2]) == {"Port", "Interface", "Bridge", "Open_vSwitch"}
    gone, changed = {"old": {"name": "tap0", "tag": 5}}, {"old": {"tag": 5}, "new": {"name": "tap1", "tag": 6}}
    database.say(
        {"id": asked["id"], "error": None, "result": {}},
        {"id": "echo", "method": "echo", "params": ["x"]},
        database.update(Port={"u1": gone, "u2": changed}, Bridge={"u3": {"old": {"name": "ovs0"}}}),
    )
    assert events.read() == [Gone(((NAME, "tap0"),)), Changed(((NAME, "tap1"),)), Gone(((SWITCH, "ovs0"),))]
    assert database.peer and json.loads(database.peer.recv(1 << 16)) == {"result": ["x"], "error": None, "id": "echo"}
    assert events.read() == []
    there = {"old": {"tag": 5}, "new": {"name": "tap0", "tag": 6}}
    database.say(database.update(Port={"u1": there}), database.update(Port={"u1": gone}))
    assert events.read() == [Changed(((NAME, "tap0"),)), Gone(((NAME, "tap0"),))], "altered, and removed before that was read"
    events.close()


@pytest.mark.parametrize("marks", [(), ((NAME, "tap0"),)])
def test_events_of_other_kinds_are_others(marks: tuple[tuple[str, object], ...]) -> None:
    """Sources tell each event once: one that something is gone is not to be taken for one that it has changed."""
    assert len({Gone(marks), Changed(marks), Came(marks), Gone(marks)}) == 3


def test_a_message_in_pieces(database: Database) -> None:
    events = OvsEvents(database.path, time.monotonic)
    assert events.open()
    database.accept()
    text = json.dumps(database.update(Port={"u1": {"old": {"name": "täp0"}}}), ensure_ascii=False).encode()
    assert database.peer
    seen = []
    for position in range(len(text)):
        database.peer.sendall(text[position : position + 1])
        seen += events.read()
    assert seen == [Gone(((NAME, "täp0"),))]
    events.close()


@pytest.mark.parametrize("text", [b"nonsense}", b"[{}]", b'{"id":1,"error":"no","result":null}', b"\xff\xff{}", None])
def test_nonsense_and_the_end_are_an_overrun(database: Database, text: bytes | None) -> None:
    events = OvsEvents(database.path, time.monotonic)
    assert events.open()
    database.accept()
    assert database.peer
    database.peer.sendall(text) if text is not None else database.close()
    assert events.read() == [Overrun("ovsdb")] and not events.connected and events.descriptor == -1


@pytest.mark.parametrize(
    "params", [None, [], [None, []], [None, {"Port": []}], [None, {"Port": {"u": 1}}], [None, {"Port": {"u": {"old": {"name": 1}}}}]]
)
def test_updates_that_make_no_sense_are_nothing(database: Database, params: object) -> None:
    events = OvsEvents(database.path, time.monotonic)
    assert events.open()
    database.accept()
    database.say({"id": None, "method": "update", "params": params})
    assert events.read() == [] and events.connected
    events.close()


def test_without_a_database(tmp_path: Path) -> None:
    events = OvsEvents(str(tmp_path / "none"), time.monotonic)
    assert not events.open() and events.descriptor == -1


def test_a_frozen_database_keeps_nobody_waiting(database: Database) -> None:
    """It takes the connection, and never answers."""
    events = OvsEvents(database.path, time.monotonic)
    done = threading.Event()
    threading.Thread(target=lambda: (events.open(), events.read(), done.set()), daemon=True).start()
    assert done.wait(5) and events.connected
    events.close()


# -- nftables


def marks(*things: NftTable | NftChain | NftElement) -> list[object]:
    found: list[object] = []
    for message, _position in nfencode.steps([Drop(thing) for thing in things]):
        found += nft_events._marks(message.type & 0xFF, message.body)
    return found


def test_whom_a_change_of_nftables_is_about() -> None:
    index = struct.pack("=I", 7)
    guard = "netcommon-guard-16"
    assert (INDEX, 7) in marks(NftElement(NETDEV, guard, "macs", index + bytes(8)))
    assert (INDEX, 7) in marks(NftElement(ARP, "netcommon-arp", "gateways", index))
    assert (NAME, "tap0") in marks(NftElement(1, "netcommon-fw-x", "nics", b"tap0" + bytes(12)))
    assert set(marks(NftChain(NETDEV, guard, "in-7"))) == {(INDEX, 7)}
    assert set(marks(NftChain(NETDEV, guard, "guard"))) == {(TABLE, (NETDEV, guard))}
    assert marks(NftTable(NETDEV, guard)) == [(TABLE, (NETDEV, guard))]
    (made,) = [message for message, _position in nfencode.steps([Put(NftTable(NETDEV, guard))])]
    assert list(nft_events._marks(made.type & 0xFF, made.body)) == [(TABLE, (NETDEV, guard))], "it may have been made dormant"


# -- rtnetlink's filter


def passes(datagram: bytes) -> bool:
    """What the kernel makes of FILTER."""
    accumulator = place = index = 0
    while True:
        operation, yes, no, operand = FILTER[place]
        place += 1
        if operation == LOAD_HALF:
            accumulator = int.from_bytes(datagram[operand : operand + 2], "big")
        elif operation == LOAD_BYTE:
            accumulator = datagram[operand]
        elif operation == NUMBER:
            accumulator = operand
        elif operation == NUMBER_X:
            index = operand
        elif operation == TO_X:
            index = accumulator
        elif operation == LOAD_WORD_X:
            accumulator = int.from_bytes(datagram[index + operand : index + operand + 4], "big")
        elif operation == FIND:
            assert operand == ATTRIBUTE
            accumulator = found(datagram, accumulator, index)
        elif operation == EQUAL:
            place += yes if accumulator == operand else no
        else:
            assert operation == RETURN
            return operand != 0


def found(datagram: bytes, place: int, kind: int) -> int:
    """Give where an attribute of a kind is in a datagram, behind a place; 0 for none."""
    while place + 4 <= len(datagram):
        length, there = struct.unpack_from("=HH", datagram, place)
        if there == kind:
            return place
        place += (length + 3) & ~3
    return 0


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def route(length: int, protocol: int, family: int = 2) -> bytes:
    return struct.pack("=BBBBBBBBI", family, length, 0, 0, 254, protocol, 0, 1, 0)


REST_METRIC = struct.pack("=HHIHHI", 8, 4, 1, 8, 6, 0x7FFFFFFF)  #: a device, and the metric


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        (RTM_NEWROUTE, route(32, 174), False),
        (RTM_NEWROUTE, route(24, 186), False),
        (RTM_NEWROUTE, route(32, 4), True),
        (RTM_NEWROUTE, route(128, 186, 10), True),
        (RTM_NEWROUTE, route(32, 186, 10), False),
        (RTM_NEWROUTE, route(0, 186, 10), True),
        (RTM_NEWROUTE, route(32, 2), False),
        (RTM_NEWROUTE, route(33, 4), False),
        (RTM_NEWROUTE, route(0, 4), True),
        (RTM_DELROUTE, route(32, 174), True),
        (RTM_DELROUTE, route(24, 174), True),
        (RTM_DELROUTE, route(24, 186), False),
        (RTM_DELROUTE, route(32, 186), True),
        (RTM_DELROUTE, route(32, 186, 10), False),
        (RTM_DELROUTE, route(32, 174, 10), True),
        (RTM_DELROUTE, route(128, 2, 10), False),
        (RTM_DELROUTE, route(0, 186), True),
        (RTM_DELROUTE, route(64, 4, 10) + REST_METRIC, True),
        (RTM_DELROUTE, route(64, 4, 10), False),
        (RTM_DELROUTE, route(64, 186, 10) + struct.pack("=HHIHHI", 8, 4, 0x7FFFFFFF, 8, 6, 1024), False),
        (RTM_DELROUTE, route(63, 4, 10) + REST_METRIC, False),
        (RTM_NEWROUTE, route(64, 4, 10) + REST_METRIC, True),
        (RTM_NEWROUTE, route(64, 174, 10) + REST_METRIC, False),
        (RTM_NEWNEIGH, struct.pack("=BxxxiHBB", 7, 3, 0x40, 0, 0), True),
        (RTM_NEWNEIGH, struct.pack("=BxxxiHBB", 7, 3, 0x02, 0, 0), False),
        (RTM_NEWNEIGH, struct.pack("=BxxxiHBB", 10, 3, 0x40, 0, 0), False),
        (RTM_DELNEIGH, struct.pack("=BxxxiHBB", 7, 3, 0x40, 0, 0), True),
        (RTM_DELNEIGH, struct.pack("=BxxxiHBB", 7, 3, 0x02, 0, 0), False),
        (RTM_NEWLINK, bytes(16), True),
        (RTM_NEWADDR, bytes(8), True),
    ],
)
def test_what_the_kernel_passes_on(kind: int, body: bytes, wanted: bool) -> None:
    assert passes(message(kind, body)) == wanted


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def test_a_bridge_that_has_vlans_only_now_has_come() -> None:
    """A NIC with a VLAN may have waited for it; its timers are nothing to us."""
    events = KernelEvents()

    def comes(filtering: int, timer: int) -> bool:
        data = attribute(16, struct.pack("=Q", timer)) + attribute(7, bytes([filtering])) + attribute(8, b"\x81\x00")
        info = attribute(18, attribute(1, b"bridge\0") + attribute(2, data))
        body = struct.pack("=BxHiII", 0, 1, 3, 1, 0) + attribute(3, b"br0\0") + info
        return Came(((BASE, "br0"), (NAME, "br0"))) in list(events._event(RTM_NEWLINK, body))

    assert [comes(0, 1), comes(0, 2), comes(1, 2), comes(1, 3)] == [True, False, True, False]
    events.close()


def test_a_kernel_that_gives_no_such_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent goes on without those events (docs/agent.md); any other error would end it."""

    def none(*_given: object) -> object:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    monkeypatch.setattr(socket, "socket", none)
    with pytest.raises(HostRefused, match="no socket"):
        Listener(12, [1])
