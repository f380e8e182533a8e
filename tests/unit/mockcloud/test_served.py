"""A cloud that is served: tasks by HTTP, for programs and for the command line; what is wrong with a request is said."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mockcloud.cli.serve import COMMANDS
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances import running
from mockcloud.instances.table import TASKS
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting as wrong
from mockcloud.scenarios.faults import FAULTS
from mockcloud.served import client
from mockcloud.served.server import LARGEST, Server
from mockcloud.sysinfo import node_uuid
from tests.support.killing_steps import opened
from tests.support.mockcloud import Mockcloud

FIRST = node_uuid(1)


class Served:
    """A cloud whose server answers in a thread of its own, one request after the other."""

    def __init__(self, cloud: MockCloud) -> None:
        self.said: list[str] = []
        self.cloud, self.server = cloud, Server(cloud, self.said.append)
        self._asked = 0

    def __call__(self, method: str, path: str, body: object = None, raw: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Ask as a program does; give status and document."""
        serving = threading.Thread(target=self.server.handle_request)
        serving.start()
        way = http.client.HTTPConnection("localhost", timeout=60)
        way.sock = client.connection(self.cloud.root)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        way.request(method, path, data, headers)
        answer = way.getresponse()
        said = json.loads(answer.read())
        way.close()
        serving.join()
        assert answer.headers["Content-Type"] == ("application/json" if answer.status == 200 else "application/problem+json")
        return answer.status, said


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(2)
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        cloud.start()
        made = Served(cloud)
        yield made
        made.server.close()
    assert not (tmp_path / "cloud" / client.SOCKET).exists()


def test_a_cloud_that_is_served_keeps_the_latest_lines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its agents start, which is when each of many nodes says most."""
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(2)
    monkeypatch.setattr(running, "LATEST", 1)
    note, kept = MockCloud._note, list[int]()

    def noted(cloud: MockCloud, name: str, text: str) -> None:
        note(cloud, name, text)
        kept.append(len(cloud.log))

    monkeypatch.setattr(MockCloud, "_note", noted)
    monkeypatch.setattr(Server, "serve", lambda server: server._cloud.scheduler.passes(30.0))
    result = CliRunner().invoke(COMMANDS["serve"], ["--cloud", str(tmp_path / "cloud")])
    assert result.exit_code == 0, result.output
    assert max(kept) == 1 < len(kept)


def create(name: str = "web1", **params: object) -> dict[str, Any]:
    return {"task": "create", "params": {"name": name, "nics": [{"network": "blue"}], "start": True, **params}}


def test_a_program_has_an_instance_made_moved_and_deleted(served: Served) -> None:
    status, said = served("GET", "/")
    assert (status, said["system_type"], set(said["tasks"])) == (200, "Virtual", set(TASKS))
    assert [each["hostname"] for each in served("GET", "/nodes")[1]["nodes"]] == ["mock1", "mock2"]
    status, said = served("POST", "/nodes/mock1/tasks", create())
    assert (status, said["instances"][0]["node"], said["instances"][0]["nics"][0]["shown"]) == (200, "mock1", "running")
    assert served("POST", "/tasks", {"task": "migrate", "params": {"name": "web1", "node": "mock2"}})[1]["instances"][0]["node"] == "mock2"
    assert served("GET", "/instances")[1]["instances"][0]["node"] == "mock2" and wrong(served.cloud) == []
    logs = [path.name.partition("-")[2] for path in Path(served.cloud.root, "servers", FIRST, "logs").iterdir()]
    assert sorted(logs) == ["create-web1.log", "migrate-web1.log"]
    assert served("POST", "/tasks", {"task": "delete", "params": {"name": "web1"}}) == (200, {"instances": [], "refused": []})
    assert served("GET", "/instances")[1]["instances"] == [] and wrong(served.cloud) == []


def test_a_node_is_named_by_header_too(served: Served) -> None:
    assert served("POST", "/tasks", create(), **{"X-Node": FIRST})[1]["instances"][0]["node"] == "mock1"
    stop = {"task": "stop", "params": {"name": "web1"}}
    status, said = served("POST", "/tasks", stop, **{"X-Node": "mock2"})
    assert (status, said["detail"]) == (400, "node='mock2': expected the node that web1 is on")
    assert served("POST", "/nodes/mock1/tasks", stop)[1]["instances"][0]["state"] == "stopped"


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("/tasks", {"task": "clone", "params": {}}, 400, "task='clone': expected one of create, start"),
        ("/tasks", {"task": "snapshot", "params": {"name": "web1"}}, 409, "a mock cloud has no snapshot"),
        ("/tasks", {"task": 7}, 400, "task='7': expected one of"),
        ("/tasks", {"task": "start"}, 400, "name='': expected a value: it is missing"),
        ("/tasks", {"task": "start", "params": {"name": 7}}, 400, "name='7': expected text"),
        (
            "/tasks",
            {"task": "start", "params": {"name": "web1", "now": True}},
            400,
            "now='True': expected no such parameter",
        ),
        ("/tasks", {"task": "start", "params": {"name": "web9"}}, 400, "INSTANCE='web9': expected the name of an instance"),
        ("/tasks", {"task": "stop", "params": {"name": "web1", "ifdown": 1}}, 400, "ifdown='1': expected true or false"),
        ("/tasks", {"task": "unplug", "params": {"name": "web1", "index": True}}, 400, "index='True': expected a number"),
        ("/tasks", {"task": "unplug", "params": {"name": "web1", "index": -1}}, 400, "index='-1': expected a number"),
        (
            "/tasks",
            {"task": "change", "params": {"name": "web1", "index": 0, "options": {"rate_in": 8}}},
            400,
            "an object of texts",
        ),
        ("/tasks", {"task": "create", "params": {"name": "web2", "node": "mock1", "nics": ["blue"]}}, 400, "expected a list of them"),
        ("/tasks", {"task": "create", "params": {"name": "web2", "node": "mock1", "tags": ["a\tb"]}}, 400, "expected"),
        ("/tasks", {"task": "create", "params": {"name": "../x", "node": "mock1"}}, 400, "expected"),
        ("/tasks", {"task": "start", "params": {"name": "../../x"}}, 400, "INSTANCE='../../x': expected an instance name"),
        ("/tasks", {"task": "start", "params": {"name": "x" * 250}}, 400, "expected the name of an instance"),
        ("/tasks", create(node="mock1"), 409, "there is an instance web1 on mock1"),
        ("/tasks", [], 400, "body='[]': expected an object"),
        ("/tasks", {"task": "start", "params": []}, 400, "expected an object"),
        ("/tasks", {"task": "start", "params": {}, "more": 1}, 400, "expected an object"),
        ("/nodes/mock9/tasks", {"task": "start", "params": {"name": "web1"}}, 400, "NODE='mock9': expected"),
        ("/nodes/mock1/task", {"task": "start", "params": {"name": "web1"}}, 400, "path='/nodes/mock1/task': expected"),
        ("/", {"task": "start"}, 400, "path='/': expected"),
        ("/nodes/mock1/tasks", {"task": "start", "params": {"name": "\ud800"}}, 400, "INSTANCE='\\ud800': expected an instance name"),
        ("/tasks", create(name="web2", node="mock1", nics=[{"network": "\ud800"}]), 400, "expected a list of them"),
        ("/nodes", {"task": "network", "params": {"name": "blue", "fields": {"nonsense": "x"}}}, 400, "no such field of a network"),
        ("/nodes", {"task": "network", "params": {"name": "red", "fields": {"uuid": "x"}}}, 400, "no such field of a network"),
        ("/nodes", {"task": "network", "params": {"name": "red", "fields": {"name": "green"}}}, 400, "no such field of a network"),
        ("/faults", {"task": "storm"}, 400, "task='storm': expected one of partition"),
        ("/faults", {"task": "node", "params": {"way": "both"}}, 400, "way='both': expected no such parameter"),
        ("/faults", {"task": "node", "params": {"nodes": ["mars"]}}, 400, "NODE='mars': expected"),
        ("/faults", {"task": "node", "params": {"nodes": "mock1"}}, 400, "nodes='mock1': expected a list of texts"),
        ("/faults", {"task": "backup", "params": {"for": 3}}, 400, "for='3': expected no such parameter"),
        ("/faults", {"task": "copies", "params": {"share": 2}}, 400, "share='2': expected a number from 0 to 1"),
        ("/faults", {"task": "node", "params": {"for": -1}}, 400, "for='-1': expected a number from 0"),
        ("/faults", {"task": "node", "params": {"seed": "x"}}, 400, "seed='x': expected a whole number"),
    ],
)
def test_a_wrong_request_is_refused_and_changes_nothing(served: Served, path: str, body: object, status: int, detail: str) -> None:
    served("POST", "/tasks", create(node="mock1", start=False))
    before = served("GET", "/instances")
    found, said = served("POST", path, body)
    assert (found, said["status"]) == (status, status) and detail in said["detail"]
    assert served("GET", "/instances") == before


def test_a_fault_strikes_a_cloud_that_is_served_and_that_goes_on(served: Served) -> None:
    served("POST", "/tasks", create(node="mock1"))
    said = served("GET", "/")[1]["faults"]
    assert said["partition"] == ["way"] and list(said) == list(FAULTS)
    status, found = served("POST", "/faults", {"task": "node", "params": {"nodes": ["mock1"], "for": 5, "settle": 60}})
    assert status == 200 and found["violations"] == []
    assert [each["text"] for each in found["outcomes"]] == ["node of mock1", "node of mock1 is over"]
    (there,) = served("GET", "/instances")[1]["instances"]
    assert there["state"] == "crashed"
    assert served("POST", "/tasks", {"task": "start", "params": {"name": "web1"}})[0] == 200 and wrong(served.cloud) == []
    before = len(served.cloud.log)
    assert served("POST", "/faults", {"task": "partition", "params": {"way": "answers", "for": 5, "settle": 30}})[1]["violations"] == []
    served.cloud.scheduler.passes(30.0)
    assert len(served.cloud.log) >= before and served.cloud.own.heard is None, "nobody looks any more"


def test_faults_leave_nothing_with_the_registry(served: Served) -> None:
    """Leave no part and no listener behind after a fault: a cloud is served for weeks, and struck as often as one likes."""
    served("POST", "/tasks", create(node="mock1"))
    gc.collect()
    parts, before = len(served.cloud.own.registry._parts), _listeners()
    for _ in range(3):
        assert served("POST", "/faults", {"task": "partition", "params": {"for": 1, "settle": 1}})[1]["violations"] == []
    gc.collect()
    assert (len(served.cloud.own.registry._parts), _listeners()) == (parts, before)


def _listeners() -> int:
    return sum(isinstance(each, Commits) for each in gc.get_objects())


def test_the_command_has_the_fault_strike_where_the_cloud_is_served(served: Served) -> None:
    run = Mockcloud(Path(served.cloud.root))
    serving = threading.Thread(target=served.server.handle_request)
    serving.start()
    said = run.json("fault", "agent", "mock1", "--for", "5", "--settle", "30")
    serving.join()
    assert said["violations"] == [] and [each["text"] for each in said["outcomes"]][-1] == "agent of mock1 is over"


@pytest.mark.parametrize("raw", [b"", b"{", b"nonsense", b"[" * 100000, b"\xff"])
def test_what_is_no_json_is_refused(served: Served, raw: bytes) -> None:
    status, said = served("POST", "/tasks", raw=raw)
    assert (status, said["exit"]) == (400, 64) and "body=" in said["detail"]


def test_other_requests_are_refused(served: Served) -> None:
    assert served("GET", "/nothing")[0] == 400
    status, said = served("POST", "/tasks", **{"Content-Length": str(LARGEST + 1)})
    assert status == 400 and "Content-Length" in said["detail"]


def test_a_hooks_refusal_and_a_silent_registry_have_their_statuses(served: Served) -> None:
    status, said = served("POST", "/nodes/mock1/tasks", create(nics=[{"network": "blue", "link": "br7"}]))
    assert (status, said["exit"]) == (409, 69) and "bridge br7 does not exist" in said["detail"]
    served.cloud.registry.wire.cut[FIRST] = "both"
    status, said = served("POST", "/nodes/mock1/tasks", create("web2"))
    assert (status, said["exit"]) == (503, 75) and "the registry does not show it" in said["detail"]


def test_who_goes_away_ends_nothing(served: Served) -> None:
    for said in (b"", b"POST /tasks HTTP/1.1\r\nContent-Length: 5\r\n\r\n", b"\0\0\0\0\r\n\r\n"):
        connected = client.connection(served.cloud.root)
        assert connected is not None
        connected.sendall(said)
        connected.close()
        served.server.handle_request()
    assert served("GET", "/")[0] == 200


def test_the_command_line_asks_who_serves(served: Served) -> None:
    """It says and ends with the same as without a server."""
    run = Mockcloud(Path(served.cloud.root))
    asked = iter(range(100))

    def serving(times: int) -> threading.Thread:
        def serve() -> None:
            for _ in range(times):
                next(asked)
                served.server.handle_request()

        thread = threading.Thread(target=serve)
        thread.start()
        return thread

    thread = serving(2)  # the first connection is to see whether somebody serves
    made = run.json("instance", "create", "web1", "--node", "mock1", "--nic", "network=blue", "--start")
    thread.join()
    assert made["instances"][0]["nics"][0]["shown"] == "running" and Instances(served.cloud).find("web1").vm.state == "running"
    thread = serving(1)
    assert run.json("instance", "list")["instances"] == made["instances"]
    thread.join()
    thread = serving(2)
    assert "mockcloud: INSTANCE='web9': expected the name of an instance" in run("instance", "start", "web9", status=64)
    thread.join()
    thread = serving(1)
    assert [each["running"] for each in run.json("list")["nodes"]] == [True, True]
    thread.join()


@pytest.mark.parametrize(
    ("words", "times"),
    [
        (("create", "2"), 2),
        (("count", "3"), 2),
        (("count",), 1),
        (("delete", "mock2"), 1),
        (("status", "mock1"), 1),
        (("nics", "external", "--subnet", "198.18.0.0/15"), 1),
        (("network", "green", "--subnet", "203.0.113.0/24"), 1),
        (("nictags", "--add", "fast"), 1),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_what_is_done_to_nodes_is_done_by_who_serves(served: Served, words: tuple[str, ...], times: int) -> None:
    """Check that what it says is as the schemas have it, and new nodes run at once."""
    run = Mockcloud(Path(served.cloud.root))

    def serve() -> None:
        for _ in range(times):
            served.server.handle_request()

    thread = threading.Thread(target=serve)
    thread.start()
    said = run.json(*words)
    thread.join()
    served.cloud.scheduler.passes(20.0)
    counted = served.cloud.counted()
    assert (
        counted.nodes
        == counted.running
        == counted.alive
        == {"create": 4, "count 3": 3, "delete": 1}.get(words[0] if words[0] != "count" else " ".join(words), 2)
    )
    if words[0] == "count":
        assert said["running"] == counted.running
    if words[0] == "nics":
        assert [each["external"][0]["name"] for each in said["nodes"]] == ["external"] * 2
    if words[0] == "status":
        assert [each["hostname"] for each in said["nodes"]] == ["mock1"] and said["nodes"][0]["agent"]["registry"] == "in step"


@pytest.mark.parametrize("registry", ["etcd:3", "https://nowhere:1", "/run/other"])
@pytest.mark.parametrize("words", [("create", "1"), ("count", "3")])
def test_another_registry_than_that_of_the_cloud_that_is_served_is_refused(served: Served, words: tuple[str, ...], registry: str) -> None:
    thread = threading.Thread(target=lambda: [served.server.handle_request() for _ in range(2)])
    thread.start()
    said = Mockcloud(Path(served.cloud.root))(*words, "--registry", registry, status=69)
    thread.join()
    assert f"the registry of the mock cloud in '{served.cloud.root}' is its own" in said
    assert len(served.cloud.list()) == 2


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"task": "clone"}, "task='clone': expected one of create, count"),
        ({"task": 7}, "task='7': expected one of"),
        ({"task": "create", "params": {"number": -1}}, "number='-1': expected a number"),
        ({"task": "create", "params": {"number": True}}, "number='True': expected a number"),
        ({"task": "create", "params": {"more": 1}}, "expected no such parameter"),
        ({"task": "delete", "params": {}}, "nodes='': expected a value"),
        ({"task": "delete", "params": {"nodes": ["mock9"]}}, "NODE='mock9': expected"),
        ({"task": "delete", "params": {"nodes": "mock1"}}, "expected a list of texts"),
        ({"task": "status", "params": {"seconds": 0}}, "expected seconds"),
        ({"task": "nics", "params": {"network": "br0"}}, "NETWORK='br0': expected"),
        ({"task": "network", "params": {"name": "x", "fields": {"subnet": []}}}, "expected an object of texts and numbers"),
        ([], "body='[]': expected an object"),
    ],
)
def test_a_wrong_request_for_nodes_is_refused_and_changes_nothing(served: Served, body: object, detail: str) -> None:
    before = served("GET", "/nodes")
    status, said = served("POST", "/nodes", body)
    assert (status, said["exit"]) == (400, 64) and detail in said["detail"]
    assert served("GET", "/nodes") == before


def test_time_passes_while_nobody_asks(served: Served) -> None:
    before, times = served.cloud.scheduler.now, iter([0.0, 1.5, 4.0])
    served.server.timeout = 0.0

    class Over(Exception):
        pass

    def now() -> float:
        try:
            return next(times)
        except StopIteration:
            raise Over from None

    with pytest.raises(Over):
        served.server.serve(now)
    assert served.cloud.scheduler.now == before + 4.0
    assert [each["alive"] for each in served.cloud.list()] == [True, True]


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    with opened(folder) as cloud, pytest.raises(Exception, match="cannot listen on"):
        Server(cloud)


def test_a_socket_that_was_left_is_taken_over(served: Served, tmp_path: Path) -> None:
    with opened(tmp_path / "other") as cloud:
        left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        left.bind(f"{cloud.root}/{client.SOCKET}")
        left.close()
        assert client.connection(cloud.root) is None
        Server(cloud).close()


def test_an_error_that_nobody_foresaw_is_answered_and_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: Any, **_named: Any) -> None:
        raise KeyError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(Instances, "create", broken)
        status, said = served("POST", "/nodes/mock1/tasks", create())
    assert (status, said["exit"], said["detail"]) == (500, 69, "the mock cloud has a fault: KeyError: 'planted'")
    assert len(served.said) == 1 and served.said[0].startswith(
        "error: a task of '/nodes/mock1/tasks' has failed: KeyError: 'planted' (test_served.py:"
    )
    assert served("POST", "/nodes/mock1/tasks", create())[0] == 200 and len(served.said) == 1


def test_a_body_that_does_not_come_is_no_fault(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mockcloud.served.server.Handler.timeout", 0.05)
    status, said = served("POST", "/tasks", raw=b"{", **{"Content-Length": "2"})
    assert (status, said["exit"], served.said) == (400, 64, []) and "all of it" in said["detail"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"PUT /nodes HTTP/1.1\r\n\r\n", 501),
        (b"DELETE /nodes HTTP/1.1\r\n\r\n", 501),
        (b"HEAD /nodes HTTP/1.1\r\n\r\n", 501),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 70000 + b"\r\n\r\n", 431),
        (b"nonsense\0\xff\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
    ],
    ids=["PUT", "DELETE", "HEAD", "path", "headers", "header", "nonsense", "version"],
)
def test_what_is_no_request_is_refused_as_a_problem_too(served: Served, request_: bytes, status: int) -> None:
    connected = client.connection(served.cloud.root)
    assert connected is not None
    with connected:
        connected.sendall(request_)
        served.server.handle_request()
        answer = http.client.HTTPResponse(connected, method=request_.split()[0].decode("ascii", "replace")[:4])
        answer.begin()
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
        data = answer.read()
    if not request_.startswith(b"HEAD"):
        said = json.loads(data)
        assert (said["status"], said["exit"]) == (status, 64) and said["detail"]


def test_a_client_that_is_slow_holds_nobody_for_long(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the time of a client's whole request: the limit may not begin anew with each part of the request."""
    monkeypatch.setattr("mockcloud.served.server.Handler.timeout", 0.3)
    connected, over = client.connection(served.cloud.root), threading.Event()
    assert connected is not None

    def drip() -> None:
        with suppress(OSError):
            connected.sendall(b"GET / HTTP/1.0\r\n")
            while not over.wait(0.1):
                connected.sendall(b"X: y\r\n")

    thread = threading.Thread(target=drip)
    thread.start()
    begun = time.monotonic()
    serving = threading.Thread(target=served.server.handle_request)
    serving.start()
    serving.join(5.0)
    held = serving.is_alive()
    over.set()
    thread.join()
    connected.close()
    serving.join()
    assert not held and time.monotonic() - begun < 5.0
    assert served("GET", "/nodes")[0] == 200
