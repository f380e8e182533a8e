"""Bridge ports and forwarding databases of a simulated node, as of a kernel with VLAN filtering. Nothing is learned: no frames flow."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import LEARNED, LOCAL, FdbEntry, Port
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import AddFdb, FlushPort, SetPort
from netcommon.host.simulated.events import GONE, MADE
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    from netcommon.host.api.facts import BridgeVlan, Link
    from netcommon.host.api.requests import PortChange
    from netcommon.host.simulated.events import Telling

    class Links(Protocol):
        """The part of the kernel (netcommon.host.simulated.kernel) that tells of devices."""

        links: dict[int, Link]
        vlans: dict[int, dict[int, BridgeVlan]]
        tell: Telling

        def ports(self, bridge: int) -> list[Link]: ...
        def tell_port(self, index: int) -> None: ...


class BridgePorts:
    """The flags of the ports, and the entries that somebody has made, by bridge, VLAN and address."""

    def __init__(self, kernel: Links) -> None:
        self._kernel = kernel
        self.flags: dict[int, Port] = {}
        self.entries: dict[tuple[int, int, str], FdbEntry] = {}

    def forget(self, index: int) -> None:
        """The device is no port any more."""
        self.flags.pop(index, None)
        for key in [key for key, entry in self.entries.items() if entry.index == index]:
            self._kernel.tell(GONE, self.entries.pop(key))

    def port(self, index: int) -> Port | None:
        return self.flags.get(index, Port()) if self._bridge(index) else None

    def entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        """Somebody's, or that of the bridge's or a port's own address, which is in all of its VLANs."""
        made = self.entries.get((bridge, vid, mac.lower()))
        if made is not None:
            return made
        own = [self._kernel.links[bridge]] if bridge in self._kernel.links else []
        for port in (*self._kernel.ports(bridge), *own):
            if port.address == mac.lower() and (not vid or vid in self._kernel.vlans.get(port.index, ())):
                return FdbEntry(port.address, port.index, vid, LOCAL)
        return None

    def execute(self, request: PortChange) -> Answer:
        """Carries it out."""
        index = request.index
        if index not in self._kernel.links:
            return Answer(errno.ENODEV)
        bridge = self._bridge(index)
        if not bridge:
            return Answer(errno.EOPNOTSUPP)
        if isinstance(request, SetPort):
            self.flags[index] = self.flags.get(index, Port())._replace(**{request.flag: request.value})
            self._kernel.tell_port(index)
            if request.flag == "learning" and not request.value:
                self._forget_learned(index)
            return DONE
        if isinstance(request, FlushPort):
            self._forget_learned(index)
            return DONE
        vlans, mac = self._kernel.vlans.get(index, {}), request.mac.lower()
        if request.vid and request.vid not in vlans:
            return Answer(errno.EINVAL)
        vids = [request.vid] if request.vid else [0, *vlans]
        if isinstance(request, AddFdb):
            for vid in vids:
                self.entries[bridge, vid, mac] = FdbEntry(mac, index, vid, sticky=True)
                self._kernel.tell(MADE, self.entries[bridge, vid, mac])
            return DONE
        found = [(bridge, vid, mac) for vid in vids if (entry := self.entries.get((bridge, vid, mac))) and entry.index == index]
        for key in found:
            self._kernel.tell(GONE, self.entries.pop(key))
        return DONE if found else Answer(errno.ENOENT)

    def _forget_learned(self, index: int) -> None:
        self.entries = {key: entry for key, entry in self.entries.items() if entry.index != index or entry.kind != LEARNED}

    def _bridge(self, index: int) -> int:
        """The index of the bridge it is a port of, 0 where it is none."""
        link = self._kernel.links.get(index)
        return link.master if link and link.port_kind == "bridge" else 0
