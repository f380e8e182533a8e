"""How the outside reaches a simulated node; and what was sent on its links."""

from __future__ import annotations

import errno
import os

from netcommon.host.attributes import show_address
from netcommon.host.base import DONE, Answer
from netcommon.host.facts import AF_INET6, PROTOCOL
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.memory import MemoryHost
    from netcommon.host.requests import SendFrame
    from netcommon.host.simulated import Kernel

HEADER = 14  #: bytes of an Ethernet header
UNIVERSAL = 2  #: the bit that modified EUI-64 turns round (RFC 4291, appendix A)


class SimulatedReach:
    """The part of a view that tells it."""

    _host: MemoryHost

    def ways_in(self, family: int, table: int) -> Sequence[str]:
        rules = [rule for rule in self._host.kernel.rules if (rule.family, rule.table) == (family, table)]
        return list(dict.fromkeys(rule.iif for rule in rules if rule.iif and rule.protocol != PROTOCOL))

    def link_local(self, index: int) -> str:
        link = self._host.kernel.links.get(index)
        if link is None or not link.up or not link.address or self._off(link.name):
            return ""
        octets = bytes.fromhex(link.address.replace(":", ""))
        identifier = bytes((octets[0] ^ UNIVERSAL,)) + octets[1:3] + b"\xff\xfe" + octets[3:]
        return show_address(AF_INET6, b"\xfe\x80" + bytes(6) + identifier)

    def _off(self, device: str) -> bool:
        return self._host.kernel.settings.get(f"net/ipv6/conf/{device}/disable_ipv6") == "1"


class Wire:
    """What was sent, for tests to read: pairs of a device's index and the frame."""

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
