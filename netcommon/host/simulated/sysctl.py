"""/proc/sys of a simulated node (Documentation/networking/ip-sysctl.rst): a tree for each device, made with it and gone with it."""

from __future__ import annotations

import errno
from sys import intern

from netcommon.host.api.host import DONE, Answer
from netcommon.host.linux.procfs import inside
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.requests import SetSysctl

IPV4 = {
    "accept_local": "0",
    "accept_redirects": "1",
    "arp_accept": "0",
    "arp_announce": "0",
    "arp_filter": "0",
    "arp_ignore": "0",
    "arp_notify": "0",
    "forwarding": "0",
    "proxy_arp": "0",
    "proxy_arp_pvlan": "0",
    "route_localnet": "0",
    "rp_filter": "0",
    "send_redirects": "1",
}
IPV6 = {
    "accept_dad": "1",
    "accept_ra": "1",
    "accept_redirects": "1",
    "addr_gen_mode": "0",
    "autoconf": "1",
    "disable_ipv6": "0",
    "forwarding": "0",
    "proxy_ndp": "0",
}
TREES = (("net/ipv4/conf", IPV4), ("net/ipv6/conf", IPV6))
IP_FORWARD = "net/ipv4/ip_forward"
LARGEST = 2**31

#: What the kernel tells of when it changes (RTM_NEWNETCONF); and what the kernel acts upon at once.
TOLD = tuple(f"net/{key}" for key in ("ipv4/conf/forwarding", "ipv4/conf/rp_filter", "ipv4/conf/proxy_arp", "ipv6/conf/forwarding"))
ACTED_UPON = (*TOLD, "net/ipv6/conf/proxy_ndp", "net/ipv6/conf/disable_ipv6")


class Settings:
    """Values by path. ``index_of``: the index of the device that has a name now, 0 if none has.

    ``changed`` is called with the index of a device and the key of a setting of it that is another now, where the kernel takes notice.
    """

    def __init__(self, index_of: Callable[[str], int], changed: Callable[[int, str], None]) -> None:
        self._index_of, self._changed = index_of, changed
        self._values = {IP_FORWARD: "0"}
        self._set: set[str] = set()  #: written since the device was made
        for group in ("all", "default"):
            self.add_device(group)

    def get(self, path: str) -> str | None:
        return self._values.get(path)

    def put(self, path: str, value: str) -> None:
        """Makes a setting that the simulation does not know."""
        self._values[path] = value

    def add_device(self, name: str) -> None:
        for tree, keys in TREES:
            for key, value in keys.items():
                path = intern(f"{tree}/{name}/{key}")  # many nodes of one process have devices of the same names
                self._values[path] = self._values.get(f"{tree}/default/{key}", value)

    def remove_device(self, name: str) -> None:
        for path in self._of(name):
            del self._values[path]
            self._set.discard(path)

    def rename_device(self, name: str, new: str) -> None:
        for path in self._of(name):
            tree, _, key = path.rsplit("/", 2)
            self._values[intern(f"{tree}/{new}/{key}")] = self._values.pop(path)

    def _of(self, name: str) -> list[str]:
        return [path for path in self._values if path.count("/") == 4 and path.split("/")[3] == name]

    def execute(self, request: SetSysctl) -> Answer:
        """Carries it out."""
        return self.write(request.path, request.value, request.index)

    def write(self, path: str, value: str, index: int = 0) -> Answer:
        """Sets one, and those that follow it; with ``index``, only where the device in the path is that one."""
        if not inside(path):
            return Answer(errno.EINVAL, "not a path below /proc/sys")
        if path not in self._values:
            folder = any(known.startswith(path + "/") for known in self._values)
            number = errno.EISDIR if folder else errno.ENOENT
            return Answer(number, f"/proc/sys/{path}: {'Is a directory' if folder else 'No such file or directory'}")
        if index and self._index_of(path.split("/")[3]) != index:
            return Answer(errno.ENODEV, f"/proc/sys/{path}: another device has that name now")
        text = value.strip()
        if self._values[path].lstrip("-").isdigit():
            if not text.lstrip("-").isdigit() or not -LARGEST <= int(text) < LARGEST:
                return Answer(errno.EINVAL, f"/proc/sys/{path}: Invalid argument")
            text = str(int(text))
        before, self._values[path] = self._values[path], text
        self._set.add(path)
        if before != text:
            self._tell(path)
        self._follow(path, text)
        return DONE

    def _tell(self, path: str) -> None:
        tree, device, key = path.rsplit("/", 2)
        if f"{tree}/{key}" in ACTED_UPON and (place := self._index_of(device)):
            self._changed(place, key)

    def _follow(self, path: str, value: str) -> None:
        if path in (IP_FORWARD, "net/ipv4/conf/all/forwarding"):
            self._values[IP_FORWARD] = value
            self._everywhere("net/ipv4/conf", "forwarding", value)
        elif path == "net/ipv6/conf/all/forwarding":
            self._everywhere("net/ipv6/conf", "forwarding", value)
        elif path.startswith("net/ipv4/conf/default/"):
            # devinet_copy_dflt_conf: devices where it was never written follow.
            key = path.rsplit("/", 1)[1]
            for other in self._values:
                if other.startswith("net/ipv4/conf/") and other.endswith("/" + key) and other not in self._set and "/all/" not in other:
                    self._values[other] = value

    def _everywhere(self, tree: str, key: str, value: str) -> None:
        for path, before in self._values.items():
            if path.startswith(tree + "/") and path.endswith("/" + key):
                self._values[path] = value
                if before != value or tree == "net/ipv4/conf":
                    self._tell(path)
