"""Tell a running routed guest the MAC of its gateway: that of its tap, which a change, a repair or the way back may have set.

Nothing else tells it: the guest keeps the former MAC in its neighbour cache for 25 to 45 s in the lab, and the node drops what is sent to
that. A first up tells it nothing: the guest has not spoken yet, or comes from a node on which its tap has the same MAC.
"""

from __future__ import annotations

from netcommon.effects.base import Effect
from netcommon.effects.frames import gratuitous_arp, unsolicited_advertisement
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.api.requests import SendFrame
from netcommon.options.addresses import LINK_LOCAL_GATEWAY, addresses_of
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.effects.base import Scene
    from netcommon.options.model import Options
    from runtime.nic import Nic


def effect(nic: Nic, options: Options) -> tuple[Effect, ...]:
    """Give what tells the guest; nothing for a NIC whose gateways are not known, and never an address of the guest's own."""
    own = addresses_of(nic, options)
    ipv4 = tuple(each for each in (nic.network.gateway,) if each and each not in own.hosts(AF_INET))
    found = (nic.network.gateway6, LINK_LOCAL_GATEWAY if options.gateway_link_local else "")
    ipv6 = tuple(dict.fromkeys(each for each in found if each and each not in own.hosts(AF_INET6)))
    return (GatewayMac(nic.interface, ipv4, ipv6),) if ipv4 or ipv6 else ()


class GatewayMacFields(NamedTuple):
    """The fields of GatewayMac."""

    device: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()


class GatewayMac(GatewayMacFields, Effect):
    """Tells the guest behind ``device`` that its gateways are at the MAC that the device has now; nobody while that is down."""

    __slots__ = ()

    def exclusive(self) -> bool:
        return True

    def perform(self, scene: Scene) -> None:
        view = scene.host.view()  # the MAC as it is now, not as it was when somebody looked
        link = view.link(self.device)
        if link is None or not link.up:
            return
        frames = [frame for address in self.ipv4 for frame in gratuitous_arp(link.address, address)]
        source = view.link_local(link.index) if self.ipv6 else ""
        if source:
            told = dict.fromkeys((*self.ipv6, source))  # a daemon may have advertised the device's own address
            frames += [unsolicited_advertisement(link.address, source, address, router=True) for address in told]
        answers = scene.host.execute([SendFrame(link.index, frame) for frame in frames], stop=False) if frames else []
        problems = [answer.text for answer in answers if not answer.ok]
        if self.ipv6 and not source:
            problems.append(f"{self.device} has no IPv6 address to speak from")
        if problems:
            raise HostRefused("; ".join(dict.fromkeys(problems)))

    def describe(self) -> str:
        return f"tell the guest on {self.device} the MAC of {', '.join((*self.ipv4, *self.ipv6))}"
