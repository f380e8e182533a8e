"""Proxy neighbours (ip-neighbour(8), "proxy"): the node answers for the guest on its uplink, and for the gateway on the tap."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Neighbour
from netcommon.host.api.requests import AddNeighbour, DeleteNeighbour
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, IP_FAMILIES, OURS, Operation, Owned
from netcommon.operations.link import device_link, link_of
from netcommon.operations.routed_uplink import absent, lacking, moved, no_uplink, on, on_uplink, uplinks
from netcommon.operations.table import renumbered, table_number
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request


class ProxyNeighbourFields(NamedTuple):
    """The fields of ProxyNeighbour."""

    family: int
    address: str
    table: str  #: name or number; "" is main
    number: int = 0
    port: str = ""  #: the uplink; "" where none was found
    ifindex: int = 0
    uplinks: tuple[str, ...] = ()  #: all that were found, this one among them
    found: str = ABSENT
    found_by: str = ""  #: how the uplinks were found (netcommon.operations.routed_uplink)


class ProxyNeighbour(ProxyNeighbourFields, Operation):
    """The node answers for the guest's address on one uplink: neighbour solicitations, in IPv4 ARP requests.

    The kernel restamps an entry that is added over another's, and deletes without comparing the mark: both are preceded by a look.
    """

    __slots__ = ()
    KIND = "neighbour"
    REPAIRED = "proxy entries on uplinks"
    MIGRATION = "two nodes that answer for one address take turns at getting its packets"
    CHOSEN = frozenset({"number", "port", "ifindex", "uplinks", "found", "found_by"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    def neighbour(self) -> Neighbour:
        """The entry as the kernel has it."""
        return Neighbour(self.family, self.address, self.ifindex)

    def exclusive(self) -> bool:
        """Two nodes that answer for one address take turns at getting its packets."""
        return True

    def shared(self) -> tuple[str, ...]:
        return _keys(self.address, self.port, self.ifindex)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        number = table_number(view, self.table, warnings)
        now = uplinks(view, self.family, number)
        if not now.links:
            no_uplink(self.family, self.table, now, warnings)
            return [ProxyNeighbour(self.family, self.address, self.table, number)]
        common = self._replace(number=number, uplinks=now.names, found_by=now.found_by)
        made = [common._replace(port=link.name, ifindex=link.index) for link in now.links]
        return [one._replace(found=_found(view, one.neighbour())) for one in made]

    def waits(self, view: View) -> bool:
        known = bool(self.port) and not renumbered(view, self.table, self.number)  # of another table nothing is known yet
        return known and absent(view, self.family, self.number, self.found_by)

    def apply(self) -> Sequence[Request]:
        return [AddNeighbour(self.neighbour())] if self.port and self.found != FOREIGN else []

    def differs(self, view: View) -> str:
        away = renumbered(view, self.table, self.number) or moved(view, self.family, self.number, self.uplinks, self.found_by)
        if away or not self.port or _entry(view, self.neighbour()):
            return away
        gone = view.link_at(self.ifindex) is None and self.waits(view)  # it comes back with its uplink, which has another index then
        return "" if gone else f"the entry on {self.port} is gone"

    def idle(self, view: View) -> str:
        if not self.port:
            return lacking(self.family, self.table, uplinks(view, self.family, self.number))
        if self.waits(view):
            return f"no uplink of table {self.table or 'main'} is there now: it stays on {self.port}"
        return f"net.ipv6.conf.{self.port}.forwarding is 0: the kernel does not answer there for others" if self.deaf(view) else ""

    def deaf(self, view: View) -> bool:
        """Tell whether the kernel hears nobody ask there: it answers only where it is a router itself (ndisc_recv_ns())."""
        return self.family == AF_INET6 and bool(self.port) and view.sysctl(f"net/ipv6/conf/{self.port}/forwarding") == "0"

    def revert(self, view: View) -> Sequence[Request]:
        link = (view.link_at(self.ifindex) or view.link(self.port)) if self.port and self.ifindex >= 0 else None  # it may have come back
        if link is None or self.found == FOREIGN:
            return []
        entry = _entry(view, self.neighbour()._replace(index=link.index))
        return [DeleteNeighbour(entry)] if entry and entry.protocol == PROTOCOL else []

    def identity(self) -> str:
        return _identity(self.neighbour())

    def place(self) -> str:
        return f"neighbour {self.ifindex} {self.address}"

    def sentence(self) -> str:
        return f"The node answers for the guest's address {self.address} {on_uplink(self.port)}."

    def describe(self) -> str:
        return _command(self.family, self.address, on(self.port, self.table))

    def undo(self) -> str:
        return self.describe().replace(" add ", " del ", 1) + ", with the last NIC that has the address"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        """Entries on taps too. The device of one is the tap to which a route of ours leads: the guest may be alive behind it."""
        for family, bits in ((AF_INET, 32), (AF_INET6, 128)):
            entries = [entry for entry in view.neighbours(family) if entry.protocol == PROTOCOL]
            indices: dict[str, list[int]] = {}
            for route in view.routes_of(family, PROTOCOL) if entries else ():
                indices.setdefault(route.destination, []).append(route.index)
            for entry in entries:
                at = view.link_at(entry.index)
                ways = [view.link_at(index) for index in indices.get(f"{entry.address}/{bits}", ())]
                device = next((link.name for link in [*ways, at] if link is not None and link.holders >= 0), "")
                text = f"proxy neighbour {entry.address} on {at.name if at else f'device {entry.index}'}"
                keys = _keys(entry.address, at.name if at else "", entry.index)
                yield Owned(_identity(entry), text, (DeleteNeighbour(entry),), device=device, shared=keys)


def _keys(address: str, port: str, index: int) -> tuple[str, ...]:
    """By the uplink's name, as earlier versions have it, and by its index, which a NIC that comes after a renaming knows too."""
    key = f"neighbour-{address}"
    return (f"{key}@{port}", f"{key}@:{index}") if port else (key,)


class GatewayNeighbourFields(NamedTuple):
    """The fields of GatewayNeighbour."""

    address: str
    device: str
    ifindex: int = 0
    found: str = ABSENT


class GatewayNeighbour(GatewayNeighbourFields, Operation):
    """The node answers the guest's neighbour solicitations for its IPv6 gateway, as a router. Goes with the device."""

    __slots__ = ()
    KIND = "gateway-neighbour"
    REPAIRED = "proxy entries for the gateway on the device"
    MIGRATION = "answers on the tap only"
    CHOSEN = frozenset({"ifindex", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def neighbour(self) -> Neighbour:
        """The entry as the kernel has it."""
        return Neighbour(AF_INET6, self.address, self.ifindex, router=True)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        made = self._replace(ifindex=device_link(view, self.device).index)
        return [made._replace(found=_found(view, made.neighbour()))]

    def apply(self) -> Sequence[Request]:
        return [] if self.found == FOREIGN else [AddNeighbour(self.neighbour())]

    def differs(self, view: View) -> str:
        return "" if _entry(view, self.neighbour()) else "the entry is gone"

    def revert(self, view: View) -> Sequence[Request]:
        if self.found == FOREIGN or link_of(view, self.ifindex, self.device) is None:
            return []
        entry = _entry(view, self.neighbour())
        return [DeleteNeighbour(entry)] if entry and entry.protocol == PROTOCOL else []

    def identity(self) -> str:
        return _identity(self.neighbour())

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"The node answers the guest when it asks for its gateway {self.address}."

    def describe(self) -> str:
        return _command(AF_INET6, self.address, self.device) + " router"

    def undo(self) -> str:
        return self.describe().replace(" add ", " del ", 1)


def _entry(view: View, wanted: Neighbour) -> Neighbour | None:
    """The entry for the same address on the same device, whosever it is."""
    return next((entry for entry in view.neighbours(wanted.family, wanted.index) if entry.address == wanted.address), None)


def _found(view: View, wanted: Neighbour) -> str:
    entry = _entry(view, wanted)
    if entry is None:
        return ABSENT
    return OURS if entry.protocol == PROTOCOL else FOREIGN


def _identity(entry: Neighbour) -> str:
    return f"neighbour {entry.index} {entry.address}"


def _command(family: int, address: str, device: str) -> str:
    return f"ip -{4 if family == AF_INET else 6} neighbour add proxy {address} dev {device} protocol {PROTOCOL}"
