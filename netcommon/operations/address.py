"""Addresses of the NIC's own device (ip-address(8)): what the guest reaches the node by."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Address
from netcommon.host.api.requests import AddAddress, DeleteAddress
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, IP_FAMILIES, OURS, Operation
from netcommon.operations.link import device_link, link_of
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


class DeviceAddressFields(NamedTuple):
    """The fields of DeviceAddress."""

    family: int
    device: str
    address: str
    length: int
    ifindex: int = 0
    found: str = ABSENT


class DeviceAddress(DeviceAddressFields, Operation):
    """The device has the address, without a route to its prefix. Goes with the device; in IPv6 whenever that goes down too.

    Kernels before 5.18 keep no mark (IFA_PROTO): there what looks foreign is ours if the NIC's record says so.
    """

    __slots__ = ()
    KIND = "address"
    REPAIRED = "addresses of the device"
    MIGRATION = "of the tap alone: every node is the gateway of its own guests"
    CHOSEN = frozenset({"ifindex", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    def wanted(self) -> Address:
        """The address as the kernel has it."""
        return Address(self.family, self.address, self.length, self.ifindex)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self._replace(ifindex=device_link(view, self.device).index)
        there = made._there(view)
        found = ABSENT if there is None else OURS if (there.protocol, there.length) == (PROTOCOL, self.length) else FOREIGN
        return [made._replace(found=found)]

    def _there(self, view: View) -> Address | None:
        """Give the same address on the device, whose ever. Of IPv6 it is there once, whatever its length: the kernel would change that."""
        like = (one for one in view.addresses(self.ifindex) if (one.family, one.address) == (self.family, self.address))
        return next((one for one in like if self.family == AF_INET6 or one.length == self.length), None)

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddAddress(self.wanted())]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        return "" if self._there(view) else "the address is gone"

    def revert(self, view: View) -> Sequence[Request]:
        if self.found == FOREIGN or link_of(view, self.ifindex, self.device) is None:
            return []
        there = self._there(view)
        return [DeleteAddress(self.wanted())] if there is not None and there.length == self.length else []

    def place(self) -> str:
        return f"address {self.ifindex} {self.address}"

    def sentence(self) -> str:
        return f"The host's side of the device has the address {self.address}, the guest's gateway."

    def describe(self) -> str:
        words = "noprefixroute" if self.family == AF_INET else "nodad noprefixroute"
        return f"ip address add {self.address}/{self.length} dev {self.device} {words} proto {PROTOCOL}"

    def undo(self) -> str:
        return f"ip address del {self.address}/{self.length} dev {self.device}"
