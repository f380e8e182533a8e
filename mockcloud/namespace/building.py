"""Build the host of a mock node in a namespace: the devices, addresses and settings that the simulated one of its profile has."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from pyroute2 import IPRoute, NetlinkError

from mockcloud.hardware import FORWARDING
from mockcloud.namespace.host import NamespaceHost
from mockcloud.namespace.place import Place
from netcommon.host.api.requests import SetSysctl
from runtime.errors import HostRefused
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.hardware import Admin
    from netcommon.host.api.facts import Link
    from netcommon.host.simulated.host import MemoryHost
    from runtime.paths import Paths

TABLES = "mockcloud.conf"
PLAIN = "dummy", "ifb"  #: what stands for hardware: the first kind that the kernel has
#: What a node's own /proc has of this machine's: they show the namespace of who looks.
SHOWN = ("sys", "thread-self")


def built(like: MemoryHost, paths: Paths, tables: Mapping[str, int]) -> NamespaceHost:
    """Make a namespace with what the host ``like`` has, under the same names and indices. Raises HostRefused."""
    identity = like.identity()
    _write_tables(paths, tables)
    _show_proc(paths)
    place = Place()
    host = NamespaceHost(paths, identity.boot, identity.netns, place)
    host.simulated_files.folders |= like.files.folders
    try:
        with place:
            _build(host, like)
    except NetlinkError as error:
        host.end()
        raise HostRefused(f"a mock node's devices cannot be made: {error}", "a kernel with bridges and dummy devices") from None
    except BaseException:
        host.end()
        raise
    return host


def _build(host: NamespaceHost, like: MemoryHost) -> None:
    kernel = like.kernel
    with IPRoute() as netlink:
        netlink.link("set", index=1, state="up")
        for link in kernel.links.values():
            if link.name != "lo":
                _add(netlink, link, link.index in kernel.assigned or not link.kind)
        for address in kernel.addresses:
            netlink.addr("add", index=address.index, address=address.address, prefixlen=address.length)
        for link in kernel.links.values():
            if link.master:  # before it is up: a bridge takes the MAC of a port, and its address of IPv6 is made of that
                netlink.link("set", index=link.index, master=link.master)
        for link in kernel.links.values():
            if link.up:
                netlink.link("set", index=link.index, state="up")
    for setting in FORWARDING:
        (said,) = host.execute([SetSysctl(f"net/{setting}", "1")], stop=True)
        if not said.ok:
            raise HostRefused(f"a mock node's setting cannot be made: {said.text}")


def _add(netlink: IPRoute, link: Link, addressed: bool) -> None:
    more = {"address": link.address} if addressed else {}
    if link.kind:
        netlink.link("add", ifname=link.name, kind=link.kind, index=link.index, **more)
    else:
        _plain(netlink, ifname=link.name, index=link.index, **more)


def _plain(netlink: IPRoute, **given: object) -> None:
    for kind in PLAIN:
        try:
            netlink.link("add", kind=kind, **given)
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP or kind == PLAIN[-1]:
                raise
        else:
            return


def add_own(host: NamespaceHost, name: str, own: Admin) -> None:
    """Give a node a NIC of its own. Raises HostRefused."""
    with host.place, IPRoute() as netlink:
        try:
            _plain(netlink, ifname=name, address=own.mac)
            (index,) = netlink.link_lookup(ifname=name)
            netlink.addr("add", index=index, address=own.address, prefixlen=own.length)
            netlink.link("set", index=index, state="up")
        except NetlinkError as error:
            raise HostRefused(f"no device {name}: {error}") from None


def remove(host: NamespaceHost, name: str) -> None:
    """Remove a device of a node, if it is there."""
    with host.place, IPRoute() as netlink:
        for index in netlink.link_lookup(ifname=name):
            netlink.link("del", index=index)


def _write_tables(paths: Paths, tables: Mapping[str, int]) -> None:
    with Folder.make(f"{paths.iproute2[-1]}/rt_tables.d") as folder:
        folder.write(TABLES, "".join(f"{number} {name}\n" for name, number in tables.items()).encode("ascii"), 0o644)


def _show_proc(paths: Paths) -> None:
    with Folder.make(paths.proc):
        pass
    for name in SHOWN:
        if not os.path.islink(f"{paths.proc}/{name}"):
            os.symlink(f"/proc/{name}", f"{paths.proc}/{name}")
