"""An etcd of one member or several, of Debian's program, in the namespace of who starts it: to be killed, stopped, and started again."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from netregistry.stores.etcd_place import Endpoint, Place
from tests.support import bootstrap
from tests.support.netns import wait_until

HOST = "127.0.0.1"
GROUP = 61000  #: of the first member's process, where members can be parted
PREFIX = b"netcommon/registry/"


def program() -> str:
    return str(bootstrap.unpacked("etcd-server") / "usr/bin/etcd")


class Member:
    """One member: its folder, its two ports, and the process, if it runs."""

    def __init__(self, name: str, folder: Path, client: int, peer: int) -> None:
        self.name, self.folder, self.client, self.peer = name, folder, client, peer
        self.process: subprocess.Popen[bytes] | None = None

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def stands_still(self) -> bool:
        """Tell whether all its threads have stopped: each goes on until the signal has reached it."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir() if self.process is not None else ()
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    def kill(self) -> None:
        """End it without a warning, also while it is stopped; what it has on disk stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None


class Cluster:
    """An etcd of so many members. ``tls``: the folder of support/authority.py; ``more``: arguments of the program.

    ``parts``: its members can be cut off from each other (``parted``).
    """

    def __init__(self, folder: Path, members: int, tls: Path | None = None, more: Sequence[str] = (), parts: bool = False) -> None:
        self.folder, self._tls, self._more, self._parts = folder, tls, list(more), parts
        self._marked = False
        self._emptied = 0  #: the revision at which it held nothing last
        ports = free_ports(2 * members)
        self.members = [Member(f"m{number}", folder / f"m{number}", *ports[2 * number : 2 * number + 2]) for number in range(members)]

    @property
    def place(self) -> Place:
        files = {name: str(self._tls / f"{name}.pem") for name in ("ca", "cert", "key")} if self._tls else {}
        return Place(tuple(Endpoint(HOST, member.client) for member in self.members), **files)

    @property
    def url(self) -> str:
        files = "&".join(f"{name}={self._tls / name}.pem" for name in ("ca", "cert", "key")) if self._tls else ""
        return f"etcd://{','.join(f'{HOST}:{member.client}' for member in self.members)}" + (f"?{files}" if files else "")

    def start(self, *which: Member) -> None:
        """Start members, all of them by default, and wait until each that runs has a leader."""
        if self._parts and not self._marked:
            self._mark()
        for member in which or self.members:
            self.run(member)
        for member in self.members:
            if member.process is not None:
                wait_until(lambda member=member: self.leader_of(member), 60, f"{member.name} has a leader")  # type: ignore[misc]

    def run(self, member: Member) -> None:
        """Start a member, without waiting for anything."""
        scheme = "https" if self._tls else "http"
        peers = ",".join(f"{each.name}=http://{HOST}:{each.peer}" for each in self.members)
        argv = [program(), "--name", member.name, "--data-dir", str(member.folder), "--initial-cluster", peers]
        for name, url in (("client", f"{scheme}://{HOST}:{member.client}"), ("peer", f"http://{HOST}:{member.peer}")):
            argv += [f"--listen-{name}-urls", url, "--advertise-client-urls" if name == "client" else "--initial-advertise-peer-urls", url]
        if self._tls:
            argv += ["--cert-file", f"{self._tls}/server.pem", "--key-file", f"{self._tls}/server-key.pem"]
            argv += ["--trusted-ca-file", f"{self._tls}/ca.pem", "--client-cert-auth"]
        member.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        group = GROUP + self.members.index(member) if self._parts else None
        with open(self.folder / f"{member.name}.log", "ab") as log:
            member.process = subprocess.Popen([*argv, *self._more], stdout=log, stderr=log, group=group)

    def _mark(self) -> None:
        """Mark each connection between two members: the one that began it is known by its group, the other by its port."""
        rules = [f"add table inet {self._table}", f"add set inet {self._table} cut {{ type mark; }}"]
        rules.append(f"add chain inet {self._table} output {{ type filter hook output priority 0; }}")
        for one, other in itertools.permutations(self.members, 2):
            known = f"ct state new meta skgid {GROUP + self.members.index(one)} tcp dport {other.peer}"
            rules.append(f"add rule inet {self._table} output {known} ct mark set {self._between(one, other)}")
        rules.append(f"add rule inet {self._table} output ct mark @cut counter drop")
        nft(rules)
        self._marked = True

    @property
    def _table(self) -> str:
        return f"etcd{self.members[0].peer}"

    def _between(self, one: Member, other: Member) -> int:
        return 1 << self.members.index(one) | 1 << self.members.index(other)

    @contextlib.contextmanager
    def parted(self, *parts: Sequence[Member]) -> Iterator[None]:
        """Let members of different parts neither hear nor reach each other while the context lasts; clients reach all of them."""
        sides = itertools.combinations(parts, 2)
        marks = sorted({self._between(one, other) for left, right in sides for one in left for other in right})
        elements = f"inet {self._table} cut {{ {', '.join(map(str, marks))} }}"
        nft([f"add element {elements}"])
        try:
            yield
        finally:
            nft([f"delete element {elements}"])

    def stop(self) -> None:
        """Kill all."""
        for member in self.members:
            member.kill()

    def anew(self) -> None:
        """Hold nothing, and have all members run, whatever a test has done to them."""
        for member in self.members:
            member.signal(signal.SIGCONT)
        gone = [member for member in self.members if member.process is None]
        if gone:
            self.folder.mkdir(exist_ok=True)
            self.start(*gone)
        wait_until(self._cleared, 60, "it holds nothing")

    def _cleared(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
            self._emptied = int(self.ask("kv/deleterange", {"key": "AA==", "range_end": "AA=="})["header"]["revision"])
            return True
        return False

    def clear(self) -> None:
        """Remove all keys, of whomever."""
        self.ask("kv/deleterange", {"key": "AA==", "range_end": "AA=="})

    def leader(self) -> Member:
        """Give the member that leads."""
        found: list[Member] = []

        def led() -> bool:
            found.extend(member for member in self.members if member.process is not None and self.leader_of(member) == self.id_of(member))
            return bool(found)

        wait_until(led, 30, "a member leads")
        return found[0]

    def id_of(self, member: Member) -> str:
        return str(self._status(member).get("header", {}).get("member_id", "?"))

    def leader_of(self, member: Member) -> str:
        """Give the id of the leader that a member knows; "" for none."""
        return str(self._status(member).get("leader", ""))

    def _status(self, member: Member) -> dict[str, Any]:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            return self.ask("maintenance/status", {}, member, 2.0)
        return {}

    def ask(self, path: str, body: dict[str, Any], member: Member | None = None, seconds: float = 10.0, token: str = "") -> dict[str, Any]:
        """Ask one member by its gateway, by no code of the registry's; give the answer, also of a refusal."""
        context = None
        if self._tls:
            context = ssl.create_default_context(cafile=f"{self._tls}/ca.pem")
            context.load_cert_chain(f"{self._tls}/cert.pem", f"{self._tls}/key.pem")
        port = (member or self.members[0]).client
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(HOST, port, timeout=seconds, context=context)
            if context
            else http.client.HTTPConnection(HOST, port, timeout=seconds)
        )
        with contextlib.closing(connection):
            connection.request("POST", f"/v3/{path}", json.dumps(body), {"Authorization": token} if token else {})
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found

    def keys(self, member: Member | None = None) -> dict[str, bytes]:
        """Give all keys and values of the registry that etcd holds, as it says them itself."""
        found = self.ask("kv/range", {"key": text(PREFIX), "range_end": text(b"netcommon/registry0")}, member)
        pairs = ((base64.b64decode(each["key"]), base64.b64decode(each.get("value", ""))) for each in found.get("kvs", []))
        return {key.removeprefix(PREFIX).decode(): value for key, value in pairs}

    def history(self, file: Path, member: Member) -> None:
        """Write all that etcd has held of the registry since it was emptied (``anew``) to a file with the tables of SQLite's.

        A member tells it by itself, by no code of the registry's. Raises AssertionError where a compaction has taken some of it.
        """
        newest = int(self.ask("kv/range", {"key": text(b"a")}, member)["header"]["revision"])
        request = json.dumps({"create_request": {"key": "AA==", "range_end": "AA==", "start_revision": str(self._emptied + 1)}}).encode()
        rows: list[tuple[int, int, str, bytes | None]] = []
        with socket.create_connection((HOST, member.client), 30) as connection, connection.makefile("rb") as lines:
            head = f"POST /v3/watch HTTP/1.0\r\nContent-Length: {len(request)}\r\n\r\n"
            connection.sendall(head.encode() + request)
            at = 0
            for line in lines:
                told = json.loads(line)["result"] if line.startswith(b"{") else {}
                assert not told.get("canceled"), line
                for event in told.get("events", []):
                    pair = event["kv"]
                    at, key = int(pair["mod_revision"]), base64.b64decode(pair["key"])
                    value = None if event.get("type") == "DELETE" else base64.b64decode(pair.get("value", ""))
                    if key.startswith(PREFIX):
                        rows.append((at, len(rows), key.removeprefix(PREFIX).decode(), value))
                if at >= newest:
                    break
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE items (key TEXT, value BLOB)")
            database.execute("CREATE TABLE versions (revision INTEGER, place INTEGER, key TEXT, value BLOB)")
            database.executemany("INSERT INTO versions VALUES (?, ?, ?, ?)", rows)
            database.executemany("INSERT INTO items VALUES (?, ?)", self.keys(member).items())
            database.commit()

    def said(self) -> bytes:
        """Give what etcd says of the registry in it; b"" where it says nothing."""
        (found,) = self.ask("kv/range", {"key": text(b"netcommon/epoch")}).get("kvs", [{}])
        return base64.b64decode(found.get("value", ""))

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all, and remove what they had on disk."""
        self.stop()
        if self._marked:
            nft([f"delete table inet {self._table}"])
            self._marked = False
        for member in self.members:
            shutil.rmtree(member.folder, ignore_errors=True)


@contextlib.contextmanager
def stopped(*members: Member) -> Iterator[None]:
    """Let members stand still (SIGSTOP) while the context lasts."""
    for member in members:
        member.signal(signal.SIGSTOP)
    for member in members:
        wait_until(member.stands_still, 10, f"{member.name} stands still")
    try:
        yield
    finally:
        for member in members:
            member.signal(signal.SIGCONT)


@contextlib.contextmanager
def unheard(member: Member) -> Iterator[None]:
    """Let the others hear nothing of a member while the context lasts: what it listens on for them is dropped. Clients still reach it."""
    rules = ["add table inet unheard", "add chain inet unheard output { type filter hook output priority 0; }"]
    nft([*rules, *(f"add rule inet unheard output tcp {side} {member.peer} drop" for side in ("dport", "sport"))])
    try:
        yield
    finally:
        nft(["delete table inet unheard"])


def nft(lines: Sequence[str]) -> None:
    """Let the packet filter do several things at once."""
    subprocess.run(["nft", "-f", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def free_ports(count: int) -> list[int]:
    """Give ports that nobody has now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
