"""A store that is killed at any moment under eight writers loses nothing, halves nothing, and does nothing twice."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from netregistry.stores import sqlite
from netregistry.stores.base import Conflict, Damaged, Expect, Put, Unavailable, Unknown
from netregistry.stores.files import alone, begin, bring_back
from netregistry.stores.sqlite import SqliteStore
from netregistry.stores.sqlite_file import REPLACED
from runtime.errors import HostRefused, TryAgain
from tests.support import notes, syscalls
from tests.support.bootstrap import ROOT
from tests.support.histories import acknowledged, faults
from tests.support.netns import wait_until
from tests.support.sample import FULL

ROUNDS = 200 if FULL else 12


def killed_after(folder: Path, seconds: float) -> None:
    """Run the writers, and kill them so many seconds after they have begun."""
    argv = [sys.executable, "-m", "tests.support.store_writers", str(folder)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


def test_killed_under_eight_writers(tmp_path: Path) -> None:
    SqliteStore.create(str(tmp_path / "registry.sqlite"), "first").close()
    chance = random.Random(7)
    for _round in range(ROUNDS):
        killed_after(tmp_path, chance.uniform(0.0, 0.15))
        copy = tmp_path / "copy"  # a look at the file itself would bring its log to an end
        copy.mkdir()
        for path in tmp_path.glob("*"):
            if path.is_file():
                shutil.copy(path, copy)
        assert faults(copy) == []
        shutil.rmtree(copy)
    assert acknowledged(tmp_path) > ROUNDS * 5


def test_half_a_line_of_a_note_is_none(tmp_path: Path) -> None:
    """A process that is killed within write(2) leaves it; whoever goes on does not write behind it."""
    path = tmp_path / "notes"
    path.write_text("begun 1\nbeg")
    assert notes.lines(path) == ["begun 1"]
    file = notes.opened(path)
    os.write(file, b"done 1 7\n")
    os.close(file)
    assert notes.lines(path) == ["begun 1", "done 1 7"]
    path.write_text("beg")
    assert notes.lines(path) == [] == notes.lines(tmp_path / "none")
    os.close(notes.opened(path))
    assert path.read_text() == ""


@pytest.mark.parametrize("harm", ["lost", "twice", "half", "watcher", "renumbered"])
def test_the_checker_sees_each_fault(tmp_path: Path, harm: str) -> None:
    store = SqliteStore.create(str(tmp_path / "registry.sqlite"), "first")
    store.close()
    while acknowledged(tmp_path) <= 20:
        killed_after(tmp_path, 0.3)
    SqliteStore(str(tmp_path / "registry.sqlite")).close()
    assert faults(tmp_path) == []
    database = sqlite3.connect(tmp_path / "registry.sqlite")
    request = "request/0/1"
    if harm == "lost":
        database.execute("DELETE FROM versions WHERE key = ?", (request,))
    elif harm == "twice":
        database.execute("INSERT INTO versions SELECT max(revision) + 1, 0, ?, x'' FROM versions", (request,))
        database.execute("UPDATE facts SET value = value + 1 WHERE name = 'revision'")
    elif harm == "half":
        (last,) = database.execute("SELECT max(key) FROM items WHERE key LIKE 'left/%'").fetchone()
        database.execute("DELETE FROM items WHERE key = ?", (last,))
    elif harm == "watcher":
        lines = (tmp_path / "watcher").read_text().splitlines(keepends=True)
        (tmp_path / "watcher").write_text("".join([*lines[:2], *lines[3:]]))
    else:
        database.execute("UPDATE facts SET value = value - 1 WHERE name = 'revision'")
    database.commit()
    database.close()
    assert faults(tmp_path) != []


def test_each_commit_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    """Let strace see it: between the write of a commit and the write of its acknowledgement there is an fdatasync of the log."""
    SqliteStore.create(str(tmp_path / "registry.sqlite"), "first").close()
    code = (
        "import os, sys\nfrom netregistry.stores.sqlite import SqliteStore\nfrom netregistry.stores.base import Put\n"
        "store = SqliteStore(sys.argv[1])\n"
        "for number in range(20):\n    os.write(1, b'begun')\n    store.commit([], [Put(f'k{number}', b'v')])\n    os.write(1, b'done')\n"
        "os._exit(0)\n"
    )
    argv = ["strace", "-f", "-y", "-e", "trace=write,pwrite64,fsync,fdatasync", "-o", str(tmp_path / "trace"), sys.executable, "-c", code]
    subprocess.run([*argv, str(tmp_path / "registry.sqlite")], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=120)
    seen: list[str] = []
    for line in (tmp_path / "trace").read_text().splitlines():
        if '"begun"' in line:
            seen = []
        elif '"done"' in line:
            logged = [number for number, one in enumerate(seen) if one == "log"]
            assert logged and "sync" in seen[logged[-1] :], seen
            seen = ["acknowledged"]
        elif "sqlite-wal" in line:
            seen.append("sync" if "sync(" in line else "log")
    assert seen == ["acknowledged"]


# -- a file that is not as it should be


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the file of a store that holds something, closed."""
    found = tmp_path / "registry.sqlite"
    with SqliteStore.create(str(found), "first") as store:
        for number in range(200):
            store.commit([], [Put(f"k{number}", bytes(100))])
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Give the files' bytes, without SQLite's index of the log, and a log that holds nothing: a reader makes both."""
    found = {each.name: each.read_bytes() for each in folder.iterdir() if not each.name.endswith("-shm")}
    return {name: data for name, data in found.items() if data or not name.endswith("-wal")}


@pytest.mark.parametrize("harm", ["header", "middle", "short", "empty", "text", "other", "newer", "no facts"])
def test_a_damaged_file_is_refused_and_stays_as_it_is(path: Path, harm: str) -> None:
    whole = path.read_bytes()
    changed = {
        "header": b"not SQLite at all" + whole[17:],
        "middle": whole[:8192] + os.urandom(8192) + whole[16384:],
        "short": whole[: len(whole) // 2 + 100],
        "empty": b"",
        "text": b"netcommon = true\n",
    }
    if harm in changed:
        path.write_bytes(changed[harm])
    else:
        database = sqlite3.connect(path)
        statements = {"other": "PRAGMA application_id=1", "newer": "PRAGMA user_version=99", "no facts": "DELETE FROM facts"}
        database.execute(statements[harm])
        database.commit()
        database.close()
    before = contents(path.parent)
    with pytest.raises(Damaged) as refused:
        SqliteStore(str(path))
    assert str(path) in str(refused.value) and contents(path.parent) == before
    assert harm == "newer" or "restore" in str(refused.value)


def test_a_second_process_is_refused(path: Path) -> None:
    with SqliteStore(str(path)) as store:
        code = "import sys\nfrom netregistry.stores.sqlite import SqliteStore\nSqliteStore(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode and "is open in another process" in done.stderr
        with pytest.raises(TryAgain):
            SqliteStore(str(path))
        store.commit([], [Put("a", b"")])
    SqliteStore(str(path)).close()


def test_no_file_and_a_file_in_the_way(tmp_path: Path, path: Path) -> None:
    with pytest.raises(HostRefused, match="init makes one"):
        SqliteStore(str(tmp_path / "none"))
    before = contents(path.parent)
    with pytest.raises(HostRefused, match="is there already"):
        SqliteStore.create(str(path), "second")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostRefused):
        SqliteStore.create(str(tmp_path / "link"), "second")
    (tmp_path / "link").unlink()
    assert contents(path.parent) == before and path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk(tmp_path: Path) -> None:
    """Fill the file to its limit: what does not fit is refused whole, what is there can be read, and room makes it work again."""
    with SqliteStore.create(str(tmp_path / "registry.sqlite"), "first") as store:
        store.commit([], [Put("a", b"1")])
        store._database.execute(f"PRAGMA max_page_count={store._database.execute('PRAGMA page_count').fetchone()[0] + 2}")
        before = store.list("")
        with pytest.raises(Unavailable):
            store.commit([Expect("b", 0)], [Put("b", bytes(1 << 20)), Put("a", b"2")])
        assert store.list("") == before
        store._database.execute("PRAGMA max_page_count=1000000")
        assert store.commit([Expect("b", 0)], [Put("b", bytes(1 << 20))]) == before.revision + 1


def test_a_disk_that_is_full_when_it_is_committed(tmp_path: Path) -> None:
    """A commit that is not whole in the log is none: nobody has to ask whether it was done. A file system that is read-only is named."""
    folder = tmp_path / "small"
    folder.mkdir()
    syscalls.mount("tmpfs", str(folder), "tmpfs", options="size=200k,mode=0700")
    try:
        path = str(folder / "registry.sqlite")
        with SqliteStore.create(path, "first") as store:
            store.commit([], [Put("a", b"1")])
            (folder / "fill").write_bytes(bytes(os.statvfs(folder).f_bavail * 4096))
            before = store.list("")
            for _ in range(3):
                with pytest.raises(Unavailable, match="full"):
                    store.commit([Expect("a", before.items[0].revision)], [Put("a", bytes(30000))])
                assert store.list("") == before
        os.unlink(folder / "fill")
        with SqliteStore(path) as store:
            assert store.list("") == before
            store.commit([Expect("a", before.items[0].revision)], [Put("a", b"2")])
        syscalls.mount("tmpfs", str(folder), "tmpfs", syscalls.MS_REMOUNT | syscalls.MS_RDONLY)
        with pytest.raises(Unavailable, match="read-only"):
            SqliteStore(path)
    finally:
        syscalls.umount(str(folder))


@pytest.mark.parametrize("room", [1, 4096, 8192, 20000])
def test_a_disk_without_room_for_a_new_store(tmp_path: Path, room: int) -> None:
    """Limit the size of files: nothing half made stays, and the next try, with room, makes the store."""
    path, limits = str(tmp_path / "registry.sqlite"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(Unavailable):
            SqliteStore.create(path, "first")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
    with SqliteStore.create(path, "second") as store:
        assert (store.epoch, store.commit([], [Put("a", b"1")])) == ("second", 1)


def test_a_commit_that_is_not_answered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the COMMIT itself: nobody knows what became of it until the same is sent again."""
    with SqliteStore(str(path)) as store:

        class Failing:
            def __init__(self, real: sqlite3.Connection) -> None:
                self.real = real

            def __getattr__(self, name: str) -> object:
                return getattr(self.real, name)

            def execute(self, text: str, *more: object) -> sqlite3.Cursor:
                if text == "COMMIT":
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                    raise error
                return self.real.execute(text, *more)  # type: ignore[arg-type]

        request = [Expect("request/1", 0)], [Put("request/1", b"")]
        monkeypatch.setattr(store, "_database", Failing(store._database))
        with pytest.raises(Unknown):
            store.commit(*request)
        monkeypatch.undo()
        done = store.commit(*request)
        with pytest.raises(Conflict) as refused:
            store.commit(*request)
        assert refused.value.revision == done


def test_backup_and_another_epoch(tmp_path: Path, path: Path) -> None:
    with SqliteStore(str(path)) as store:
        newest = store.list("").revision
        store.backup(str(tmp_path / "copy"))
        store.commit([], [Put("later", b"")])
        with pytest.raises(HostRefused, match="is there already"):
            store.backup(str(tmp_path / "copy"))
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    with SqliteStore(str(tmp_path / "copy")) as copy:
        assert (copy.epoch, copy.list("").revision, copy.get("later")) == ("first", newest, None)
        copy.note(epoch="second")
    with SqliteStore(str(tmp_path / "copy")) as copy:
        assert copy.epoch == "second"


class Beside(threading.Thread):
    """Does something again and again while a store is copied."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work, self.done, self.over = work, 0, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            self.work()
            self.done += 1

    def __enter__(self) -> Self:
        self.start()
        wait_until(lambda: self.done > 1, 10, "what is done beside")
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


@pytest.fixture
def large(path: Path) -> Iterator[SqliteStore]:
    """Give a store whose copy has many parts."""
    with SqliteStore(str(path)) as store:
        for number in range(20):
            store.commit([], [Put(f"large{number}/{each}", os.urandom(3000)) for each in range(100)])
        yield store


class Copying:
    """A connection that tells whether it is being copied."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self.real, self.now = real, False

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def backup(self, *given: Any, **more: Any) -> None:
        self.now = True
        try:
            self.real.backup(*given, **more)
        finally:
            self.now = False


def test_a_copy_keeps_nobody_waiting_and_is_of_one_revision(tmp_path: Path, large: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "COPIED", 50)
    chance, meanwhile = random.Random(3), []
    connection = Copying(large._database)
    monkeypatch.setattr(large, "_database", connection)

    def write() -> None:
        begun = connection.now
        commit()
        if begun and connection.now:
            meanwhile.append(begun)

    def commit() -> None:
        number = chance.randrange(20)
        if chance.randrange(4):
            large.commit([], [Put(f"large{number}/{each}", os.urandom(1000)) for each in range(3)])
        else:
            with pytest.raises(Conflict):
                large.commit([Expect("none", 1)], [Put("k0", b"")])

    with Beside(write):
        large.backup(str(tmp_path / "copy"))
        assert len(meanwhile) > 5, "commits go on"
        large.backup(str(tmp_path / "another"))
    for name in ("copy", "another"):
        with SqliteStore(str(tmp_path / name)) as copy:
            found = copy.list("")
        assert found == large.list("", revision=found.revision)._replace(more=False)


def test_what_cannot_be_beside_a_copy(tmp_path: Path, large: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is not made smaller; and one that is closed does not wait for the whole copy, of which nothing stays."""
    monkeypatch.setattr(sqlite, "COPIED", 10)
    refused: list[str] = []

    def shrink() -> None:
        try:
            large.shrink()
        except Unavailable as error:
            refused.append(str(error))

    with Beside(shrink):
        large.backup(str(tmp_path / "copy"))
    assert any("is being copied" in each for each in refused)
    large.shrink()

    def close() -> None:
        wait_until((tmp_path / "half").exists, 10, "a copy")
        large.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(Unavailable, match="closed"):
        while True:
            large.backup(str(tmp_path / "half"))
            (tmp_path / "half").unlink()
    closer.join()
    assert not (tmp_path / "half").exists()


# -- files that are moved


def killed_with_a_log(path: Path) -> None:
    """Let a process that is killed leave commits that are in the log alone."""
    code = (
        "import os, sys\nfrom netregistry.stores.sqlite import SqliteStore\nfrom netregistry.stores.base import Put\n"
        "store = SqliteStore(sys.argv[1])\nfor number in range(50):\n    store.commit([], [Put(f'later{number}', bytes(2000))])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL and Path(f"{path}-wal").stat().st_size > 100_000


def test_a_log_without_its_file_goes_into_no_other(tmp_path: Path, path: Path) -> None:
    """Somebody moves the file away and leaves its log: SQLite would take the log for that of the next file of this name."""
    with SqliteStore(str(path)) as store:
        store.backup(str(tmp_path / "copy"))
        wanted = store.list("").items
    killed_with_a_log(path)
    log = Path(f"{path}-wal")
    path.rename(tmp_path / "moved")
    before = log.read_bytes()
    for refused in (lambda: bring_back(str(tmp_path / "copy"), str(path)), lambda: SqliteStore.create(str(path), "second")):
        with pytest.raises(HostRefused, match="-wal is there without"):
            refused()
        assert log.read_bytes() == before and not path.exists()
    log.rename(tmp_path / "moved-wal")
    bring_back(str(tmp_path / "copy"), str(path))
    with SqliteStore(str(path)) as store:
        assert store.list("").items == wanted
    with SqliteStore(str(tmp_path / "moved")) as store:
        assert store.get("later49"), "with its log the file has all"


def test_what_is_replaced_is_kept_with_its_own_log(tmp_path: Path, path: Path) -> None:
    """Also where an earlier one was kept, with a log: that is no other's."""
    with SqliteStore(str(path)) as store:
        store.backup(str(tmp_path / "copy"))
    killed_with_a_log(path)
    damaged = bytes(len(path.read_bytes()))
    path.write_bytes(damaged)
    bring_back(str(tmp_path / "copy"), str(path))
    kept = Path(f"{path}{REPLACED}")
    assert kept.read_bytes() == damaged and Path(f"{kept}-wal").stat().st_size > 100_000
    with SqliteStore(str(path)) as store:
        store.commit([], [Put("second", b"")])
    second: list[str] = []
    bring_back(str(tmp_path / "copy"), str(path), second.append)
    assert second == [f"{kept}-2"] and not Path(f"{kept}-2-wal").exists()
    with SqliteStore(*second) as store:
        assert store.get("second") and not store.get("later49")
    assert kept.read_bytes() == damaged and Path(f"{kept}-wal").stat().st_size > 100_000


def test_what_restores_in_a_row_replace_is_all_kept(tmp_path: Path, path: Path) -> None:
    """The wrong copy first, as people do, and then the right one: what stood there at first is in some file."""
    said: list[str] = []
    for name in ("first", "second", "third"):
        with SqliteStore(str(path)) as store:
            store.backup(str(tmp_path / f"copy-{name}"))
            store.commit([], [Put(name, b"")])
        bring_back(str(tmp_path / f"copy-{name}"), str(path), said.append)
    assert [each.removeprefix(f"{path}{REPLACED}") for each in said] == ["", "-2", "-3"]
    for name, file in zip(("first", "second", "third"), said, strict=True):
        with SqliteStore(file) as store:
            assert store.get(name)
    path.unlink()
    with pytest.raises(HostRefused, match=f"{REPLACED}-3"):
        SqliteStore(str(path))
    Path(said[1]).unlink()
    with pytest.raises(HostRefused, match=f"{REPLACED}-3"):
        begin(str(path))


def test_a_folder_that_nothing_can_be_written_to(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / "copy"
    with SqliteStore(str(path)) as store:
        store.backup(str(copy))
    before = path.read_bytes()
    folder = Path(f"{path}.new")
    folder.mkdir()  # root may write everywhere: something else is in the way
    with pytest.raises(HostRefused, match="cannot put"):
        bring_back(str(copy), str(path))
    assert path.read_bytes() == before and folder.is_dir()


def ended(act: Callable[[], object], at: int) -> bool:
    """Do something that ends before it gives a file its name for the ``at``-th time; tell whether it came so far."""
    left = at

    def before(call: Callable[..., None]) -> Callable[..., None]:
        def counted(*given: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            call(*given)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "link"):
            patch.setattr(os, name, before(getattr(os, name)))
        try:
            act()
        except KeyboardInterrupt:
            return True
        return False


@pytest.mark.parametrize("log", [False, True])
def test_a_restore_that_was_ended_leaves_a_registry_or_says_that_there_was_one(tmp_path: Path, log: bool) -> None:
    """Otherwise init would make one that holds nothing, and all addresses would be free. ``log``: of a file that is damaged."""
    at = 1
    while True:
        path, copy = tmp_path / str(at) / "registry.sqlite", tmp_path / f"copy{at}"
        path.parent.mkdir()
        with SqliteStore.create(str(path), "first") as store:
            store.commit([], [Put("wanted", b"")])
            store.backup(str(copy))
        if log:
            killed_with_a_log(path)
            path.write_bytes(bytes(len(path.read_bytes())))
        if not ended(lambda: bring_back(str(copy), str(path)), at):  # noqa: B023  # called in this turn
            break
        with pytest.raises(HostRefused) as refused:
            begin(str(path))
        if path.exists():
            assert "is there already" in str(refused.value)
            if not log:
                with SqliteStore(str(path)) as store:
                    assert store.get("wanted")
        else:
            assert log and ("restore" in str(refused.value) or "-wal is there without" in str(refused.value))
            with pytest.raises(HostRefused, match="netcommon registry restore FILE"):
                SqliteStore(str(path))
        at += 1
    assert at > 2
    path.unlink()
    with pytest.raises(HostRefused, match=f"registry.sqlite{REPLACED}"):
        begin(str(path))


def test_a_registry_is_made_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new/registry.sqlite"
    code = (
        "import os, sys\nfrom netregistry.stores import files, sqlite\n"
        "sqlite.connect = lambda _path: os.kill(os.getpid(), 9)\nfiles.begin(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL and not path.exists()
    epoch = begin(str(path))
    assert [each.name for each in path.parent.iterdir()] == ["registry.sqlite"] and path.stat().st_mode & 0o777 == 0o600
    with SqliteStore(str(path)) as store:
        assert store.epoch == epoch
    with pytest.raises(HostRefused, match="authority rotate"):
        begin(str(path))


def test_one_process_at_a_time_makes_or_replaces_a_registry(tmp_path: Path, path: Path) -> None:
    with SqliteStore(str(path)) as store:
        store.backup(str(tmp_path / "copy"))
    before = contents(path.parent)
    acts: tuple[Callable[[], str], ...] = (lambda: bring_back(str(tmp_path / "copy"), str(path)), lambda: begin(f"{path}.other"))
    with alone(str(path)):
        for refused in acts:
            with pytest.raises(TryAgain, match="another netcommon registry"):
                refused()
    assert contents(path.parent) == before
