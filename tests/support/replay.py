"""Services that answer with what was once said, changed: the kernel's netlink sockets, and OVSDB."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from struct import error
from typing import Any

from netcommon.host.nftables.client import Nfnetlink
from netcommon.host.ovs.jsonrpc import JsonRpc
from netcommon.host.rtnetlink.attributes import HEADER
from netcommon.host.rtnetlink.socket import Netlink
from tests.support.mutate import Mutator

#: The answers to one thing that was sent: datagrams.
Said = list[bytes]


class _Tape:
    """A socket that is listened in on."""

    def __init__(self, real: Any, heard: list[Said]) -> None:
        self.real, self.heard = real, heard

    def send(self, data: bytes) -> int:
        self.heard.append([])
        return int(self.real.send(data))

    def recvfrom(self, size: int) -> tuple[bytes, Any]:
        data, sender = self.real.recvfrom(size)
        self.heard[-1].append(data)
        return data, sender

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class _Hostile:
    """In a socket's place: each thing that is sent is answered by the next of ``script``, with the sequence number asked for."""

    def __init__(self, script: Sequence[Said]) -> None:
        self.script, self.sent = script, 0
        self.queue: list[bytes] = []

    def send(self, data: bytes) -> int:
        *_, last = sequences(data)
        said = self.script[min(self.sent, len(self.script) - 1)] if self.script else []
        self.queue += [renumbered(each, last) for each in said]
        self.sent += 1
        return len(data)

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.queue.pop(0), (0, 0)

    def close(self) -> None:
        self.queue = []


def sequences(data: bytes) -> list[int]:
    """The sequence numbers of the messages in ``data``."""
    found, offset = [], 0
    while offset + HEADER.size <= len(data):
        length, _, _, sequence, _ = HEADER.unpack_from(data, offset)
        found.append(sequence)
        offset += (length + 3) & ~3
    return found


def renumbered(data: bytes, sequence: int) -> bytes:
    """``data`` with the sequence number of each of its messages set, as far as they can be told."""
    made, offset = bytearray(data), 0
    while offset + HEADER.size <= len(made):
        length, kind, flags, _, port = HEADER.unpack_from(made, offset)
        try:
            HEADER.pack_into(made, offset, length, kind, flags, sequence, port)
        except error:
            break
        if length < HEADER.size:
            break
        offset += (length + 3) & ~3
    return bytes(made)


class Wire:
    """The socket of a Netlink, which is the kernel's while it ``listens``, and a hostile one with a script else."""

    def __init__(self) -> None:
        self.heard: list[Said] = []
        self.script: Sequence[Said] | None = None

    def plug(self, real: Callable[[], Any]) -> Any:
        return _Tape(real(), self.heard) if self.script is None else _Hostile(self.script)


def _replaying(base: type[Netlink]) -> Callable[[Wire, float], Netlink]:
    class Replaying(base):  # type: ignore[misc, valid-type]
        def __init__(self, wire: Wire, timeout: float) -> None:
            super().__init__(timeout)
            self.wire = wire
            self._plugged: Any = None

        def _open(self) -> Any:
            if self._plugged is None or (self.wire.script is None) != isinstance(self._plugged, _Tape):
                self._plugged = self.wire.plug(super()._open)
            return self._plugged

        def close(self) -> None:
            super().close()
            self._plugged = None

    return Replaying


Rtnetlink: Callable[[Wire, float], Netlink] = _replaying(Netlink)
NfNetlink: Callable[[Wire, float], Netlink] = _replaying(Nfnetlink)


def reframed(mutator: Mutator, datagram: bytes) -> bytes:
    """The datagram with one message's body or flags changed, and the lengths right: what is wrong is what the message says."""
    messages, offset = [], 0
    while offset + HEADER.size <= len(datagram):
        length, kind, flags, sequence, port = HEADER.unpack_from(datagram, offset)
        messages.append((kind, flags, sequence, port, datagram[offset + HEADER.size : offset + max(length, HEADER.size)]))
        offset += max((length + 3) & ~3, HEADER.size)
    if not messages:
        return mutator.blob(datagram)
    place = mutator.random.randrange(len(messages))
    kind, flags, sequence, port, body = messages[place]
    if mutator.random.randrange(6):
        body = mutator.blob(body)
    else:
        kind, flags = mutator.random.choice((kind, 2, 3, 16, 0xFFFF)), flags ^ (1 << mutator.random.randrange(12))
    messages[place] = kind, flags, sequence, port, body
    made = b""
    for kind, flags, sequence, port, body in messages:
        made += HEADER.pack(HEADER.size + len(body), kind, flags, sequence, port) + body + b"\0" * (-len(body) % 4)
    return made


def disturbed(mutator: Mutator, script: Sequence[Said], others: Sequence[bytes]) -> list[Said]:
    """The script with at least one datagram changed, lost, repeated, or another one's."""
    made = [list(said) for said in script]
    filled = [said for said in made if said]
    for _ in range(mutator.random.choice((1, 1, 2))):
        said = mutator.random.choice(filled) if filled else made[0]
        place = mutator.random.randrange(max(len(said), 1))
        match mutator.random.randrange(12):
            case 0:
                del said[place : place + 1]
            case 1:
                said[place:place] = [mutator.random.choice(others)]
            case 2:
                said *= 2
            case 3 | 4 if said:
                said[place] = mutator.blob(said[place])
            case _ if said:
                said[place] = reframed(mutator, said[place])
    return made


class Database(JsonRpc):
    """An OVSDB of ``tables``, rows in its own notation, whose answers ``change`` disturbs as values and as bytes."""

    def __init__(self, tables: dict[str, list[dict[str, Any]]], clock: Callable[[], float]) -> None:
        super().__init__("/run/openvswitch/db.sock", clock)
        self.tables = tables
        self.change: Callable[[Any], Any] = lambda answer: answer
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self._queue = b""

    def _connect(self, deadline: float) -> Any:
        self._socket = self  # type: ignore[assignment]
        return self

    def settimeout(self, seconds: float) -> None:
        """As a socket has it."""

    def close(self) -> None:
        """Both of the client and of its socket: nothing is open, and nothing of what was said is left."""
        self._socket, self._buffer, self._queue = None, b"", b""

    def sendall(self, data: bytes) -> None:
        message = json.loads(data)
        if "method" not in message:
            return
        answer: Any = {"id": message["id"], "result": self._answer(message), "error": None}
        self._queue += self.spoil(json.dumps(self.change(answer)).encode())

    def recv(self, size: int) -> bytes:
        data, self._queue = self._queue[:size], self._queue[size:]
        return data

    def _answer(self, message: dict[str, Any]) -> Any:
        if message["method"] != "transact":
            return {"Open_vSwitch": {"row": {"new": {"cur_cfg": 9}}}} if message["method"] == "monitor" else {}
        return [self._result(operation) for operation in message["params"][1:]]

    def _result(self, operation: dict[str, Any]) -> Any:
        match operation["op"]:
            case "select":
                rows = self.tables.get(operation["table"], [])
                names = [value for column, how, value in operation["where"] if column == "name" and how == "=="]
                rows = [row for row in rows if not names or row.get("name") in names]
                return {"rows": [{column: row[column] for column in operation["columns"] if column in row} for row in rows]}
            case "insert":
                return {"uuid": ["uuid", "00000000-0000-4000-8000-00000000000f"]}
            case "wait" | "comment" | "assert":
                return {}
            case _:
                return {"count": 1}
