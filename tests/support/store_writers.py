"""Write to a store from several threads, as fast as it takes it, until the process is killed: python -m tests.support.store_writers FOLDER.

Each writer numbers its commits, and notes in a file of its own what it is about to commit, and what was acknowledged. A watcher notes what
it has seen. Started again, each goes on where it was: what was not acknowledged is sent again, the same.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from netregistry.stores.base import Conflict, Delete, Expect, Put, Unknown
from netregistry.stores.sqlite import SqliteStore
from tests.support import notes

WRITERS = 8
COMPACT_EVERY = 400  #: revisions


def last_number(path: Path) -> tuple[int, bool]:
    """Give the number of the last commit that was begun, and whether it was acknowledged."""
    noted = notes.lines(path)
    if not noted:
        return 0, True
    word, number, *_more = noted[-1].split()
    return int(number), word == "done"


def write(store: SqliteStore, folder: Path, writer: int) -> None:
    path = folder / f"writer{writer}"
    number, done = last_number(path)
    file = notes.opened(path)
    while True:
        if done:
            number, done = number + 1, False
            os.write(file, f"begun {number}\n".encode())
        name = f"{writer}/{number}"
        changes: list[Put | Delete] = [Put(f"request/{name}", b"")]
        changes += [Put(f"{side}/{name}", name.encode()) for side in ("left", "right")]
        changes += [Delete(f"{side}/{writer}/{number - 2}") for side in ("left", "right")]
        try:
            revision = store.commit([Expect(f"request/{name}", 0)], changes)
        except Conflict as error:
            revision = error.revision
        except Unknown:
            continue
        os.write(file, f"done {number} {revision}\n".encode())
        done = True


def watch(store: SqliteStore, folder: Path) -> None:
    path = folder / "watcher"
    noted = notes.lines(path)
    seen = int(noted[-1].split()[0]) if noted else 0
    file = notes.opened(path)
    with store.watch("request/", seen + 1) as watching:
        while True:
            batch = watching.next(1.0)
            if batch.changes:
                os.write(file, f"{batch.revision} {' '.join(change.key for change in batch.changes)}\n".encode())
                seen = batch.revision
            if seen > COMPACT_EVERY:
                store.compact(seen - COMPACT_EVERY)


def main() -> None:
    folder = Path(sys.argv[1])
    store = SqliteStore(str(folder / "registry.sqlite"))
    threads = [threading.Thread(target=write, args=(store, folder, writer)) for writer in range(WRITERS)]
    for thread in [*threads, threading.Thread(target=watch, args=(store, folder))]:
        thread.start()
    print("ready", flush=True)


if __name__ == "__main__":
    main()
