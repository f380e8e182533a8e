"""Hear the streams of all nodes of tests/bench/registry.py, and say when each was told what.

Arguments: the socket, and how many nodes. It prints "ready" when all have been told all; for each line of its input,
"EPOCH:REVISION COUNT", it prints the times (monotonic seconds) at which so many streams were told that change.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

PAGE = 100  #: streams that are opened at once


class Hearers:
    """All streams."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ready = 0
        self.told: dict[str, list[float]] = {}
        self.news = asyncio.Event()

    async def hear(self, node: str) -> None:
        """Read one stream for ever."""
        reader, writer = await asyncio.open_unix_connection(self.path, limit=1 << 24)
        target = f"/v1/watch?node={node}&incarnation={node.replace('-0002-', '-0004-')}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nNetcommon-Role: node:{node}\r\n\r\n".encode())
        begun = False
        while line := await reader.readline():
            now = time.monotonic()
            if not begun and b'"ready"' in line:
                begun = True
                self.ready += 1
                self.news.set()
            elif begun and b'"options"' in line:
                at = line.rpartition(b'"revision":"')[2].partition(b'"')[0].decode()
                self.told.setdefault(at, []).append(now)
                self.news.set()

    async def until(self, done: object) -> None:
        while not done():  # type: ignore[operator]
            self.news.clear()
            await self.news.wait()


async def run(path: str, count: int) -> None:
    hearers, tasks = Hearers(path), []
    for number in range(count):
        tasks.append(asyncio.create_task(hearers.hear(f"{number:08x}-0002-4000-8000-000000000000")))
        if number % PAGE == PAGE - 1:
            await hearers.until(lambda number=number: hearers.ready > number - PAGE)  # type: ignore[misc]
    await hearers.until(lambda: hearers.ready == count)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        revision, wanted = line.split()
        await hearers.until(lambda revision=revision, wanted=int(wanted): len(hearers.told.get(revision, ())) >= wanted - 1)  # type: ignore[misc]
        print(json.dumps(hearers.told.pop(revision)), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
