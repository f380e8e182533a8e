"""Rate limits of a NIC by traffic control on its device (tc-tbf(8), tc-police(8)): what the guest receives, and what it sends."""

from __future__ import annotations

from netcommon.host.api.requests import AddClsact, DeleteClsact, DeletePolicer, DeleteTbf, SetPolicer, SetTbf
from netcommon.host.rtnetlink.encode_tc import HANDLE, PREFERENCE, ticks
from netcommon.operations.base import Operation
from netcommon.operations.link import device_link, link_of
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Filter
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


class ShaperFields(NamedTuple):
    """The fields of Shaper."""

    device: str
    rate: int  #: bits a second
    burst: int  #: bytes
    limit: int  #: bytes that wait for their turn
    ifindex: int = 0


class Shaper(ShaperFields, Operation):
    """The device sends, and so the guest receives, at most ``rate``: a token bucket of our handle as the root qdisc."""

    __slots__ = ()
    KIND = "shaper"
    REPAIRED = "the limit of what the guest receives"
    MIGRATION = "of the tap alone"
    CHOSEN = frozenset({"ifindex"})
    BEFORE = frozenset[str]()

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        other = view.root_qdisc(link.index)
        if other is not None and other.handle != HANDLE:
            raise HostRefused(
                f"{self.device} has a queueing discipline that is not ours, {other.kind} {other.handle >> 16:x}:, so its rate cannot be "
                "limited",
                f"tc qdisc del dev {self.device} root",
            )
        return [self._replace(ifindex=link.index)]

    def apply(self) -> Sequence[Request]:
        return [SetTbf(self.ifindex, self.rate, self.burst, self.limit)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        now = view.root_qdisc(self.ifindex)
        if now is None or now.handle != HANDLE:
            return "there is no limit" if now is None else f"{now.kind} is in its place"
        wanted = (self.rate // 8 * 8, ticks(self.burst, self.rate), self.limit)
        same = now.rate == wanted[0] and abs(now.buffer - wanted[1]) <= 1 + wanted[1] // 100 and now.limit == wanted[2]
        return "" if same else f"the limit is {now.rate} bit/s, {now.limit} bytes wait"

    def revert(self, view: View) -> Sequence[Request]:
        now = view.root_qdisc(self.ifindex) if link_of(view, self.ifindex, self.device) else None
        return [DeleteTbf(self.ifindex)] if now is not None and now.handle == HANDLE else []

    def place(self) -> str:
        return f"root-qdisc {self.ifindex}"

    def sentence(self) -> str:
        from runtime.format import rate

        return f"The guest receives at most {rate(self.rate)}."

    def describe(self) -> str:
        size = f"rate {self.rate}bit burst {self.burst} limit {self.limit}"
        return f"tc qdisc replace dev {self.device} root handle {HANDLE >> 16:x}: tbf {size}"

    def undo(self) -> str:
        return f"tc qdisc del dev {self.device} root handle {HANDLE >> 16:x}:"


class PoliceFields(NamedTuple):
    """The fields of Police."""

    device: str
    rate: int  #: bits a second
    burst: int  #: bytes
    ifindex: int = 0
    had: str = ""  #: what was in clsact's place before: "", "clsact" or "ingress"


class Police(PoliceFields, Operation):
    """What comes from the guest beyond ``rate`` is dropped: a policer of our preference in the device's ingress. Goes with the device."""

    __slots__ = ()
    KIND = "police"
    REPAIRED = "the limit of what the guest sends"
    MIGRATION = "of the tap alone"
    CHOSEN = frozenset({"ifindex", "had"})
    BEFORE = frozenset({"had"})

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        place, other = view.clsact(link.index), _ours(view, link.index)
        if other is not None and not other.rate:
            text = f"{self.device} has a filter in the place of our policer"
            raise HostRefused(text, f"tc filter del dev {self.device} ingress pref 174")
        return [self._replace(ifindex=link.index, had=place.kind if place else "")]

    def apply(self) -> Sequence[Request]:
        made: list[Request] = [] if self.had else [AddClsact(self.ifindex)]
        return [*made, DeletePolicer(self.ifindex), SetPolicer(self.ifindex, self.rate, self.burst)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        now = _ours(view, self.ifindex)
        if now is None or not now.rate:
            return "there is no limit"
        wanted = ticks(self.burst, self.rate)
        same = now.rate == self.rate // 8 * 8 and abs(now.burst - wanted) <= 1 + wanted // 100
        return "" if same else f"the limit is {now.rate} bit/s"

    def revert(self, view: View) -> Sequence[Request]:
        if link_of(view, self.ifindex, self.device) is None:
            return []
        now, place = _ours(view, self.ifindex), view.clsact(self.ifindex)
        made: list[Request] = [DeletePolicer(self.ifindex)] if now is not None and now.rate else []
        others = len(view.filters(self.ifindex)) > len(made)  # of the site's, which would go with the place they hang in
        if place is not None and place.kind == "clsact" and not self.had and not others:
            made.append(DeleteClsact(self.ifindex))
        return made

    def place(self) -> str:
        return f"policer {self.ifindex}"

    def sentence(self) -> str:
        from runtime.format import rate

        return f"The guest sends at most {rate(self.rate)}; what is more is dropped."

    def describe(self) -> str:
        return f"tc filter replace dev {self.device} ingress pref 174 matchall action police rate {self.rate}bit burst {self.burst}"

    def undo(self) -> str:
        return f"tc filter del dev {self.device} ingress pref 174"


def _ours(view: View, index: int) -> Filter | None:
    """The filter of our preference in the device's ingress, whatever it does."""
    return next((found for found in view.filters(index) if found.preference == PREFERENCE and not found.egress), None)
