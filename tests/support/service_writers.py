"""Change a registry through its service from several threads until the process is killed: python -m tests.support.service_writers FOLDER.

Each writer numbers its requests, and notes in a file of its own what it is about to ask, under which id, and what was acknowledged. Each
request makes two NICs with an address each, and deletes those of two requests before: all of it, or nothing. A watcher notes what the node
is told. MACs and addresses go round, so a service has no more to read at its start after an hour than at first.

Started again, each goes on where it was: what was not acknowledged is asked again, the same. FOLDER/socket* are the services: whoever has
no answer of one goes on at the next.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from netregistry.client import Client, Problem, request_id
from runtime.errors import NetcommonError
from tests.support import notes

WRITERS = 8
ROUND = 8  #: requests of one writer, after which it asks for the same MACs again: they were given back long before
NODE = "aaaaaaaa-0000-4000-8000-000000000000"
NETWORK = "bbbbbbbb-0000-4000-8000-000000000000"


def prepare(asked: Client, node: Client) -> None:
    """Make the network and the node that the writers need; what they give back is free at once."""
    asked.change("PATCH", "settings", {"quarantine": 0})
    asked.change("POST", "networks", {"uuid": NETWORK, "name": "blue", "subnet": "10.0.0.0/22"})
    node.change("POST", "nodes", {"uuid": NODE, "name": "node1"})


def uuid_of(writer: int, number: int, side: str) -> str:
    return str(uuid5(UUID(NODE), f"{writer}/{number}/{side}"))


def last(path: Path) -> tuple[int, str, bool]:
    """Give the number and id of the last request that was begun, and whether it was acknowledged."""
    noted = notes.lines(path)
    begun = [line.split() for line in noted if line.startswith("begun ")]
    return (int(begun[-1][1]), begun[-1][2], noted[-1].startswith("done ")) if begun else (0, "", True)


def parts(writer: int, number: int) -> list[dict[str, Any]]:
    made = [
        {
            "action": "nic.add",
            "body": {
                "uuid": uuid_of(writer, number, side),
                "network": NETWORK,
                "allocate": ["ipv4"],
                "name": f"{writer}/{number}",
                "mac": f"02:00:00:{place:02x}:{writer:02x}:{number % ROUND:02x}",
            },
        }
        for place, side in enumerate(("left", "right"))
    ]
    gone = [{"action": "nic.delete", "target": uuid_of(writer, number - 2, side), "match": "*"} for side in ("left", "right") if number > 2]
    return [*made, *gone]


def services(folder: Path, begin: int, role: str = "") -> Iterator[Client]:
    """Give a client of each service, one after the other, for ever."""
    sockets = sorted(folder.glob("socket*"))
    clients = [Client(str(path), role, 10) for path in sockets]
    return itertools.islice(itertools.cycle(clients), begin % len(clients), None)


def write(folder: Path, writer: int) -> None:
    path = folder / f"writer{writer}"
    number, key, done = last(path)
    file = notes.opened(path)
    others = services(folder, writer, f"node:{NODE}")
    client = next(others)
    while True:
        if done:
            number, key, done = number + 1, request_id(), False
            os.write(file, f"begun {number} {key}\n".encode())
        try:
            said = client.change("POST", "batch", {"parts": parts(writer, number)}, key=key)
        except Problem as error:
            if not error.retry:
                os.write(file, f"refused {number} {error.code} {json.dumps(str(error))}\n".encode())
                return
            client = next(others)
        except NetcommonError:  # nobody there, or no answer: it goes on when the service is back
            time.sleep(0.01)
            client = next(others)
        else:
            os.write(file, f"done {number} {said.revision}\n".encode())
            done = True


def watch(folder: Path) -> None:
    """Note every line; "begin" where the stream begins anew, and what is not told again has left."""
    path = folder / "watcher"
    ready = [line.split() for line in notes.lines(path) if line.startswith("ready ")]
    start = ready[-1][1] if ready else ""
    file = notes.opened(path)
    others = services(folder, 0)
    while True:
        try:
            os.write(file, f"begin {start}\n".encode())
            for line in next(others).watch(NODE, start):
                if line["event"] == "ready":
                    start = line["revision"]
                    os.write(file, f"ready {start}\n".encode())
                elif line["what"] == "nic":
                    os.write(file, f"{line['event']} {line['uuid']} {line['revision']}\n".encode())
        except Problem as error:
            if error.kind == "compacted":
                start = ""
        except NetcommonError:
            time.sleep(0.01)


def main() -> None:
    folder = Path(sys.argv[1])
    threads = [threading.Thread(target=write, args=(folder, writer)) for writer in range(WRITERS)]
    for thread in [*threads, threading.Thread(target=watch, args=(folder,))]:
        thread.start()
    print("ready", flush=True)


if __name__ == "__main__":
    main()
