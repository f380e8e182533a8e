"""The MAC of a routed guest's tap: the same on every node, since the guest goes on sending to it after a migration."""

from __future__ import annotations

from netcommon.host.api.requests import SetLink
from netcommon.operations.base import Operation, before
from netcommon.operations.link import ADDRESS, device_link, link_of, marked
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


class SteadyAddressFields(NamedTuple):
    """The fields of SteadyAddress."""

    device: str
    wanted: str
    ifindex: int = 0
    kept: str = ""  #: the address that stays instead; "" if none does
    was: str = ""


class SteadyAddress(SteadyAddressFields, Operation):
    """The address of the host's side. A guest keeps it in its neighbour cache for each address it talks to: 25 to 45 s in the lab.

    A tap that others had brought up when we first saw it is in use, under its address of then: that one stays, for the same reason, unless
    adopt can tell the guest of the other.
    """

    __slots__ = ()
    KIND = "steady-address"
    REPAIRED = "the host's side has the same MAC for every NIC"
    MIGRATION = "of the tap alone; the same on both nodes, so that the guest's neighbour cache stays right"
    CHOSEN = frozenset({"ifindex", "kept", "was"})
    BEFORE = frozenset({"kept", "was"})

    @property
    def value(self) -> str:
        """The address that it has."""
        return self.kept or self.wanted

    def of_neighbours(self) -> bool:
        return True

    def taken_over(self, view: View) -> Operation:
        return self._replace(kept="")

    def taking_over(self, view: View, before: Operation) -> Sequence[Request]:
        return self.apply() if self.differs(view) else ()

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        kept = link.address if link.up and not marked(link) else ""
        return [self._replace(ifindex=link.index, kept=kept, was=link.address)]

    def apply(self) -> Sequence[Request]:
        return [SetLink(self.ifindex, address=self.value)]

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        if link is None:
            return "the device is gone"
        return "" if link.address == self.value else f"it is {link.address}"

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device)
        return [SetLink(self.ifindex, address=self.was)] if link and link.address == self.value != self.was else []

    def place(self) -> str:
        return f"link {self.ifindex} {ADDRESS}"

    def sentence(self) -> str:
        return "The host's side keeps its MAC, so that the guest goes on knowing its gateway."

    def describe(self) -> str:
        return f"ip link set dev {self.device} address {self.value}"

    def undo(self) -> str:
        return f"ip link set dev {self.device} address {before(self.ifindex, self.was)}"
