"""A simulated host that answers wrongly: any of its calls, reads and changes alike, once, always, or from some call on.

What a refusal says is true: who is told that something is gone, or there already, is told so because it is. A lost reply is one to a
request that was carried out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, achieved
from netcommon.host.linux.snapshot import Snapshot
from netcommon.host.simulated.host import MemoryHost
from netcommon.host.simulated.view import MemoryView
from netcommon.lifecycle.execute import TRANSIENT
from runtime.errors import TEMPORARY, UNAVAILABLE, HostRefused, TryAgain
from tests.support.sim import TELLING

#: What a call is answered with, by name: an errno, or one of the two that have none.
INTERRUPTED, LOST = "dump interrupted", "lost reply"
ERRORS = {name: getattr(errno, name) for name in ("EBUSY", "ENOBUFS", "EEXIST", "ENOENT", "ENODEV", "ESRCH", "EPERM")}
FAULTS = (*ERRORS, INTERRUPTED, LOST)

#: How long it lasts: one call; that call whenever it is repeated; every call from that one on.
ONCE, ALWAYS, EVER_AFTER = "once", "always", "ever after"
LASTING = (ONCE, ALWAYS, EVER_AFTER)

#: Reads that ask the kernel or a service, and so can fail.
NOT_ASKED = {"table", "template", "program", "nearest"}


class Fault(NamedTuple):
    """Call number ``place`` (from 0) is answered with ``what``, for as long as ``lasting`` says."""

    place: int
    what: str
    lasting: str

    @property
    def status(self) -> int:
        """The exit status of a hook that it makes fail."""
        return TEMPORARY if self.what in (INTERRUPTED, LOST) or ERRORS[self.what] in TRANSIENT else UNAVAILABLE


class FaultyHost:
    """Stands between the lifecycle and a MemoryHost: counts its calls, by a name each, and disturbs those that ``fault`` means."""

    def __init__(self, host: MemoryHost, fault: Fault | None = None) -> None:
        self._host, self._fault = host, fault
        self.calls: list[tuple[str, bool]] = []  #: what was called, and whether it was a change
        self.hit: list[str] = []  #: those that were disturbed
        self._repeated: object = None

    def _strikes(self, name: str, change: bool, told: object) -> bool:
        self.calls.append((name, change))
        place, fault = len(self.calls) - 1, self._fault
        if fault is None:
            return False
        if fault.lasting == ALWAYS and place == fault.place:
            self._repeated = told
        if (
            place == fault.place
            or (fault.lasting == EVER_AFTER and place > fault.place)
            or (fault.lasting == ALWAYS and self._repeated is not None and self._repeated == told)
        ):
            self.hit.append(name)
            return True
        return False

    def request(self, request: Request) -> Answer | None:
        """For MemoryHost.fail."""
        if isinstance(request, TELLING) or not self._strikes(type(request).__name__, True, request):
            return None
        assert self._fault is not None
        what = self._fault.what
        if what in (INTERRUPTED, LOST):
            self._carried_out(request)
            return Answer(errno.ETIMEDOUT, "the kernel did not answer")
        number = ERRORS[what]
        if number in request.gone or achieved(request, number):
            self._carried_out(request)
        return Answer(number, os.strerror(number))

    def _carried_out(self, request: Request) -> None:
        before, self._host.fail = self._host.fail, lambda _request: None
        try:
            self._host._execute(request)
            self._host.requests.pop()
        finally:
            self._host.fail = before

    def view(self) -> MemoryView:
        """For MemoryHost.view."""
        return _View(MemoryView(self._host), self._read)  # type: ignore[return-value]

    def _read(self, name: str, positional: tuple[Any, ...]) -> None:
        if not self._strikes(name, False, (name, positional)):
            return
        assert self._fault is not None
        if self._fault.status == TEMPORARY:
            raise TryAgain(f"the kernel does not answer: {self._fault.what}")
        raise HostRefused(f"the kernel does not tell: {self._fault.what}")

    @contextmanager
    def installed(self) -> Iterator[FaultyHost]:
        """In the way of everything that is asked of the host meanwhile."""
        host = self._host
        host.fail = self.request
        vars(host).update(view=self.view, snapshot=lambda: Snapshot(self.view()))
        try:
            yield self
        finally:
            host.fail = lambda _request: None
            del vars(host)["view"], vars(host)["snapshot"]


class _View:
    """A MemoryView whose every question is told of first."""

    def __init__(self, view: MemoryView, told: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._view, self._told = view, told

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._view, name)
        if name.startswith("_") or name in NOT_ASKED or not callable(found):
            return found

        def asked(*positional: Any) -> Any:
            self._told(name, positional)
            return found(*positional)

        return asked
