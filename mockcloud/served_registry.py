"""Reach the service of a registry, which is a process of its own, by its socket."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from mockcloud.limits import let_open
from mockcloud.processes import done
from mockcloud.registry import Reached
from mockcloud.replaced.transport.sockets import Sockets
from netregistry.client import Client, served
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from mockcloud.registry import Commands
    from mockcloud.replaced.scheduler import RealTime

COMMANDS = 60.0  #: seconds that a command may take


class ServedRegistry(Reached):
    """Reach a registry whose service listens on a UNIX socket, by the clock of this machine. Raises HostRefused where none does."""

    def __init__(self, scheduler: RealTime, path: str) -> None:
        if not served(path):
            raise HostRefused(f"no registry is served on {escaped(path)}", "netcommon registry serve serves one")
        self._path = path
        self._use(scheduler, path, Client(path, "operator:root"))

    def _use(self, scheduler: RealTime, path: str, operator: Client) -> None:
        """Use a way for the nodes, and a client for the operator, which is kept open. ``path``: as Sockets."""
        let_open()
        self.wire, self._operator = Sockets(scheduler, path), operator
        self._loop = scheduler.loop()
        self._backs: list[tuple[str, ...]] = []  #: commands that bring back what others have ended

    @property
    def now(self) -> float:
        """Give seconds since the epoch by the nodes' clock: this machine's, when somebody was last given a turn."""
        return self._loop.wall()

    def client(self, role: str = "operator", name: str = "root") -> Client:
        """Give a client of the registry's; the operator's is kept open. Raises HostRefused."""
        return self._operator if (role, name) == ("operator", "root") else Client(self._path, f"{role}:{name}")

    def lose(self, members: int, frozen: bool, commands: Commands) -> None:
        if not commands.lose:
            raise HostRefused("it is not known how to end a member of the registry's etcd", "--lose COMMAND and --back COMMAND say how")
        try:
            done(commands.lose, COMMANDS)
        except HostRefused:
            with suppress(HostRefused):
                done(commands.back, COMMANDS)  # a command that has failed may have ended the member all the same
            raise
        self._backs.append(commands.back)

    def back(self) -> None:
        while self._backs:
            done(self._backs.pop(), COMMANDS)

    def stop(self) -> None:
        self._operator.close()


def socket_of(url: str) -> str:
    """Give the path of the UNIX socket that is named: a path, or unix:PATH. Raises NicInvalid."""
    path = url.removeprefix("unix:")
    if not os.path.isabs(path) or not path.isprintable():
        raise NicInvalid("--registry", url, "the path of the socket of a service on this machine, such as /run/netregistry/socket")
    return os.path.normpath(path)
