"""Be the host of a mock node whose kernel is the running one, in a namespace of its own: the Linux host that real nodes have.

Files of others and daemons are simulated: those of this machine are no mock node's.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

from mockcloud.killing import Killed
from netcommon.host.api.host import NOT_TRIED, Answer, Identity
from netcommon.host.linux.host import LinuxHost
from netcommon.host.linux.snapshot import Snapshot
from netcommon.host.linux.views import LiveView
from netcommon.host.simulated.local import SimulatedDaemons, SimulatedFiles
from runtime.errors import HostRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mockcloud.namespace.place import Place
    from netcommon.host.api.facts import Daemon, File, Link
    from netcommon.host.api.host import Service, View
    from netcommon.host.api.requests import Request
    from runtime.paths import Paths

TUN = "/dev/net/tun"
TUNSETIFF, TUNSETIFINDEX = 0x400454CA, 0x400454DA  #: <linux/if_tun.h>
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000


class Files(SimulatedFiles):
    """Files as the Linux host's view asks for them."""

    def file(self, folder: str, name: str) -> File | None:
        return self.contents.get((folder, name))

    def files(self) -> Sequence[File]:
        return [each for each in self.contents.values() if each.owner]

    def folder(self, folder: str) -> bool:
        return self.there(folder)


class Daemons(SimulatedDaemons):
    """Daemons as that view asks for them."""

    def daemon(self, name: str) -> Daemon | None:
        return self.running.get(name)


class NamespaceView(LiveView):
    """The view of such a host: of its own /sys and daemons."""

    def __init__(self, host: NamespaceHost) -> None:
        super().__init__(host)
        self._host = host

    @property
    def net(self) -> str:
        return f"/proc/self/fd/{self._host.place.sysfs}/class/net"

    def program(self, name: str) -> str:
        return self._host.simulated_daemons.programs.get(name, "")


class NamespaceHost(LinuxHost):
    """The host of a node. ``fail``: see netcommon.host.simulated.machine; ``boot``, ``number``: that it says it is of.

    All is done inside of ``place``; raises RuntimeError elsewhere.
    """

    def __init__(self, paths: Paths, boot: str, number: int, place: Place) -> None:
        super().__init__(paths)
        self.place = place
        self.fail: Callable[[Request], Answer | None] = lambda _: None
        self.simulated_files, self.simulated_daemons = Files(), Daemons()
        self._identity = Identity(boot, number)
        self._taps: dict[str, int] = {}

    def identity(self) -> Identity:
        return self._identity

    # -- inside of its namespace

    def view(self) -> LiveView:
        self.place.check()
        return NamespaceView(self)

    def snapshot(self) -> View:
        return Snapshot(self.view())

    def nftables_port(self) -> int:
        self.place.check()
        return super().nftables_port()

    def service(self, name: str) -> Service:
        self.place.check()
        return super().service(name)

    def files(self) -> Files:  # type: ignore[override]
        return self.simulated_files

    def daemons(self) -> Daemons:  # type: ignore[override]
        return self.simulated_daemons

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        self.place.check()
        said = self._said([requests], stop)
        if not any(said):
            return super().execute(requests, stop)
        answers: list[Answer] = []
        for request, instead in zip(requests, said, strict=True):
            if stop and any(not each.ok for each in answers):
                answers.append(NOT_TRIED)
            else:
                answers += [instead] if instead is not None else super().execute([request], stop)
        return answers

    def execute_each(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[list[Answer]]:
        self.place.check()
        if any(self._said(lists, stop)):
            return [self.execute(each, stop) for each in lists]
        return super().execute_each(lists, stop)

    def _said(self, lists: Sequence[Sequence[Request]], stop: bool) -> list[Answer | None]:
        """Ask ``fail`` about each request. Who is killed before one of them has done those before it, and nothing more."""
        said: list[Answer | None] = []
        for place, requests in enumerate(lists):
            for number, request in enumerate(requests):
                try:
                    said.append(self.fail(request))
                except Killed:
                    for done in (*lists[:place], requests[:number]):
                        super().execute(done, stop)
                    raise
        return said

    # -- what a hypervisor and an administrator do

    def add_tap(self, name: str, holder: int = 0, *, index: int = 0) -> Link:
        """Make a tap and hold it open, as a process of the node would. Raises HostRefused."""
        with self.place:
            try:
                descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    if index:
                        fcntl.ioctl(descriptor, TUNSETIFINDEX, struct.pack("i", index))
                    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode("ascii"), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
                except OSError:
                    os.close(descriptor)
                    raise
            except OSError as error:
                raise HostRefused(f"no tap {name}: {error.strerror}", f"a kernel with {TUN}") from None
            self._taps[name] = descriptor
            made = self.view().link(name)
        if made is None:
            raise HostRefused(f"the tap {name} that was made is gone")
        return made

    def let_go(self, name: str) -> None:
        """Let the process that holds a tap end: the tap goes."""
        if name in self._taps:
            os.close(self._taps.pop(name))

    def end(self) -> None:
        """Close all; the namespace is gone then, with what is in it."""
        self.close()
        for name in list(self._taps):
            self.let_go(name)
        self.place.close()
