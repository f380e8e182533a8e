"""Announce a routed guest's addresses on the uplinks when its NIC comes up here (option announce): they are behind this node's MAC now.

Nothing else tells it: a routed guest's own frames end at its tap, and the neighbours keep the MAC of the node it has left for as long
as their caches do. (A bridged or OVS guest needs none: QEMU announces the guest's own MAC at the end of a migration.)
"""

from __future__ import annotations

from netcommon.effects.base import Effect
from netcommon.effects.frames import gratuitous_arp, unsolicited_advertisement
from netcommon.features.base import Part
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.requests import SendFrame
from netcommon.operations.routed_uplink import uplinks
from netcommon.operations.table import table_number
from netcommon.options.addresses import addresses_of
from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.effects.base import Scene
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: When it is said again, in seconds after the first time: a single frame may be lost, or come before the switch has settled.
AGAIN = (0.1, 0.3, 0.6, 0.9)

MAC = len("aa:bb:cc:dd:ee:ff")  #: the length of an Ethernet address as text
NO_MAC = "00:00:00:00:00:00"


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Host addresses only: neighbours that ask for an address in a prefix are rare, and would be told of each one in it."""
    found = addresses_of(nic, options)
    return Part(effects=(Announce(nic.link, found.ipv4, found.ipv6),) if found.ipv4 or found.ipv6 else ())


class AnnounceFields(NamedTuple):
    """The fields of Announce."""

    table: str  #: name or number; "" is main
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()


class Announce(AnnounceFields, Effect):
    """Tells the neighbours on the uplinks of ``table`` that these addresses are here: at once, and AGAIN while the NIC is up."""

    __slots__ = ()

    def exclusive(self) -> bool:
        return True

    def perform(self, scene: Scene) -> None:
        view = scene.seen or scene.view or scene.host.view()
        targets = self._targets(view)
        if not targets and scene.seen:
            view = scene.view or scene.host.view()  # it may have changed since it was looked at
            targets = self._targets(view)
        if not targets:
            scene.log.info(f"announced to nobody: no uplink of table {self.table or 'main'} is known (no default route, no rule into it)")
            return
        try:
            self._send(scene, view, targets)
        finally:
            scene.later(AGAIN, lambda then: self._again(then, targets))

    def describe(self) -> str:
        return f"announce {', '.join((*self.ipv4, *self.ipv6))} on the uplinks of table {self.table or 'main'}"

    def _addresses(self, family: int) -> tuple[str, ...]:
        return self.ipv4 if family == AF_INET else self.ipv6

    def _targets(self, view: View) -> list[tuple[int, Link]]:
        return [(family, link) for family in (AF_INET, AF_INET6) if self._addresses(family) for link in self._uplinks(view, family)]

    def _uplinks(self, view: View, family: int) -> list[Link]:
        """Those with neighbours to tell: not tunnels."""
        links = uplinks(view, family, table_number(view, self.table, [])).links
        return [link for link in links if len(link.address) == MAC and link.address != NO_MAC]

    def _again(self, scene: Scene, targets: Sequence[tuple[int, Link]]) -> bool:
        """To the same uplinks, as they are now: to find them costs a look at all routes of the table, thousands on some nodes."""
        if not scene.current():
            return False
        view = scene.view or scene.host.view()
        try:
            links = [(family, view.link_at(known.index)) for family, known in targets]
            self._send(scene, view, [(family, link) for family, link in links if link is not None])
        except NetcommonError as error:
            scene.log.warning(f"{self.describe()}: {error}")
        return True

    def _send(self, scene: Scene, view: View, targets: Sequence[tuple[int, Link]]) -> None:
        """An uplink may have come up, or have got its address, since it was found. Raises HostRefused."""
        problems: list[str] = []
        requests: list[Request] = []
        for family, link in targets:
            source = view.link_local(link.index) if family == AF_INET6 else ""
            if family == AF_INET6 and not source:
                problems.append(f"{link.name} has no IPv6 address to speak from yet")
                continue
            requests += [SendFrame(link.index, frame) for frame in self._frames(family, link.address, source)]
        answers = scene.host.execute(requests, stop=False) if requests else []
        problems += [answer.text for answer in answers if not answer.ok]
        if problems:
            raise HostRefused("; ".join(dict.fromkeys(problems)))

    def _frames(self, family: int, mac: str, source: str) -> list[bytes]:
        if family == AF_INET:
            return [frame for address in self.ipv4 for frame in gratuitous_arp(mac, address)]
        return [unsolicited_advertisement(mac, source, address) for address in self.ipv6]
