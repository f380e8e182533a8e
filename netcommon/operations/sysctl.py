"""Per-device network settings of the kernel (Documentation/networking/ip-sysctl.rst), on the NIC's own device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netcommon.host.base import View
from netcommon.host.facts import AF_INET
from netcommon.host.requests import Request, SetSysctl
from netcommon.operations.base import Operation, before
from netcommon.operations.link import device_link, link_of


class DeviceSysctlFields(NamedTuple):
    """The fields of DeviceSysctl."""

    family: int
    device: str
    name: str
    value: str
    ifindex: int = 0
    was: str = ""


class DeviceSysctl(DeviceSysctlFields, Operation):
    """net.ipv4.conf.DEVICE.NAME, or net.ipv6, is ``value``. Goes with the device. Where the kernel has no such file: nothing."""

    __slots__ = ()
    KIND = "sysctl"
    CHOSEN = frozenset({"ifindex", "was"})
    BEFORE = frozenset({"was"})

    @property
    def path(self) -> str:
        """Relative to /proc/sys; with slashes, since a device may have dots in its name."""
        return f"net/{'ipv4' if self.family == AF_INET else 'ipv6'}/conf/{self.device}/{self.name}"

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link, was = device_link(view, self.device), view.sysctl(self.path)
        return [] if was is None else [self._replace(ifindex=link.index, was=was)]

    def apply(self) -> Sequence[Request]:
        return [SetSysctl(self.path, self.value)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        now = view.sysctl(self.path)
        return "" if now == self.value else f"it is {now}"

    def revert(self, view: View) -> Sequence[Request]:
        if link_of(view, self.ifindex, self.device) is None or self.was == self.value or view.sysctl(self.path) != self.value:
            return []
        return [SetSysctl(self.path, self.was)]

    def describe(self) -> str:
        return f"echo {self.value} >/proc/sys/{self.path}"

    def undo(self) -> str:
        return f"echo {before(self.ifindex, self.was)} >/proc/sys/{self.path}"
