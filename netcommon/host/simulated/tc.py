"""Traffic control of a simulated node: the root qdisc and the ingress of each device."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import Filter, Qdisc
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import AddClsact, DeleteClsact, DeletePolicer, DeleteTbf, SetPolicer, SetTbf
from netcommon.host.rtnetlink.encode_tc import CLSACT_HANDLE, HANDLE, PREFERENCE, ticks
from netcommon.host.simulated.events import GONE, MADE
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.requests import TrafficChange
    from netcommon.host.simulated.events import Telling


class TrafficControl:
    """What hangs on the devices for which ``there`` says that they exist; ``forget`` when one goes."""

    def __init__(self, there: Callable[[int], bool], tell: Telling) -> None:
        self._there, self._tell = there, tell
        self.roots: dict[int, Qdisc] = {}
        self.ingress: dict[int, Qdisc] = {}
        self.policers: dict[int, Filter] = {}
        self.drops: dict[int, int] = {}  #: what the root qdiscs have dropped

    def forget(self, index: int) -> None:
        for table in (self.roots, self.ingress, self.policers, self.drops):
            table.pop(index, None)

    def filters(self, index: int) -> list[Filter]:
        """The filters of a device: at most our one."""
        return [self.policers[index]] if index in self.policers else []

    def execute(self, request: TrafficChange) -> Answer:
        """Carries it out."""
        index = request.index
        if not self._there(index):
            return Answer(errno.ENODEV, f"device {index}: no such device")
        match request:
            case SetTbf(_, rate, burst, limit):
                if index in self.roots and self.roots[index].handle != HANDLE:
                    self._tell(GONE, self.roots.pop(index))
                self.roots[index] = Qdisc(index, "tbf", HANDLE, rate // 8 * 8, ticks(burst, rate), limit)
                self._tell(MADE, self.roots[index])
            case DeleteTbf():
                if index not in self.roots or self.roots[index].handle != HANDLE:
                    return Answer(errno.EINVAL, "Invalid handle")
                self._tell(GONE, self.roots.pop(index))
            case AddClsact():
                if index in self.ingress:
                    return Answer(errno.EEXIST, "Exclusivity flag on, cannot modify")
                self.ingress[index] = Qdisc(index, "clsact", CLSACT_HANDLE)
                self._tell(MADE, self.ingress[index])
            case DeleteClsact():
                if index not in self.ingress:
                    return Answer(errno.EINVAL, "Invalid handle")
                if index in self.policers:
                    self._tell(GONE, self.policers.pop(index))
                self._tell(GONE, self.ingress.pop(index))
            case SetPolicer(_, rate, burst):
                if index not in self.ingress:
                    return Answer(errno.EINVAL, "Parent Qdisc doesn't exists")
                if index in self.policers:
                    return Answer(errno.EEXIST, "File exists")
                self.policers[index] = Filter(index, PREFERENCE, False, rate // 8 * 8, ticks(burst, rate))
                self._tell(MADE, self.policers[index])
            case DeletePolicer():
                if index not in self.policers:
                    return Answer(errno.ENOENT, "Cannot find specified filter chain")
                self._tell(GONE, self.policers.pop(index))
        return DONE
