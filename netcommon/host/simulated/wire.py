"""Keep the frames that were sent on the links of a simulated node, for tests to read."""

from __future__ import annotations

import errno
import os

from netcommon.host.api.host import DONE, Answer
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.requests import SendFrame
    from netcommon.host.simulated.kernel import Kernel

HEADER = 14  #: bytes of an Ethernet header


class Wire:
    """The frames that were sent, for tests to read: pairs of a device's index and the frame."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.frames: list[tuple[int, bytes]] = []

    def execute(self, request: SendFrame) -> Answer:
        """Sends it into the list."""
        link = self._kernel.links.get(request.index)
        number = 0
        if link is None:
            number = errno.ENODEV
        elif not link.up:
            number = errno.ENETDOWN
        elif len(request.frame) < HEADER:
            number = errno.EINVAL
        elif len(request.frame) > HEADER + link.mtu:
            number = errno.EMSGSIZE
        if number:
            return Answer(number, f"{link.name if link else f'device {request.index}'}: {os.strerror(number)}")
        self.frames.append((request.index, request.frame))
        return DONE
