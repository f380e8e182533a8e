"""Serve a mock cloud's registry by processes of its own: an etcd, and the service over it, which are killed and come back as faults say."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from mockcloud.elsewhere import HTTPS
from mockcloud.etcd import MOST, Etcd
from mockcloud.processes import NETCOMMON, Process, done, environment
from mockcloud.registry import Commands, ServedRegistry, socket_of
from netregistry.client import Client, Problem
from netregistry.reach import parsed
from runtime.errors import HostRefused, NetcommonError, NicInvalid
from runtime.folder import Folder

if TYPE_CHECKING:
    from mockcloud.replaced.scheduler import RealTime

ETCD = re.compile("etcd:([0-9]+)", re.ASCII)
STARTS, EACH, MADE = 60.0, 0.05, 120.0  #: seconds until a service answers, from one question to the next, until a registry is made


def named(registry: str) -> str:
    """Give what a registry is by the option --registry: "etcd:3", or https://HOST:PORT, or the path of a service's socket.

    Raises NicInvalid, NoAddress.
    """
    if registry.startswith(HTTPS):
        host, port = parsed(registry)
        return f"{HTTPS}[{host}]:{port}" if ":" in host else f"{HTTPS}{host}:{port}"
    return registry if members_of(registry) else socket_of(registry)


def members_of(registry: str) -> int:
    """Give how many members the etcd has that a registry is to be kept in, "etcd:3"; 0 for another sort of registry. Raises NicInvalid."""
    found = ETCD.fullmatch(registry)
    if found is None:
        return 0
    if not 1 <= int(found[1][:9]) <= MOST:
        raise NicInvalid("--registry", registry, f"etcd:NUMBER, from 1 to {MOST} members")
    return int(found[1])


class OwnService(ServedRegistry):
    """A registry's service over an etcd of so many members, both below the folder of a mock cloud, whose processes they are.

    Raises HostRefused where one of them does not start.
    """

    def __init__(self, scheduler: RealTime, root: str, members: int) -> None:
        self._folder = f"{root}/registry"
        self._socket = f"{self._folder}/run/netregistry/socket"
        self._etcd = Etcd(f"{root}/etcd", members)
        self._service: Process | None = None
        try:
            self._etcd.start()
            self._begin()
            super().__init__(scheduler, self._socket)
        except BaseException:
            self._end()
            raise

    def _begin(self) -> None:
        """Start the service, over a registry that is made if need be."""
        with Folder.make(f"{self._folder}/etc/netcommon") as folder:
            folder.write("config.toml", f'[registry]\nstore = "{self._etcd.address}"\n'.encode(), 0o644)
        with Folder.make(f"{self._folder}/var/lib/netregistry") as kept, Folder.make(f"{self._folder}/run/netregistry"):
            if kept.read("made", 1) is None:
                done(self._argv("init"), MADE, environment())
                kept.write("made", b"", 0o644)
        self._serve()

    def _argv(self, *words: str) -> list[str]:
        return [*NETCOMMON, "--root", self._folder, "registry", *words]

    def _serve(self) -> None:
        log = f"{self._folder}/log"
        self._service = Process(self._argv("serve"), self._folder, log)
        end = time.monotonic() + STARTS
        while not self._answers():
            ended = self._service.ended
            if ended or time.monotonic() >= end:
                what = "has ended" if ended else f"does not answer after {STARTS:g} s"
                raise HostRefused(f"the service of the mock cloud's registry {what}", f"{log} says why")
            time.sleep(EACH)

    def _answers(self) -> bool:
        with suppress(NetcommonError, Problem, OSError), Client(self._socket, "operator:root") as asking:
            return bool(asking.get("").body)
        return False

    # -- what goes wrong

    def halt(self) -> None:
        """Kill the service."""
        if self._service is not None:
            self._service.kill()
            self._service = None

    def again(self) -> None:
        """Start the service again. Raises HostRefused."""
        if self._service is None:
            self._serve()

    def lose(self, members: int, frozen: bool, commands: Commands) -> None:
        """Lose members of the etcd. Raises HostRefused."""
        if commands.lose:
            super().lose(members, frozen, commands)
        else:
            self._etcd.lose(members, frozen)

    def back(self) -> None:
        """Let them come back. Raises HostRefused."""
        super().back()
        self._etcd.back()

    def stop(self) -> None:
        """End all of it; what is on disk stays."""
        super().stop()
        self._end()

    def _end(self) -> None:
        self.halt()
        self._etcd.stop()
