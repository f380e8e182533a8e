"""Serve a mock cloud's registry by processes of its own: an etcd, and the service over it, which are killed and come back as faults say."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from mockcloud import limits
from mockcloud.elsewhere import HTTPS
from mockcloud.etcd import MOST, Etcd
from mockcloud.processes import LOG, NETCOMMON, Process, done, environment, why
from mockcloud.registry import Commands
from mockcloud.served_registry import ServedRegistry, socket_of
from mockcloud.state import ETCD
from netregistry.client import Client
from netregistry.reach import parsed
from runtime.errors import HostRefused, NetcommonError, NicInvalid, escaped
from runtime.folder import Folder

if TYPE_CHECKING:
    from mockcloud.replaced.scheduler import RealTime

STARTS, EACH, MAKING = 60.0, 0.05, 120.0  #: seconds until a service answers, from one question to the next, until a registry is made
LONGEST_PATH = 107  #: bytes of a socket's path (unix(7))
STATE, BEGUN, MADE = "state", b"begun", b"made"  #: a file, and what it says: the registry may be there in part, or is there as a whole


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
    if not registry.startswith(ETCD):
        return 0
    number = registry.removeprefix(ETCD)
    if number not in map(str, range(1, MOST + 1)):
        raise NicInvalid("--registry", registry, f"etcd:NUMBER, from 1 to {MOST} members")
    return int(number)


class OwnService(ServedRegistry):
    """A registry's service over an etcd of so many members, both below the folder of a mock cloud, whose processes they are.

    Raises HostRefused where one of them does not start.
    """

    def __init__(self, scheduler: RealTime, root: str, members: int) -> None:
        self._folder = f"{root}/registry"
        self._kept, self._log = f"{self._folder}/var/lib/netregistry", f"{self._folder}/log"
        self._socket = f"{self._folder}/run/netregistry/socket"
        if os.geteuid() != 0:
            raise HostRefused("the registry's files are for root alone", "run it as root")
        if len(os.fsencode(self._socket)) > LONGEST_PATH:
            raise HostRefused(f"the path of the service's socket is too long: {escaped(self._socket)}", "name a folder with a shorter path")
        self._made = self._begun(f"{root}/etcd", members)
        self._etcd = Etcd(f"{root}/etcd", members)
        self._service: Process | None = None
        try:
            self._etcd.start()
            self._make()
            self._serve()
            super().__init__(scheduler, self._socket)
        except BaseException:
            self._end()
            raise

    def _begun(self, etcd: str, members: int) -> bool:
        """Tell whether the registry is made; note that it is begun, and remove what is left of a command that was killed at that.

        Raises HostRefused where somebody else's folders are in the way, or there is no room.
        """
        with Folder.make(self._folder) as folder:
            found = folder.read(STATE, 16)
            if found == MADE:
                self._as_made(etcd, members)
            for there in filter(os.path.lexists, (etcd, self._kept)):
                if found is None:
                    raise HostRefused(f"{escaped(there)} is there already, and no mock cloud's", "begin the cloud in another folder")
                if found == BEGUN:
                    shutil.rmtree(there, ignore_errors=True)
            if found != MADE:
                limits.check_members(members, etcd)
            if found is None:
                folder.write(STATE, BEGUN, 0o644)
        return found == MADE

    def _as_made(self, etcd: str, members: int) -> None:
        """Raise HostRefused where a registry is made already in an etcd of another number of members."""
        with suppress(FileNotFoundError):
            there = sum(re.fullmatch("m[0-9]+", each.name) is not None and each.is_dir() for each in os.scandir(etcd))
            if there and there != members:
                what = f"the registry in {escaped(self._folder)} is kept in an etcd of {there} members"
                raise HostRefused(what, f"--registry {ETCD}{there} goes on with it, or begin in another folder")
            if there:
                return
        raise HostRefused(f"the etcd of the registry in {escaped(self._folder)} is gone", "put it back, or begin in another folder")

    def _make(self) -> None:
        """Write the settings, which name ports of now, and make the registry if need be. Raises HostRefused."""
        with Folder.make(f"{self._folder}/etc/netcommon") as folder:
            folder.write("config.toml", f'[registry]\nstore = "{self._etcd.address}"\n'.encode(), 0o644)
        with Folder.make(self._folder) as folder, Folder.make(self._kept), Folder.make(f"{self._folder}/run/netregistry"):
            if not self._made:
                done(self._argv("init"), MAKING, environment())
                folder.write(STATE, MADE, 0o644)

    def _argv(self, *words: str) -> list[str]:
        return [*NETCOMMON, "--root", self._folder, "registry", *words]

    def _run(self) -> Process:
        return Process(self._argv("serve"), self._folder, self._log)

    def _serve(self) -> None:
        """Start the service, and return when it answers. Raises HostRefused."""
        self._service = self._run()
        end = time.monotonic() + STARTS
        while not self._answers():
            ended = self._service.ended
            if ended or time.monotonic() >= end:
                what = "has ended" if ended else f"does not answer after {STARTS:g} s"
                raise HostRefused(f"the service of the mock cloud's registry {what}{why(self._log)}", LOG.format(self._log))
            time.sleep(EACH)

    def _answers(self) -> bool:
        with suppress(NetcommonError, OSError), Client(self._socket, "operator:root") as asking:
            return bool(asking.get("").body)
        return False

    def client(self, role: str = "operator", name: str = "root") -> Client:
        """Give a client of the registry's; the operator's is kept open. Raises HostRefused where the service has ended.

        One that has ended by itself is not started again: it would have ended unseen.
        """
        if self._service is None:
            raise HostRefused("the service of the mock cloud's registry does not run", "a fault that is over starts it again")
        if self._service.ended:
            what = f"the service of the mock cloud's registry has ended{why(self._log)}"
            raise HostRefused(what, f"end mockcloud serve and start it again, which starts this one; {LOG.format(self._log)}")
        return super().client(role, name)

    # -- what goes wrong

    def halt(self) -> None:
        """Kill the service."""
        if self._service is not None:
            self._service.kill()
            self._service = None

    def again(self) -> None:
        """Start the service again, where it does not run; nobody waits until it answers. Raises HostRefused."""
        if self._service is None or self._service.ended:
            self._service = self._run()

    def lose(self, members: int, frozen: bool, commands: Commands) -> None:
        """Lose members of the etcd. Raises HostRefused."""
        if commands.lose:
            super().lose(members, frozen, commands)
        else:
            self._etcd.lose(members, frozen)

    def back(self) -> None:
        """Let them come back, and a service that has ended without them. Raises HostRefused."""
        super().back()
        self._etcd.back()
        if self._service is not None:
            self.again()

    def stop(self) -> None:
        """End all of it; what is on disk stays."""
        super().stop()
        self._end()

    def _end(self) -> None:
        self.halt()
        self._etcd.stop()
