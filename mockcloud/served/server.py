"""Listen for tasks, and let time pass in between: the virtual clock is never behind the real one.

One thread does all: a task is done whole before the next is taken. Where the registry is a process of its own, time is the real one.
"""

from __future__ import annotations

import io
import json
import socket
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from mockcloud import nodes
from mockcloud.instances import table
from mockcloud.instances.running import forget
from mockcloud.instances.tasks import Instances
from mockcloud.replaced.process import Lines
from mockcloud.replaced.scheduler import RealTime
from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.striking import struck
from mockcloud.served.client import SOCKET
from mockcloud.sysinfo import VIRTUAL
from netagent.dispatcher import tell
from netcommon.process.socket_file import OWNER, SocketFile
from runtime import validate
from runtime.errors import UNAVAILABLE, USAGE, HostRefused, NetcommonError, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from mockcloud.cloud import MockCloud

PATIENCE = 5.0  #: seconds that a client may take for its request, and for the answer: nobody else is heard meanwhile
LARGEST = 1 << 20  #: bytes of a request's body
TICK = 0.1  #: seconds until time is let pass when nobody asks
WAITING = 64
STATUSES = {64: 400, 75: 503}  #: exit status -> of HTTP; others are 409
NODE = "X-Node"  #: names the node that a task is for, as the path may


class Timely(io.RawIOBase):
    """Read from a socket what comes within so many seconds in all. Raises TimeoutError for what comes later."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._end = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("it comes too slowly")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One connection, for one request."""

    timeout = PATIENCE
    default_request_version = "HTTP/1.0"  # whatever is refused, its answer has a head
    server: Server

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(Timely(self.connection, self.timeout))

    def do_GET(self) -> None:
        self._answer(lambda: self.server.look(self.path))

    def do_POST(self) -> None:
        self._answer(lambda: self.server.task(self.path, self.headers.get(NODE, ""), self._body()))

    def _body(self) -> Any:
        """Read the body. Raises NicInvalid."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 9 and int(length) <= LARGEST):
            raise NicInvalid("Content-Length", length, f"the length of the body, at most {LARGEST}")
        try:
            return json.loads(self.rfile.read(int(length)))
        except OSError:
            raise NicInvalid("body", "", f"all of it, within {PATIENCE:g} s") from None
        except (ValueError, RecursionError):
            raise NicInvalid("body", "", "JSON") from None

    def _answer(self, work: Callable[[], dict[str, Any]]) -> None:
        try:
            status, kind, said = 200, "application/json", work()
        except NetcommonError as error:
            status, kind = STATUSES.get(error.status, 409), "application/problem+json"
            title = {400: "a value is wrong", 503: "try again"}.get(status, "refused")
            said = {"type": "about:blank", "title": title, "status": status, "detail": str(error), "exit": error.status}
            said["advice"] = error.advice
        except Exception as error:  # that nobody foresaw: the cloud goes on
            self.server.failed(self.path, error)
            status, kind, detail = 500, "application/problem+json", f"the mock cloud has a fault: {type(error).__name__}: {error}"
            said = {"type": "about:blank", "title": "fault", "status": status, "detail": detail, "exit": UNAVAILABLE, "advice": ""}
        self._send(status, kind, said)

    def _send(self, status: int, kind: str, said: dict[str, Any]) -> None:
        self.connection.settimeout(self.timeout)  # what was left of it was for the request
        data = json.dumps(said).encode("ascii") + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request, or one by a method that there is not, as everything else is refused."""
        title = HTTPStatus(code).phrase
        detail = explain or message or title
        said = {"type": "about:blank", "title": title, "status": code, "detail": detail, "exit": USAGE, "advice": "send GET or POST"}
        self._send(code, "application/problem+json", said)

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        """Say nothing: each task leaves a log with its nodes."""


class Server(BaseServer):
    """The listener of a cloud. ``told``: takes a line about a task that has failed, and nobody foresaw it; None: who hears the cloud's log.

    Raises HostRefused where it cannot listen.
    """

    def __init__(self, cloud: MockCloud, told: Callable[[str], None] | None = None) -> None:
        super().__init__(("", 0), Handler)
        self._log = Lines(told or cloud.hear).make()
        self._cloud, cloud.live = cloud, True
        forget(cloud)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        path = f"{cloud.root}/{SOCKET}"
        try:
            self._file = SocketFile(self.socket, path, OWNER)
            self.socket.listen(WAITING)
        except OSError as error:
            self.socket.close()
            raise HostRefused(f"cannot listen on {escaped(path)}: {error.strerror or error}", "name a folder with a shorter path") from None

    def fileno(self) -> int:
        return self.socket.fileno()

    def get_request(self) -> tuple[socket.socket, str]:
        return self.socket.accept()[0], ""

    def close_request(self, request: Any) -> None:
        request.close()

    def shutdown_request(self, request: Any) -> None:
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let go of a client that went away; nothing else ends here."""

    def failed(self, path: str, error: Exception) -> None:
        """Say in the log what nobody foresaw."""
        tell(self._log, f"a task of {escaped(path)} has failed", error)

    def serve(self, now: Callable[[], float] = time.monotonic) -> None:
        """Serve until a signal ends it."""
        scheduler = self._cloud.scheduler
        if isinstance(scheduler, RealTime):
            self.timeout = 0.0
            while True:
                scheduler.attend(self.fileno(), lambda _events: scheduler.interrupt())
                scheduler.passes(TICK)
                scheduler.neglect(self.fileno())  # a task waits by the same clock: whoever comes meanwhile cuts nothing of that short
                self.handle_request()
        self.timeout = TICK
        last = now()
        while True:
            self.handle_request()
            last, before = now(), last
            scheduler.passes(max(last - before, 0.0))

    def close(self) -> None:
        """Listen no more."""
        self._cloud.live = False
        self._file.remove()
        self.socket.close()

    # -- what is asked

    def look(self, path: str) -> dict[str, Any]:
        """Answer a GET. Raises NicInvalid for a path that there is not."""
        if path == "/":
            tasks = {name: dict(each.takes) for name, each in table.TASKS.items()}
            whole = {name: dict(each.takes) for name, each in nodes.TASKS.items()}
            wrong = {name: [*each.takes] for name, each in FAULTS.items()}
            return {"system_type": VIRTUAL, "now": self._cloud.registry.now, "tasks": tasks, "nodes": whole, "faults": wrong}
        if path == "/nodes":
            return nodes.nodes(self._cloud)
        if path == "/instances":
            return table.listed(self._cloud)
        raise NicInvalid("path", path, "/, /nodes or /instances")

    def task(self, path: str, node: str, body: Any) -> dict[str, Any]:
        """Do a task: POST /nodes, /faults, /tasks or /nodes/NODE/tasks with {"task": NAME, "params": {...}}.

        Raises NicInvalid, NetcommonError.
        """
        self._cloud.same()  # while this one has served it there may have come another registry
        words = path.split("/")
        if words == ["", "nodes"]:
            return nodes.perform(self._cloud, *_named(body))
        if words == ["", "faults"]:
            return struck(self._cloud, *_named(body))
        if words[1:2] == ["nodes"] and words[3:] == ["tasks"]:
            node = words[2]
        elif words != ["", "tasks"]:
            raise NicInvalid("path", path, "/nodes, /faults, /tasks or /nodes/NODE/tasks")
        task, params = _named(body)
        if node:
            self._is_on(node, task, params)
        return table.perform(self._cloud, task, params)

    def _is_on(self, node: str, task: Any, params: dict[str, Any]) -> None:
        """Raise NicInvalid where a task is for an instance of another node; one that makes an instance makes it on the node."""
        instances = Instances(self._cloud)
        uuid = instances.node(node)
        if task == "create":
            params.setdefault("node", node)
            where = instances.node(str(params["node"]))
        else:
            where = instances.find(validate.instance(str(params.get("name", "")), "INSTANCE")).node
        if where != uuid:
            raise NicInvalid("node", node, f"the node that {params.get('name', '')} is on")


def _named(body: Any) -> tuple[str, dict[str, Any]]:
    """Give the name of a task and its parameters. Raises NicInvalid."""
    if not isinstance(body, dict) or not {"task"} <= set(body) <= {"task", "params"} or not isinstance(body.get("params", {}), dict):
        raise NicInvalid("body", json.dumps(body)[:200], 'an object: {"task": NAME, "params": {...}}')
    task = body["task"]
    return task if isinstance(task, str) else json.dumps(task), body.get("params", {})
