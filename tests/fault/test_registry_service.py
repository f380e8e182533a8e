"""The registry's service and its clients, killed at any moment: nothing acknowledged is lost, nothing half done, nothing done twice."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netregistry.client import Client, Problem, request_id
from runtime.errors import NetcommonError
from tests.support import syscalls
from tests.support.bootstrap import ROOT
from tests.support.netns import wait_until
from tests.support.sample import FULL
from tests.support.service_histories import acknowledged, faults
from tests.support.service_writers import NETWORK, NODE, prepare

ROUNDS = 200 if FULL else 10


class Machine:
    """A folder with a registry, its service and clients."""

    def __init__(self, folder: Path) -> None:
        self.root, self.notes = folder / "root", folder / "notes"
        for path in (self.root, self.notes):
            path.mkdir()
        self.file = self.root / "var/lib/netregistry/registry.sqlite"
        self.socket = self.root / "run/netregistry/socket"
        self.socket.parent.mkdir(parents=True)
        (self.notes / "socket").symlink_to(self.socket)
        self.service: subprocess.Popen[bytes] | None = None
        self.command("init")

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "netcommon.cli", "--root", str(self.root), "registry", *words]

    def command(self, *words: str) -> str:
        return subprocess.run(self.argv(*words), cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout

    def start(self, *before: str) -> subprocess.Popen[bytes]:
        """Start the service, and wait until it answers. ``before``: a command that runs it."""
        with (self.root / "stderr").open("a") as errors:
            made = self.service = subprocess.Popen([*before, *self.argv("serve")], cwd=ROOT, stderr=errors)
        wait_until(lambda: made.poll() is not None or self.answers(), 30, "an answer of the service")
        assert made.poll() is None, (self.root / "stderr").read_text()[-1000:]
        return made

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(self.socket))
            except OSError:
                return False
        return True

    def client(self, role: str = "") -> Client:
        return Client(str(self.socket), role, 30)

    def writers(self) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "tests.support.service_writers", str(self.notes)]
        made = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert made.stdout is not None and made.stdout.readline() == "ready\n"
        made.stdout.close()
        return made

    def copied(self, folder: Path) -> Path:
        """Copy the file: a look at it itself would bring its log to an end."""
        folder.mkdir()
        for path in self.file.parent.glob("registry.sqlite*"):
            shutil.copy(path, folder)
        return folder / self.file.name


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    if made.service is not None and made.service.poll() is None:
        made.service.kill()
        made.service.wait()


def killed(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def with_a_node(machine: Machine) -> None:
    machine.start()
    with machine.client() as asked, machine.client(f"node:{NODE}") as node:
        prepare(asked, node)


def test_service_and_clients_are_killed(machine: Machine, tmp_path: Path) -> None:
    with_a_node(machine)
    chance = random.Random(11)
    service, writers = machine.service, machine.writers()
    assert service is not None
    count = acknowledged(machine.notes)
    for round_ in range(ROUNDS):
        before = count()
        wait_until(lambda seen=before: count() > seen + chance.randrange(12), 30, "writers that go on")  # type: ignore[misc]
        victims = chance.choice([("service",), ("clients",), ("service", "clients"), ("service",)])
        if "service" in victims:
            killed(service)
        if "clients" in victims:
            killed(writers)
        if "service" in victims and "clients" in victims:
            copy = machine.copied(tmp_path / f"copy{round_}")
            assert faults(machine.notes, copy) == []
            shutil.rmtree(copy.parent)
        service = machine.start() if "service" in victims else service
        writers = machine.writers() if "clients" in victims else writers
    before = count()
    wait_until(lambda: count() > before + 20, 30, "writers that go on")
    killed(writers)
    service.send_signal(signal.SIGTERM)
    assert service.wait(30) == 0 and not machine.socket.exists(), "told to stop it does, and takes its socket away"
    assert faults(machine.notes, machine.file) == []
    lines = (machine.notes / "watcher").read_text().splitlines()
    assert count() > ROUNDS * 5 and sum(line.startswith("enter ") for line in lines) > 50


def first_done(folder: Path) -> str:
    """Give the first request of the writer that has had the most done: others may have had none, and others were done after it."""
    files = [[line.split() for line in path.read_text().splitlines()] for path in folder.glob("writer*")]
    busiest = max(files, key=lambda lines: sum(words[0] == "done" for words in lines))
    number = next(words[1] for words in busiest if words[0] == "done")
    return next(words[2] for words in busiest if words[:2] == ["begun", number])


@pytest.mark.parametrize("harm", ["lost", "half", "twice", "unclaimed", "gap", "untold"])
def test_the_checker_sees_each_fault(machine: Machine, harm: str) -> None:
    with_a_node(machine)
    writers, service = machine.writers(), machine.service
    count = acknowledged(machine.notes)
    wait_until(lambda: count() > 60, 30, "writers")
    killed(writers)
    assert service is not None
    service.send_signal(signal.SIGTERM)
    assert service.wait(30) == 0 and faults(machine.notes, machine.file) == []
    watcher = machine.notes / "watcher"
    key = first_done(machine.notes)
    with contextlib.closing(sqlite3.connect(machine.file)) as database:
        if harm == "lost":
            database.execute("DELETE FROM versions WHERE key = ?", (f"history/{key}",))
        elif harm == "half":
            database.execute("DELETE FROM items WHERE key = (SELECT max(key) FROM items WHERE key LIKE 'nics/%')")
        elif harm == "twice":
            database.execute("INSERT INTO versions SELECT max(revision) + 1, 0, ?, x'7b7d' FROM versions", (f"history/{key}",))
        elif harm == "unclaimed":
            held = "SELECT max(key) FROM items WHERE key LIKE 'addresses/%' AND CAST(value AS TEXT) LIKE '%holder%'"
            database.execute("DELETE FROM items WHERE key = ?", database.execute(held).fetchone())
        elif harm == "gap":
            database.execute("DELETE FROM items WHERE key = ?", (f"history/{key}",))
        else:
            lines = watcher.read_text().splitlines(keepends=True)
            place = max(
                number
                for number, line in enumerate(lines)
                if line.startswith("leave ") and any(map(str.startswith, lines[number:], ["ready "] * 99))
            )
            watcher.write_text("".join(lines[:place] + lines[place + 1 :]))
        database.commit()
    found: list[str] = []
    with contextlib.suppress(KeyError):  # of the history that is not there
        found = faults(machine.notes, machine.file)
        assert found != []


def test_many_allocations_at_once(machine: Machine) -> None:
    """Two hundred at once are two hundred addresses; killed in the middle no address is claimed by nothing."""
    with_a_node(machine)
    given: list[str] = []

    def allocate() -> None:
        key = request_id()
        with machine.client() as asked:
            while True:
                try:
                    given.append(asked.change("POST", "nics", {"network": NETWORK, "allocate": ["ipv4"]}, key=key).body["ip"])
                    return
                except Problem:
                    raise
                except NetcommonError:
                    time.sleep(0.01)  # nobody is there

    def all_at_once(wait: bool) -> float:
        threads = [threading.Thread(target=allocate) for _ in range(200)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        if not wait:
            wait_until(lambda: len(given) > 250, 30, "some of them")
            assert machine.service is not None
            killed(machine.service)
            machine.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - begun

    took = all_at_once(True)
    assert len(set(given)) == len(given) == 200 and took < 5 * (1 + os.getloadavg()[0])
    all_at_once(False)
    assert len(set(given)) == len(given) == 400, "who was cut off has asked again, with the same id"
    assert machine.service is not None
    machine.service.send_signal(signal.SIGTERM)
    assert machine.service.wait(30) == 0
    assert faults(machine.notes, machine.file) == []


def acknowledgements(trace: str, log: str) -> list[bool]:
    """Tell of each answer to a change in a trace of strace: whether all that was written to ``log`` was synchronised, and something was."""
    found: list[bool] = []
    waiting: dict[str, str] = {}  # thread -> what it has begun to synchronise
    dirty, synchronised = False, False
    for line in trace.splitlines():
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.startswith(("pwrite64(", "write(")) and log in call:
            dirty = True
        elif call.startswith(("fdatasync(", "fsync(")) and log in call:
            if "unfinished" in call:
                waiting[thread] = call
            elif call.endswith("= 0"):
                dirty, synchronised = False, True
        elif call.startswith(("<... fdatasync", "<... fsync")) and waiting.pop(thread, "") and call.endswith("= 0"):
            dirty, synchronised = False, True
        elif '"HTTP/1.1 20' in call:
            found.append(synchronised and not dirty)
            synchronised = False
    return found


def test_the_file_is_synchronised_before_each_acknowledgement(machine: Machine, tmp_path: Path) -> None:
    """By the calls that the kernel is asked for."""
    trace = tmp_path / "trace"
    calls = "trace=pwrite64,write,fdatasync,fsync,sendto,sendmsg,writev"
    service = machine.start("strace", "-D", "-f", "-y", "-s", "20", "-qq", "-e", "signal=none", "-o", str(trace), "-e", calls)
    with machine.client() as asked:
        for number in range(20):
            asked.change("POST", "networks", {"name": f"n{number}"})
    service.send_signal(signal.SIGTERM)
    assert service.wait(30) == 0
    wait_until(lambda: len(acknowledgements(trace.read_text(), "registry.sqlite-wal")) == 20, 30, "the end of the trace")
    text = trace.read_text()
    found = acknowledgements(text, "registry.sqlite-wal")
    assert len(found) == 20 and all(found), text
    without = "\n".join(line for line in text.splitlines() if "sync" not in line)
    assert not any(acknowledgements(without, "registry.sqlite-wal")), "the reading of the trace sees it"


def test_another_user_is_refused_by_the_kernels_word(machine: Machine) -> None:
    """Also where the socket's file would let them."""
    machine.start()
    assert machine.socket.stat().st_mode & 0o777 == 0o600
    code = (
        "import os, socket, sys\nasking = socket.socket(socket.AF_UNIX)\nasking.connect(sys.argv[1])\n"
        "asking.sendall(b'GET /v1 HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\nprint(asking.recv(20).decode())\n"
    )
    machine.socket.chmod(0o666)
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(str(machine.socket))

    def become() -> None:
        os.chdir(machine.socket.parent)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    done = subprocess.run(["/usr/bin/python3", "-ISc", code, "socket"], preexec_fn=become, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("HTTP/1.1 403")


@pytest.mark.parametrize("harm", ["replaced", "removed", "log removed"])
def test_a_file_that_is_replaced_under_the_service(machine: Machine, tmp_path: Path, harm: str) -> None:
    """What were committed to a file that is not there any more would be acknowledged and gone; what it holds is still to be seen."""
    service = machine.start()
    with machine.client() as asked:
        asked.change("POST", "networks", {"name": "first"})
        machine.command("backup", str(tmp_path / "copy"))
        log = machine.file.with_name(machine.file.name + "-wal")
        if harm == "replaced":
            os.replace(tmp_path / "copy", machine.file)
        elif harm == "removed":
            machine.file.unlink()
        else:
            log.unlink()
        with pytest.raises(Problem, match="moved, removed or replaced") as refused:
            asked.change("POST", "networks", {"name": "second"})
        assert refused.value.code == 503 and "restart" in str(refused.value)
        assert [each["network"]["name"] for each in asked.all("networks")] == ["first"]
    killed(service)
    if harm == "replaced":
        log.unlink()  # the other file's
        machine.start()
        with machine.client() as asked:
            asked.change("POST", "networks", {"name": "second"})
            assert sorted(each["network"]["name"] for each in asked.all("networks")) == ["first", "second"]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A change is refused, and not done; what there is can be read; and with room it goes on, also behind a start without any."""
    small = tmp_path / "small"
    small.mkdir()
    syscalls.mount("tmpfs", str(small), "tmpfs", options="size=2m,mode=0700")
    try:
        machine = Machine(small)
        fill = small / "fill"

        def names() -> list[str]:
            with machine.client() as asked:
                return [item["network"]["name"] for item in asked.all("networks")]

        def refused() -> None:
            with machine.client() as asked, pytest.raises(Problem, match="full") as problem:
                for number in range(10):  # what room there is in the log is used up by the first ones, which are done
                    asked.change("POST", "networks", {"name": f"{'x' * 200}{number}", "tags": [f"{'y' * 100}{tag}" for tag in range(90)]})
                    done.append(number)
            assert (problem.value.code, problem.value.kind) == (503, "unavailable")

        done: list[int] = []
        service = machine.start()
        with machine.client() as asked:
            asked.change("POST", "networks", {"name": "first"})
        with pytest.raises(OSError, match="No space"):
            fill.write_bytes(bytes(2 << 20))
        refused()
        before = names()
        assert len(before) == 1 + len(done)
        killed(service)
        service = machine.start()
        assert names() == before
        refused()
        fill.unlink()
        with machine.client() as asked:
            asked.change("POST", "networks", {"name": "second"})
        assert "second" in names()
        killed(service)
    finally:
        syscalls.umount(str(small))


def test_nothing_stays_of_a_copy_that_the_service_was_killed_at(machine: Machine) -> None:
    """It is as large as the registry."""
    slow = ("-e", "trace=fsync", "-e", "inject=fsync:delay_enter=3000000")  # of a copy; the log is synchronised by fdatasync
    service = machine.start("strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", "/dev/null", *slow)
    refused: list[NetcommonError] = []

    def copied() -> None:
        try:
            list(machine.client().backup())
        except NetcommonError as error:
            refused.append(error)

    thread = threading.Thread(target=copied)
    thread.start()
    wait_until(lambda: any(machine.file.parent.glob(".backup-*/*")), 30, "a copy in the making")
    killed(service)
    thread.join()
    assert refused and any(machine.file.parent.glob(".backup-*/*"))
    machine.start()
    assert not any(machine.file.parent.glob(".backup-*"))


def test_more_connections_than_descriptors(machine: Machine) -> None:
    """One too many is refused at once; those that are open go on, and where one has ended there is room again."""
    service = machine.start("prlimit", "--nofile=100:100")

    def room() -> bool:
        with contextlib.suppress(Problem), machine.client() as another:
            return bool(another.get("status").body["networks"] == 2)
        return False

    with machine.client() as asked, contextlib.ExitStack() as stack:
        asked.change("POST", "networks", {"name": "first"})
        for _ in range(150):
            asking = stack.enter_context(socket.socket(socket.AF_UNIX))
            asking.settimeout(10)
            asking.connect(str(machine.socket))
        said = asking.recv(65536)
        assert said.startswith(b"HTTP/1.1 429 ") and b"connections are open" in said and b"Retry-After: 5" in said
        asked.change("POST", "networks", {"name": "second"})
        stack.close()
        wait_until(room, 10, "room")
    service.send_signal(signal.SIGTERM)
    assert service.wait(30) == 0
    assert (machine.root / "stderr").read_text().count("\n") < 10, "nobody is told of each"
