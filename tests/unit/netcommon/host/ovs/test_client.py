"""The client of OVSDB against servers that are slow, hostile or broken: a known answer, TryAgain, or "not known"; nothing else."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netcommon.host.api.facts import OVS_MARK, OvsPort
from netcommon.host.ovs.client import Ovsdb
from netcommon.host.ovs.jsonrpc import Deadline
from netcommon.host.ovs.rows import a_map, a_port, a_set, numbers, uuid, word
from netcommon.host.rtnetlink.attributes import MalformedError
from runtime.errors import TryAgain

#: Of a call, in seconds: short, for calls that use it up; and several times what a loaded machine takes to run a thread of the server.
TIMEOUT = 1.0
PORT = OvsPort("tap0", "ovs0", tag=5, external_ids=((OVS_MARK, "u"),))
UUID = ["uuid", "00000000-0000-4000-8000-000000000001"]
ROW = {
    "_uuid": UUID,
    "name": "tap0",
    "tag": 5,
    "trunks": ["set", []],
    "vlan_mode": ["set", []],
    "external_ids": ["map", [[OVS_MARK, "u"]]],
    "interfaces": UUID,
    "fake_bridge": False,
    "qos": ["set", []],
}
INTERFACE = {
    "_uuid": UUID,
    "name": "tap0",
    "external_ids": ["map", []],
    "error": ["set", []],
    "ofport": 1,
    "ingress_policing_rate": 0,
    "ingress_policing_burst": 0,
}
Reply = Callable[[dict[str, Any]], bytes | None]


class Server:
    """Answers each request with what ``reply`` says: bytes, or None to close the connection."""

    def __init__(self, path: str, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        buffer = ""
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                except OSError:
                    return
                if not data:
                    return
                buffer += data.decode()
                while buffer:
                    message, end = json.JSONDecoder().raw_decode(buffer)
                    buffer = buffer[end:]
                    self.requests.append(message)
                    said = self.reply(message)
                    if said is None:
                        return
                    try:
                        connection.sendall(said)
                    except OSError:
                        return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(5)


Start = Callable[..., tuple[Server, Ovsdb]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A server, and a client of it."""
    made: list[tuple[Server, Ovsdb]] = []

    def begin(reply: Reply, timeout: float = TIMEOUT) -> tuple[Server, Ovsdb]:
        made.append((Server(str(tmp_path / "db.sock"), reply), Ovsdb(str(tmp_path / "db.sock"), timeout, time.monotonic)))
        return made[0]

    yield begin
    for server, client in made:
        client.close()
        server.close()


def result(request: dict[str, Any], value: object) -> bytes:
    return json.dumps({"id": request["id"], "result": value, "error": None}).encode()


def rows(*each: list[Any]) -> list[Any]:
    return [{"rows": one} for one in each]


class Database:
    """A well-behaved OVSDB with one bridge and, after a put, one port; a test breaks what it wants to see broken."""

    def __init__(self) -> None:
        self.there = False
        self.taken = True
        self.transactions = 0

    def __call__(self, request: dict[str, Any]) -> bytes:
        if request["method"] == "monitor":
            return result(request, {"Open_vSwitch": {"x": {"new": {"cur_cfg": 8 if self.taken else 6}}}})
        if request["method"] == "monitor_cancel":
            return result(request, {})
        operations = request["params"][1:]
        return result(request, [self.one(operation) for operation in operations])

    def one(self, operation: dict[str, Any]) -> dict[str, Any]:
        if operation["op"] == "insert":
            self.there = True
            self.transactions += operation["table"] == "Port"
        if operation["op"] != "select":
            return {"count": 1}
        table = operation["table"]
        if table == "Open_vSwitch":
            return {"rows": [{"next_cfg": 7, "cur_cfg": 8 if self.taken else 6}]}
        if table == "QoS":
            return {"rows": []}
        if table == "Bridge":
            return {"rows": [{"name": "ovs0", "ports": UUID}]}
        if ["fake_bridge", "==", True] in operation["where"]:
            return {"rows": []}
        row = ROW if table == "Port" else {**INTERFACE, "ofport": 1 if self.taken else ["set", []]}
        return {"rows": [row] if self.there else []}


def test_well_behaved(start: Start) -> None:
    _, client = start(Database())
    assert client.bridge("ovs0")
    assert client.port("tap0") is None
    assert client.put(PORT).ok
    assert client.port("tap0") == PORT._replace(ofport=1, row=UUID[1])
    assert client.ports() == [PORT._replace(ofport=1, row=UUID[1])]
    assert client.delete("tap0", "u").ok


NONSENSE: dict[str, Reply] = {
    "closes": lambda request: None,
    "silent": lambda request: b"",
    "no JSON": lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no UTF-8": lambda request: b'{"id": "\xff\xfe"}',
    "cut off": lambda request: result(request, rows([]))[:-3],
    "a list": lambda request: b"[]",
    "a number": lambda request: b"7 ",
    "deep": lambda request: b'{"id":' + b"[" * 200000 + b"]" * 200000 + b"}",
    "endless number": lambda request: b'{"id": 1' + b"0" * 10000 + b"}",
    "another id": lambda request: json.dumps({"id": 4711, "result": rows([]), "error": None}).encode(),
    "an error": lambda request: json.dumps({"id": request["id"], "result": None, "error": "unknown database"}).encode(),
    "no result": lambda request: json.dumps({"id": request["id"], "error": None}).encode(),
    "null": lambda request: result(request, None),
    "no results": lambda request: result(request, []),
    "a string": lambda request: result(request, "rows"),
    "results are numbers": lambda request: result(request, list(range(1, 13))),
    "rows are no list": lambda request: result(request, [{"rows": "x"}] * 12),
    "rows are numbers": lambda request: result(request, [{"rows": [1]}] * 12),
    "rows are empty": lambda request: result(request, [{"rows": [{}]}] * 12),
    "columns are wrong": lambda request: result(request, [{"rows": [dict.fromkeys((*ROW, *INTERFACE, "ports"), 7)]}] * 12),
    "columns are cut": lambda request: result(request, [{"rows": [{key: ["set"] for key in (*ROW, *INTERFACE, "ports")}]}] * 12),
    "references are wrong": lambda request: result(request, [{"rows": [{**ROW, **INTERFACE, "_uuid": ["uuid", 7], "ports": 7}]}] * 12),
    "operations fail": lambda request: result(request, [{"error": "permission error", "details": "x"}] * 12),
}


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense(start: Start, reply: Reply) -> None:
    """Views raise TryAgain and nothing else, in time; changes are refused, or not known."""
    _, client = start(reply)
    begin = time.monotonic()
    for read in (lambda: client.port("tap0"), client.ports):
        with pytest.raises(TryAgain):
            read()
    for answer in (client.put(PORT), client.delete("tap0", "u")):
        assert answer.errno in (errno.ETIMEDOUT, errno.EIO, errno.ENOENT, errno.EAGAIN)
        assert answer.text
    assert time.monotonic() - begin < 5 * TIMEOUT + 1


def test_nonsense_is_no_bridge(start: Start) -> None:
    """A bridge's row is not looked into: that there is one says it all."""
    _, client = start(NONSENSE["no JSON"])
    with pytest.raises(TryAgain):
        client.bridge("ovs0")


def test_a_flood(start: Start) -> None:
    """An answer without an end is given up for its time, whatever comes."""
    _, client = start(lambda request: b'{"id": "' + b"x" * (1 << 20))
    with pytest.raises(TryAgain):
        client.port("tap0")


def test_answers_in_pieces_and_in_one(start: Start) -> None:
    """Notifications, echo requests and replies may come together, or byte by byte."""
    database = Database()

    def reply(request: dict[str, Any]) -> bytes:
        echo = b'{"method": "echo", "params": ["ping"], "id": "echo"}'
        notice = b'\n{"method": "update", "params": ["other", {}], "id": null} '
        return echo + notice + (b"" if request.get("method") is None else database(request))

    server, client = start(reply)
    assert client.put(PORT).ok
    echoes = [request for request in server.requests if request.get("id") == "echo"]
    assert echoes and all(echo == {"id": "echo", "result": ["ping"], "error": None} for echo in echoes)


def test_text_is_cut_anywhere(start: Start) -> None:
    """Also within a character."""
    name = "ovs-" + "ü" * 9
    connection: list[bytes] = []

    def reply(request: dict[str, Any]) -> bytes:
        text = json.dumps({"id": request["id"], "result": rows([{"name": name}]), "error": None}, ensure_ascii=False).encode()
        connection.append(text)
        return text

    _, client = start(reply)
    assert client.bridge(name)
    for cut in range(1, len(connection[0])):
        client.rpc.close()
        client.rpc._buffer = connection[0][:cut]
        assert client.rpc._message() is None
        client.rpc._buffer += connection[0][cut:]
        assert client.rpc._message() is not None


def test_the_answer_to_a_put_is_lost(start: Start) -> None:
    """It was committed: the database, read back on a new connection, says so; it is not put twice."""
    database = Database()
    lost: list[int] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        answer = database(request)
        if database.there and not lost:
            lost.append(1)
            return None
        return answer

    _, client = start(reply)
    assert client.put(PORT).ok
    assert (lost, database.transactions) == ([1], 1)


def test_the_question_of_a_put_is_lost(start: Start) -> None:
    """It was not committed: it is put again."""
    database = Database()
    lost: list[int] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        if not lost:
            lost.append(1)
            return None
        return database(request)

    _, client = start(reply)
    assert client.put(PORT).ok
    assert (lost, database.transactions) == ([1], 1)


def test_the_answer_to_a_delete_is_lost(start: Start) -> None:
    database = Database()
    database.there = True
    lost: list[int] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        if any(operation["op"] == "mutate" for operation in request["params"][1:]) and not lost:
            lost.append(1)
            database.there = False
            return None
        return database(request)

    _, client = start(reply)
    assert client.delete("tap0", "u").ok
    assert lost


def test_the_switch_is_waited_for_on_another_connection(start: Start) -> None:
    """The database closes the connection on which ovs-vswitchd is waited for after a delete, which has the device open still."""
    database = Database()
    database.there, database.taken = True, False
    told: list[str] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        if request["method"] != "monitor":
            return database(request)
        told.append("closed" if not told else "asked")
        if told == ["closed"]:
            return None
        before = database(request)
        database.taken = True
        told.append("let go")
        new = {"Open_vSwitch": {"x": {"new": {"cur_cfg": 8}}}}
        return before + json.dumps({"id": None, "method": "update", "params": ["netcommon", new]}).encode()

    _, client = start(reply)
    assert client.delete("tap0", "u", wait=True).ok
    assert told == ["closed", "asked", "let go"] and not client.deadline.spent


def test_the_switch_is_waited_for_though_the_answer_to_a_delete_is_lost(start: Start) -> None:
    """The row has gone by then, and the switch has the device open still."""
    database = Database()
    database.there = True
    asked: list[str] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        asked.append(request["method"])
        deletes = request["method"] == "transact" and any(each["op"] == "mutate" for each in request["params"][1:])
        if deletes and database.there:
            database.there = False
            return None
        return database(request)

    _, client = start(reply)
    assert client.delete("tap0", "u", wait=True).ok
    assert "monitor" in asked
    asked.clear()
    database.there = True
    assert client.delete("tap0", "u").ok
    assert "monitor" not in asked


def test_a_kept_connection_has_died(start: Start) -> None:
    """As after a restart of OVSDB: one more attempt, for a view and for a change."""
    database = Database()
    dead: list[int] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        return None if dead and not dead.pop() else database(request)

    _, client = start(reply)
    uses: list[Callable[[], bool]] = [lambda: client.bridge("ovs0"), lambda: client.put(PORT).ok, lambda: client.delete("tap0", "u").ok]
    for use in uses:
        assert client.bridge("ovs0")
        dead[:] = [0]
        assert use()


def test_switch_that_takes_nothing(start: Start) -> None:
    database = Database()
    database.taken = False
    _, client = start(database, 3 * TIMEOUT)  # the database answers in time, on a busy machine too
    begin = time.monotonic()
    answer = client.put(PORT)
    assert (answer.errno, database.there) == (errno.ETIMEDOUT, True)
    assert "is in the database, but ovs-vswitchd has not taken it" in answer.text
    assert time.monotonic() - begin < 2 * 3 * TIMEOUT


def test_others_change_it_all_the_time(start: Start) -> None:
    """The row in the way is another one at each attempt."""
    database = Database()

    def reply(request: dict[str, Any]) -> bytes:
        if any(operation["op"] == "wait" for operation in request["params"][1:]):
            return result(request, [{}, {"error": "timed out", "details": "x"}] + [None] * 12)
        return database(request)

    database.there = True
    server, client = start(reply)
    assert client.put(PORT).errno == errno.EAGAIN
    assert 4 < len(server.requests) < 20


def test_somebody_else_has_put_it_meanwhile(start: Start) -> None:
    database = Database()

    def reply(request: dict[str, Any]) -> bytes:
        return database(request).replace(b'"tag": 5', b'"tag": 6')

    _, client = start(reply)
    answer = client.put(PORT)
    assert (answer.errno, "somebody else" in answer.text) == (errno.EAGAIN, True)


def test_socket_without_a_server(tmp_path: Path) -> None:
    """Its file alone, as a crash leaves it: nothing is known of the ports."""
    path = str(tmp_path / "db.sock")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()
    assert os.path.exists(path)
    client = Ovsdb(path, TIMEOUT, time.monotonic)
    with pytest.raises(TryAgain):
        client.bridge("ovs0")
    assert client.put(PORT).errno == errno.ETIMEDOUT
    os.unlink(path)
    assert (client.bridge("ovs0"), client.port("tap0"), client.ports()) == (False, None, [])
    assert client.put(PORT).errno == errno.ENOENT
    assert client.delete("tap0", "u").errno == errno.ENOENT


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (a_set, ["set", 7]),
        (a_map, ["map", [["a"]]]),
        (a_map, ["map", [["a", 7]]]),
        (a_map, ["set", []]),
        (a_map, {}),
        (numbers, ["set", [1, "2"]]),
        (numbers, True),
        (uuid, "x"),
        (uuid, ["uuid", 7]),
        (word, ["set", ["a", "b"]]),
        (word, 7),
    ],
)
def test_notation(read: Callable[[Any], Any], value: object) -> None:
    with pytest.raises(MalformedError):
        read(value)


def test_a_bond_shows_no_interface() -> None:
    """Several interfaces: none of them is the port's one."""
    bond = a_port({**ROW, "interfaces": ["set", [UUID, ["uuid", "2"]]]}, {UUID[1]: INTERFACE}, "ovs0", {})
    assert (bond.ofport, bond.interface_ids) == (0, ())


# -- flows that somebody restores


def configured(value: str) -> dict[str, Any]:
    return {"other_config": ["map", [["flow-restore-wait", value]] if value else []]}


def told(value: str) -> dict[str, Any]:
    return {"Open_vSwitch": {"x": {"new": configured(value)}}}


def restoring(*values: str) -> Reply:
    """Give what is selected, what the monitor says first, and what it says then."""

    def reply(request: dict[str, Any]) -> bytes:
        if request["method"] != "monitor":
            return result(request, rows([configured(values[0])]) if request["method"] == "transact" else {})
        updates = [{"id": None, "method": "update", "params": ["restore", told(value)]} for value in values[2:]]
        return result(request, told(values[1])) + "".join(map(json.dumps, updates)).encode()

    return reply


@pytest.mark.parametrize(
    ("values", "expected", "asked"),
    [
        (("",), True, ["transact"]),
        (("false",), True, ["transact"]),
        (("true", ""), True, ["transact", "monitor", "monitor_cancel"]),
        (("true", "true", "true", ""), True, ["transact", "monitor", "monitor_cancel"]),
        (("true", "true", "true"), False, ["transact", "monitor"]),
    ],
)
def test_waiting_until_flows_are_restored(start: Start, values: tuple[str, ...], expected: bool, asked: list[str]) -> None:
    server, client = start(restoring(*values))
    assert client.restored(TIMEOUT) is expected
    wait = time.monotonic() + 5
    while len(server.requests) < len(asked) and time.monotonic() < wait:
        pass
    assert [request["method"] for request in server.requests] == asked


@pytest.mark.parametrize("row", [{}, {"other_config": 5}, {"other_config": ["map", [["flow-restore-wait"]]]}])
def test_nonsense_about_restoring(start: Start, row: dict[str, Any]) -> None:
    _server, client = start(lambda request: result(request, rows([row])))
    with pytest.raises(TryAgain):
        client.restored(TIMEOUT)


def test_where_there_is_no_database_nothing_is_restored(tmp_path: Path) -> None:
    assert Ovsdb(str(tmp_path / "none"), TIMEOUT, time.monotonic).restored(TIMEOUT)


def test_a_port_that_may_be_in_the_way(start: Start) -> None:
    """A server that does not answer is waited for briefly, and then not again."""
    asked: list[float] = []

    def silent(request: dict[str, Any]) -> bytes:
        asked.append(time.monotonic())
        return b""

    _server, client = start(silent)
    begun = time.monotonic()
    assert client.held("tap0") is None and client.held("tap1") is None
    assert len(asked) == 1 and time.monotonic() - begun < 1.5 * TIMEOUT
    assert not client.deadline.spent, "who needs an answer has all the time for it"
    client.begin()
    assert client.held("tap0") is None and len(asked) == 2, "another hook's call asks anew"


def test_what_another_has_waited_for_in_vain_hides_no_port_in_the_way(start: Start) -> None:
    """By that port a guest would come into another's network: the database answers, and is asked."""
    database = Database()
    database.there = True
    _server, client = start(database)
    client.deadline.lost()
    held = client.held("tap0")
    assert held is not None and held.bridge == "ovs0"


def test_a_wait_in_vain_is_one_works_only_and_ends_by_itself() -> None:
    now = 0.0
    deadline = Deadline(10, lambda: now)
    assert (deadline.seconds, deadline.spent) == (10, False)
    deadline.lost()
    assert (deadline.seconds, deadline.spent) == (0.5, True)
    now = 9.0
    deadline.lost()  # after half a second: a database that takes a second for each answer
    assert deadline.spent
    now = 10.5
    assert (deadline.seconds, deadline.spent) == (10, False), "of the first one"
    deadline.lost()
    deadline.forget()
    assert (deadline.seconds, deadline.spent) == (10, False)
