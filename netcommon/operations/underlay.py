"""The node's own part of an underlay: its addresses, and what becomes of the rest of its prefix (ip-address(8), ip-route(8))."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET6, PROTOCOL, REST, Address, Route
from netcommon.host.api.requests import AddAddress, AddRoute, DeleteAddress, DeleteRoute
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, OURS, Operation, Owned
from netcommon.operations.link import link_of
from netcommon.operations.table import MAIN
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

LENGTH = 128  #: of an address on its own
UNREACHABLE = 7  #: RTN_UNREACHABLE
LOOPBACK, DUMMY = "lo", "dummy"  #: a device, and a kind of devices, that have addresses of a node and of nobody else


class NodeAddressFields(NamedTuple):
    """The fields of NodeAddress."""

    device: str
    address: str
    endpoint: bool  #: it is for what speaks for a guest, and not the node's own
    ifindex: int = 0
    found: str = ABSENT


class NodeAddress(NodeAddressFields, Operation):
    """The node has the address, on its own, with no route to a prefix.

    That of an endpoint is deprecated (RFC 4862, 5.5.4): it answers, and who binds to it speaks from it, but the node itself begins nothing
    from it that would end where the endpoint goes. Kernels before 5.18 keep no mark (IFA_PROTO): there the record alone tells what is ours.

    A device has an address of IPv6 once: one that is there already, whatever its length, is what a kernel changes that is asked to add it.
    Somebody else's is taken as it is.
    """

    __slots__ = ()
    KIND = "node-address"
    REPAIRED = "the node's addresses in its underlay prefix"
    MIGRATION = "of the node"
    CHOSEN = frozenset({"ifindex", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def wanted(self) -> Address:
        """The address as the kernel has it."""
        return Address(AF_INET6, self.address, LENGTH, self.ifindex, deprecated=self.endpoint)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = view.link(self.device)
        if link is None:
            raise HostRefused(f"device {self.device} does not exist", "make it, or correct [underlay] device")
        if view.sysctl(f"net/ipv6/conf/{self.device}/disable_ipv6") == "1":
            raise HostRefused(f"device {self.device} has no IPv6", f"sysctl -w net.ipv6.conf.{self.device}.disable_ipv6=0")
        made = self._replace(ifindex=link.index)
        there = made._there(view)
        found = ABSENT if there is None else OURS if (there.protocol, there.length) == (PROTOCOL, LENGTH) else FOREIGN
        return [made._replace(found=found)]

    def _there(self, view: View) -> Address | None:
        """Give the same address on the device, whosever it is, and of whichever length."""
        return next((one for one in view.addresses(self.ifindex) if one.address == self.address and one.family == AF_INET6), None)

    def _is_ours(self, there: Address) -> bool:
        """Tell whether an address that is there may be what we have made: by its mark, or without one by the record alone."""
        return self.found != FOREIGN and there.length == LENGTH and there.protocol in (0, PROTOCOL)

    def answers(self, view: View) -> str:
        """Give the address where it is reached by now; "" where it is not there, or its device is down."""
        link = link_of(view, self.ifindex, self.device)
        return self.address if link is not None and link.up and self._there(view) is not None else ""

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddAddress(self.wanted())]

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        if link is None:
            return "the device is gone"
        there = self._there(view)
        if there is None:
            return "the address is gone"
        if self._is_ours(there) and there.deprecated != self.endpoint:
            return "the node begins connections from it" if self.endpoint else "the node begins no connections from it"
        return ""

    def idle(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        return "" if link is None or link.up else f"{self.device} is down: nobody reaches its addresses"

    def revert(self, view: View) -> Sequence[Request]:
        """By the index, which a device keeps that is renamed; without our mark another one may have it by now."""
        link = view.link_at(self.ifindex)
        there = self._there(view) if link is not None else None
        if link is None or there is None or not self._is_ours(there) or (link.name != self.device and there.protocol != PROTOCOL):
            return []
        return [DeleteAddress(self.wanted())]

    def identity(self) -> str:
        return _identity(self.ifindex, self.address)

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        whose = "for what speaks for a guest" if self.endpoint else "its own in the underlay"
        return f"The node has the address {self.address}, {whose}."

    def describe(self) -> str:
        lifetime = " preferred_lft 0" if self.endpoint else ""
        return f"ip -6 address replace {self.address}/{LENGTH} dev {self.device} nodad noprefixroute{lifetime} proto {PROTOCOL}"

    def undo(self) -> str:
        return f"ip -6 address del {self.address}/{LENGTH} dev {self.device}"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        """List those on the loopback and on dummies: another device may be a guest's, whose addresses go with it."""
        for link in view.links():
            if link.name == LOOPBACK or link.kind == DUMMY:
                for one in view.addresses(link.index):
                    if (one.family, one.length, one.protocol) == (AF_INET6, LENGTH, PROTOCOL):
                        text = f"address {one.address} of {link.name}"
                        yield Owned(_identity(link.index, one.address), text, (DeleteAddress(one),), of_node=True)


class UnreachableRestFields(NamedTuple):
    """The fields of UnreachableRest."""

    prefix: str
    found: str = ABSENT


class UnreachableRest(UnreachableRestFields, Operation):
    """Whatever of the node's prefix is no address of its own is unreachable here.

    The site's routers send all of the prefix here: without this, what is for an address that nobody has would go back by the default route,
    and round and round. Its metric is the last that there is, so any other route to the prefix counts.
    """

    __slots__ = ()
    KIND = "unreachable-rest"
    REPAIRED = "the rest of the node's underlay prefix is unreachable"
    MIGRATION = "of the node"
    CHOSEN = frozenset({"found"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def route(self) -> Route:
        """The route as it is asked for; the kernel shows lo as its device."""
        return Route(AF_INET6, MAIN, self.prefix, 0, scope=0, metric=REST, type=UNREACHABLE)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        there = self._there(view)
        if there is not None and there.type != UNREACHABLE:
            raise HostRefused(
                f"{self.prefix} has a route of metric {there.metric} that is not ours (protocol {there.protocol}), "
                "where that of the underlay belongs",
                "give it another metric",
            )
        found = ABSENT if there is None else OURS if there.protocol == PROTOCOL else FOREIGN
        return [self._replace(found=found)]

    def _there(self, view: View) -> Route | None:
        routes = view.routes(AF_INET6, MAIN, self.prefix, REST)
        return next((route for route in routes if route.metric == REST), None)

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddRoute(self.route(), new=True)]

    def differs(self, view: View) -> str:
        there = self._there(view)
        return "" if there is not None and there.type == UNREACHABLE else "the route is gone"

    def revert(self, view: View) -> Sequence[Request]:
        there = self._there(view)
        ours = there is not None and (there.type, there.protocol) == (UNREACHABLE, PROTOCOL)
        return [DeleteRoute(self.route())] if ours and self.found != FOREIGN else []

    def identity(self) -> str:
        return f"unreachable-rest {self.prefix}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"What is for the rest of {self.prefix} ends here, and is answered as unreachable."

    def describe(self) -> str:
        return f"ip -6 route add unreachable {self.prefix} metric {REST} protocol {PROTOCOL}"

    def undo(self) -> str:
        return f"ip -6 route del unreachable {self.prefix} metric {REST} protocol {PROTOCOL}"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for route in view.routes_of(AF_INET6, PROTOCOL, UNREACHABLE, table=MAIN):
            if route.metric == REST:
                made = cls(route.destination)
                yield Owned(made.identity(), f"unreachable {route.destination} in table {MAIN}", (DeleteRoute(made.route()),), of_node=True)


def answering(view: View, operations: Iterable[Operation]) -> tuple[str, ...]:
    """Give the addresses of the node's own by which it is reached now, each once."""
    found = (one.answers(view) for one in operations if isinstance(one, NodeAddress))
    return tuple(dict.fromkeys(filter(None, found)))


def _identity(ifindex: int, address: str) -> str:
    return f"node-address {ifindex} {address}"
