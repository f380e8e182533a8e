"""Let the agents' side of many nodes speak with one service: python -m tests.support.returning COUNT SOCKET [SOCKET ...].

Each node has the agent's own state machine (netagent.sync.machine) with the agent's own rules: when it asks, pauses and begins its stream
again is what agents do. What a worker would do on the node is done at once. It prints "ready" when every node has a stream that has told
all. For each line of its input it waits until each of these streams has ended, and then until every node has one again that has told
all, and prints at which times (monotonic seconds) that was. Nodes are those of tests/bench/registry_content.py. Several sockets: of
services over one store; where one does not answer, the next is asked.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
import time
from http import HTTPStatus
from typing import Any

from netagent.sync import messages as said
from netagent.sync.became import Did
from netagent.sync.laid import DropUnderlay, SetUnderlay, Standing
from netagent.sync.machine import Machine
from netagent.sync.rules import Rules
from netregistry.model.nic import Report
from netregistry.model.node import About
from netregistry.request import ANY, new_id
from tests.bench.registry_content import uuid

LONGEST = 1 << 24  #: bytes of one line
AT_ONCE = 100  #: nodes that begin at once, the first time
LISTS = {"reports": "reports?limit=1000&node={}", "nics": "nics?limit=1000&node={}", "mastered": "nics?limit=1000&master=node:{}"}


class Refused(Exception):
    """Say that the registry has refused something: the document of the problem."""

    def __init__(self, data: bytes) -> None:
        found = json.loads(data)
        self.failure = said.Failure(str(found.get("type", "")).rpartition("/")[2] or "fault", str(found.get("detail")))
        super().__init__(self.failure.text)


class Connection:
    """A connection that is kept; another one where it has ended."""

    def __init__(self, paths: list[str], role: str) -> None:
        self._paths, self._role = paths, role
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def begin(self, method: str, target: str, body: Any = None, **more: str) -> tuple[int, dict[str, str]]:
        """Ask; give the status and the headers of the answer. Raises OSError, EOFError."""
        data = b"" if body is None else json.dumps(body).encode()
        given = {"Host": "localhost", "Netcommon-Role": self._role, "Content-Length": str(len(data)), **more}
        if body is not None:
            given["Content-Type"] = "application/json"
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
        reader, writer = await self._opened()
        writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + data)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        return int(lines[0].split()[1]), {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }

    async def whole(self, headers: dict[str, str]) -> bytes:
        return await (await self._opened())[0].readexactly(int(headers["content-length"]))

    async def lines(self) -> Any:
        """Give the lines of an answer in chunks: each chunk of the service's has whole lines."""
        reader = (await self._opened())[0]
        while size := int(await reader.readline() or b"0", 16):
            for line in (await reader.readexactly(size + 2)).splitlines():
                if line:
                    yield line

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for left in range(len(self._paths) - 1, -1, -1):
            if self._open is not None:
                break
            try:
                self._open = await asyncio.open_unix_connection(self._paths[0], limit=LONGEST)
            except OSError:
                self._paths.append(self._paths.pop(0))  # the next one is asked, as netregistry.client does
                if not left:
                    raise
        assert self._open is not None
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


class Node:
    """One node's side."""

    def __init__(self, number: int, paths: list[str], chance: random.Random, news: asyncio.Event) -> None:
        self.uuid, self._incarnation, self._news = uuid(2, number), uuid(4, number), news
        self._asking, self._paths = Connection(list(paths), f"node:{self.uuid}"), list(paths)
        self._loop = asyncio.get_running_loop()
        self._machine = Machine(self.uuid, Rules(), lambda: new_id(time.time(), secrets.randbits(74)), chance.random, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._stream: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.complete = False
        self.ended = 0  #: streams that have ended

    def turn(self) -> None:
        """Do what the machine asks for now."""
        if self._timer is not None:
            self._timer.cancel()
        for request in self._machine.turn(self._loop.time()):
            self._do(request)
        due = self._machine.due(self._loop.time())
        self._timer = self._loop.call_at(due, self.turn) if due < float("inf") else None
        if self._machine.inbox.complete != self.complete:
            self.complete = self._machine.inbox.complete
            self._news.set()

    def _take(self, event: said.Event) -> None:
        self._machine.take(event, self._loop.time())
        self.turn()

    def _do(self, request: said.Request) -> None:
        later = self._loop.call_soon
        if isinstance(request, said.Look):
            nics = {
                each: said.Local(Report(each, "running"), {}, ganeti=True) for each in request.uuids if each in self._machine.inbox.nics
            }
            later(self._take, said.Looked(nics, about=About() if request.about else None, wall=time.time(), underlay=Standing()))
        elif isinstance(request, said.Survey):
            later(self._take, said.Surveyed({}, "a node of a test has no inventory"))
        elif isinstance(request, said.Apply | said.Keep):
            later(self._take, Did(request.key, request.wanted.revision))
        elif isinstance(request, said.Drop | said.SetNetwork | said.DropNetwork | SetUnderlay | DropUnderlay | said.Retain | said.Check):
            later(self._take, Did(request.key, getattr(request, "revision", "")))
        elif isinstance(request, said.Watch):
            self._stream = self._task(self._watched(request.start))
        elif isinstance(request, said.Close):
            if self._stream is not None:
                self._stream.cancel()
            later(self._take, said.Ended(said.Failure("", "it was not to be believed")))
        elif not isinstance(request, said.Save | said.Alarm | said.Tell):
            self._task(self._asked(request))

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _asked(self, request: said.Asking) -> None:
        try:
            event: said.Event = await self._answered(request)
        except Refused as refused:
            event = said.Failed(refused.failure)
        except (OSError, EOFError) as error:
            self._asking.close()
            event = said.Failed(said.Failure("", repr(error)))
        self._take(event)

    async def _answered(self, request: said.Asking) -> said.Answered:
        place = f"nodes/{self.uuid}"
        if isinstance(request, said.Hello):
            return await self._one("GET", "")
        if isinstance(request, said.AskNode):
            return await self._one("GET", place)
        if isinstance(request, said.List):
            page = await self._one("GET", LISTS[request.what].format(self.uuid))
            assert not page.body["next"]
            return said.Answered(page.body["items"], page.revision)
        if isinstance(request, said.Beat):
            return await self._one("POST", f"{place}/heartbeat", {"incarnation": self._incarnation})
        if isinstance(request, said.Ask):
            raise AssertionError(f"a Ganeti cluster is the master of all NICs: {request}")
        return await self._one("POST", f"{place}/reports", request.body, Idempotency_Key=request.id, If_Match=ANY)

    async def _one(self, method: str, target: str, body: Any = None, **more: str) -> said.Answered:
        status, headers = await self._asking.begin(method, f"/v1/{target}".rstrip("/"), body, **more)
        data = await self._asking.whole(headers)
        if status >= HTTPStatus.BAD_REQUEST:
            raise Refused(data)
        return said.Answered(json.loads(data) if data else None, headers.get("etag", "").strip('"'))

    async def _watched(self, start: str) -> None:
        connection = Connection(self._paths, f"node:{self.uuid}")
        failure = said.Failure("", "the registry has ended the stream")
        try:
            query = f"/v1/watch?node={self.uuid}&incarnation={self._incarnation}" + (f"&from={start}" if start else "")
            status, headers = await connection.begin("GET", query)
            if status >= HTTPStatus.BAD_REQUEST:
                raise Refused(await connection.whole(headers))
            async for line in connection.lines():
                self._take(said.Line(json.loads(line), len(line)))
        except Refused as refused:
            failure = refused.failure
        except (OSError, EOFError) as error:
            failure = said.Failure("", repr(error))
        finally:
            connection.close()
        self.ended += 1
        self._take(said.Ended(failure))


async def run(count: int, paths: list[str]) -> None:
    chance, news = random.Random(7), asyncio.Event()
    nodes = [Node(number, paths, chance, news) for number in range(count)]

    async def until(done: Any) -> float:
        while not done():
            news.clear()
            await news.wait()
        return time.monotonic()

    for number, node in enumerate(nodes):
        node.turn()
        if number % AT_ONCE == AT_ONCE - 1:
            await until(lambda number=number: sum(each.complete for each in nodes) > number - 2 * AT_ONCE)
    await until(lambda: all(node.complete for node in nodes))
    print("ready", flush=True)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        gone = await until(lambda: all(node.ended for node in nodes))
        print(json.dumps([gone, await until(lambda: all(node.complete for node in nodes))]), flush=True)
        for node in nodes:
            node.ended = 0


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), sys.argv[2:]))
