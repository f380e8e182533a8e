"""The NIC model: what a hypervisor says of one virtual network interface, validated."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING, NamedTuple
from runtime.vlan import NO_VLAN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime.vlan import Vlan

MODES = ("bridged", "routed", "openvswitch", "ext")


class Network(NamedTuple):
    """The Ganeti network a NIC belongs to (gnt-network(8)); every field is empty where it says nothing."""

    name: str = ""
    uuid: str = ""
    subnet: str = ""  #: IPv4 prefix, "10.0.0.0/24"
    subnet6: str = ""  #: IPv6 prefix
    gateway: str = ""
    gateway6: str = ""
    mac_prefix: str = ""
    tags: tuple[str, ...] = ()


#: Who has changed an option of a NIC that runs: somebody on this node, or a registry. The first is stronger.
LOCAL, REGISTRY = "change", "registry"


class Changed(NamedTuple):
    """One option that was changed while the NIC ran: stronger than tags (runtime.wanted)."""

    option: str
    value: str  #: as a tag would give it
    source: str = LOCAL  #: LOCAL or REGISTRY
    until: float = 0.0  #: seconds since the epoch, for people; 0: for good


class NetworkWanted(NamedTuple):
    """What a registry says of a network, which all of its guests are told; empty where it says nothing. ``mtu`` in bytes."""

    uuid: str
    revision: str  #: EPOCH:REVISION
    name: str = ""
    gateway: str = ""
    gateway6: str = ""
    resolvers: tuple[str, ...] = ()  #: addresses of name servers, of both families
    search: tuple[str, ...] = ()  #: domains
    routes: tuple[tuple[str, str], ...] = ()  #: IPv4 prefix, and the IPv4 address of the router to it
    mtu: int = 0
    tags: tuple[str, ...] | None = None  #: those of a Ganeti cluster's network; None where the registry is not told of them


class Nic(NamedTuple):
    """One virtual NIC as its hypervisor describes it. Made by runtime.environment, always valid."""

    uuid: str  #: lower case, hyphens; where the caller gives none: uuid5 of instance, index and MAC
    interface: str  #: the host-side device: a tap or vif, at most 15 bytes
    mode: str  #: one of MODES
    link: str  #: bridge, OVS bridge, or routing table (name or number), by mode
    mac: str = ""  #: of the guest's side, "aa:bb:cc:dd:ee:ff"
    ip: str = ""  #: IPv4 or IPv6 address, canonical text, with "/len" only where a prefix was given
    vlan: Vlan = NO_VLAN
    instance: str = ""
    index: int | None = None  # type: ignore[assignment]  #: the NIC's position in its instance; shifts when NICs are removed
    name: str = ""
    tags: tuple[str, ...] = ()
    network: Network = Network()
    environment: Mapping[str, str] = {}  #: every variable the caller gave, known or not
    wanted: tuple[Changed, ...] = ()  #: what was changed of it while it ran, weakest first
    revision: str = ""  #: EPOCH:REVISION of what a registry wants of it, as far as it has that; "" where none has said anything
    told: NetworkWanted | None = None  #: what a registry says of its network; None where it says nothing

    @property
    def description(self) -> Nic:
        """Give what its hypervisor says of it, and we understand: without what was changed here, or is told by a registry."""
        return self._replace(environment={}, wanted=(), revision="", told=None)

    @property
    def label(self) -> str:
        """Instance and index for people, "web1/0"; the device where there is no instance."""
        where = self.instance or self.interface
        return where if self.index is None else f"{where}/{self.index}"
