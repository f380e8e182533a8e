"""Run an etcd for a mock cloud alone: members are processes of its own, which end with it, and can be killed, stopped and started."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import time
from contextlib import ExitStack
from typing import Any

from mockcloud.processes import LOG, Process, why
from runtime.errors import HostRefused
from runtime.folder import Folder

HOST = "127.0.0.1"
MOST = 5  #: members
STARTS, ANSWERS = 60.0, 2.0  #: seconds until members have a leader, and until one has answered
EACH = 0.05  #: seconds from one question to the next


class Member:
    """One member. ``port``: of the loopback's, on which its clients ask."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.process: Process | None = None

    def ask(self, path: str) -> dict[str, Any]:
        """Ask it by its gateway; nothing where it does not answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWERS)
        try:
            connection.request("POST", f"/v3/{path}", "{}")
            found = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return found if isinstance(found, dict) else {}

    @property
    def ended(self) -> bool:
        """Tell whether it does not run."""
        return self.process is None or self.process.ended

    def kill(self) -> None:
        """End it; what it has on disk stays."""
        if self.process is not None:
            self.process.kill()
            self.process = None


class Etcd:
    """So many members below a folder, which hear each other by sockets there. Raises HostRefused where there is no etcd."""

    def __init__(self, folder: str, members: int) -> None:
        program = shutil.which("etcd")
        if program is None:
            raise HostRefused("there is no program etcd on this machine", "apt install etcd-server, or put it where PATH leads to")
        self._program, self._folder = program, folder
        with Folder.make(folder):
            pass
        self.members = [Member(f"m{number}", port) for number, port in enumerate(free_ports(members), 1)]
        self._lost: list[Member] = []

    @property
    def address(self) -> str:
        """Give the address that settings of a registry name it by."""
        return f"etcd://{','.join(f'{HOST}:{each.port}' for each in self.members)}"

    def start(self) -> None:
        """Start all, and return when all have a leader. Raises HostRefused."""
        self._run()
        end = time.monotonic() + STARTS
        while late := [each for each in self.members if not int(each.ask("maintenance/status").get("leader", 0))]:
            ended = next((each for each in late if each.ended), None)
            if ended is not None or time.monotonic() >= end:
                name = (ended or late[0]).name
                what = "has ended" if ended else f"has no leader after {STARTS:g} s"
                log = f"{self._folder}/{name}.log"
                raise HostRefused(f"member {name} of the mock cloud's etcd {what}{why(log)}", LOG.format(log))
            time.sleep(EACH)

    def _run(self) -> None:
        """Start those that do not run. Raises HostRefused."""
        for each in self.members:
            if not each.ended:
                continue
            peers = ",".join(f"{other.name}={_peer(other)}" for other in self.members)
            client = f"http://{HOST}:{each.port}"
            argv = [self._program, "--name", each.name, "--data-dir", each.name, "--initial-cluster", peers]
            argv += ["--listen-client-urls", client, "--advertise-client-urls", client]
            argv += ["--listen-peer-urls", _peer(each), "--initial-advertise-peer-urls", _peer(each)]
            each.process = Process(argv, self._folder, f"{self._folder}/{each.name}.log")

    def lose(self, number: int, frozen: bool) -> None:
        """Kill so many members that run, or stop them without an end; the one that leads first. Raises HostRefused."""
        there = [each for each in self.members if each not in self._lost]
        if number > len(there):
            raise HostRefused(f"{len(there)} members of the mock cloud's etcd run", f"lose {len(there)} at most")
        status = {each.name: each.ask("maintenance/status") for each in there}
        leads = {name for name, said in status.items() if said.get("leader") and said["leader"] == said.get("header", {}).get("member_id")}
        gone = sorted(there, key=lambda each: each.name not in leads)[:number]
        for each in gone:
            if not frozen:
                each.kill()
            elif each.process is not None:
                each.process.freeze()
        self._lost += gone

    def back(self) -> None:
        """Let those that are lost come back, with what they have on disk; nobody waits until they take part. Raises HostRefused."""
        for each in self._lost:
            if each.process is not None:
                each.process.thaw()
        self._lost.clear()
        self._run()

    def stop(self) -> None:
        """Kill all."""
        for each in self.members:
            each.kill()


def _peer(member: Member) -> str:
    """Give where others reach a member: etcd makes the socket in its working directory, and wants something like a port."""
    return f"unix://{member.name}.sock:1"


def free_ports(number: int) -> list[int]:
    """Give ports of the loopback's that nobody has now."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in made:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in made]
