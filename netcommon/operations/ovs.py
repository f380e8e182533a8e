"""A port of an Open vSwitch bridge (ovs-vswitchd.conf.db(5))."""

from __future__ import annotations

from netcommon.host.api.facts import OVS_MARK, STOPPED, OvsPort
from netcommon.host.api.requests import DeleteOvsPort, PutOvsPort, ReleaseOvsPort
from netcommon.operations.base import Operation, Owned
from netcommon.operations.link import device_link, link_of, marked
from runtime.errors import HostRefused, TryAgain
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

LIMITS = ("policing", "burst", "shaping")


def standing(view: View, device: str, bridge: str, owner: str) -> OvsPort | None:
    """The device's port, where it is this NIC's and of this bridge, and Open vSwitch has it: then it is kept, with its number."""
    port = view.ovs_port(device)
    return port if port is not None and (port.bridge, port.owner) == (bridge, owner) and port.ofport > 0 else None


def bond_of(view: View, device: str) -> OvsPort | None:
    """Give the port of several members of which one is the device; it has another name."""
    every = (port for switch in view.ovs_switches() for port in view.ovs_bridge_ports(switch.name))
    return next((port for port in every if any(member.name == device for member in port.members)), None)


def running(view: View) -> None:
    """Raise TryAgain where Open vSwitch is stopped: what is not there of it may be in its database, and come back."""
    if view.ovs_away():
        raise TryAgain(STOPPED)


def _bridge_of(view: View, link: Link) -> str:
    """Give the name of the Linux bridge that has the device for a port; "" for none. A datapath in user space takes it all the same."""
    master = view.link_at(link.master) if link.master else None
    return master.name if master is not None and master.kind == "bridge" else ""


class PortFields(NamedTuple):
    """The fields of Port."""

    device: str
    bridge: str
    owner: str  #: the NIC's UUID
    tag: int | None = None
    trunks: tuple[int, ...] = ()
    vlan_mode: str = ""
    external_ids: tuple[tuple[str, str], ...] = ()
    interface_ids: tuple[tuple[str, str], ...] = ()  #: external_ids of its interface
    policing: int = 0  #: limit of what the guest sends, kbit/s; 0: none
    burst: int = 0  #: of that, kbit
    shaping: int = 0  #: limit of what the guest receives, kbit/s; 0: none
    ifindex: int = 0
    kept: bool = False  #: adopt has found the port, with what follows; undone before that is over, it is so again
    was_tag: int | None = None
    was_trunks: tuple[int, ...] = ()
    was_mode: str = ""
    was_ids: tuple[tuple[str, str], ...] = ()
    was_interface_ids: tuple[tuple[str, str], ...] = ()


class Port(PortFields, Operation):
    """The tap is a port of the OVS bridge. It outlives the device: a stale row takes the next tap of its name.

    It is deleted by name and by our mark with this NIC's UUID together, so a guest that took the name keeps its own.
    """

    __slots__ = ()
    KIND = "ovs-port"
    REPAIRED = "the port in Open vSwitch"
    MIGRATION = (
        "the bridge learns as a Linux bridge does. OVN tells by its own `requested-chassis` which of two ports of one `iface-id` counts"
    )
    CHOSEN = frozenset({"ifindex", "kept", "was_tag", "was_trunks", "was_mode", "was_ids", "was_interface_ids"})
    BEFORE = CHOSEN - {"ifindex"}

    def one_of_device(self) -> bool:
        return True

    def running(self, view: View) -> Operation:
        there = view.ovs_port(self.device)
        if there is None or there.bridge != self.bridge or there.owner not in ("", self.owner):
            return self
        ids = tuple(pair for pair in there.external_ids if pair[0] != OVS_MARK)
        was = {"was_tag": there.tag, "was_trunks": there.trunks, "was_mode": there.vlan_mode}
        return self._replace(kept=True, **was, was_ids=ids, was_interface_ids=there.interface_ids)  # type: ignore[arg-type]

    def taken_over(self, view: View) -> Operation:
        return self._replace(kept=False, was_tag=None, was_trunks=(), was_mode="", was_ids=(), was_interface_ids=())

    def network(self) -> tuple[object, ...]:
        return self.bridge, self.tag, self.trunks, self.vlan_mode

    def joins(self) -> bool:
        return True

    def port(self) -> OvsPort:
        """The rows as OVSDB shall have them."""
        ids = tuple(sorted({**dict(self.external_ids), OVS_MARK: self.owner}.items()))
        return OvsPort(
            self.device,
            self.bridge,
            self.tag,
            tuple(sorted(self.trunks)),
            self.vlan_mode,
            ids,
            tuple(sorted(self.interface_ids)),
            policing=self.policing,
            burst=self.burst,
            shaping=self.shaping * 1000,
        )

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        bridge = _bridge_of(view, link)
        if bridge and not marked(link):  # one that we have put there goes before this is done
            raise HostRefused(
                f"{self.device} is a port of the Linux bridge {bridge}, so it cannot be one of Open vSwitch",
                f"ip link set dev {self.device} nomaster, or correct the NIC's MODE",
            )
        # only a NIC with a limit needs to know more of its bridge than that it is there
        if not (view.ovs_switch(self.bridge) if self.policing else view.ovs_bridge(self.bridge)):
            running(view)
            raise HostRefused(f"Open vSwitch bridge {self.bridge} does not exist", "create it, or correct the NIC's LINK")
        there = view.ovs_port(self.device)
        if there and not there.owner:
            warnings.append(f"a stale port {self.device} of {there.bridge} is replaced")
        warnings += filter(None, [self.idle(view)])
        return [self._replace(ifindex=link.index)]

    def apply(self) -> Sequence[Request]:
        return [PutOvsPort(self.port())]

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        bridge = _bridge_of(view, link) if link is not None else ""
        if bridge:
            return f"its device is a port of the Linux bridge {bridge} too: ip link set dev {self.device} nomaster"
        now = view.ovs_port(self.device)
        if now is None:
            running(view)
            return "the port is gone"
        if now.error or now.ofport == -1:
            return f"Open vSwitch says: {now.error or 'the interface could not be opened'}"
        wanted = self.port()
        bare = now._replace(trunks=tuple(sorted(now.trunks)))
        names = [name for name in ("bridge", "tag", "trunks", "vlan_mode", *LIMITS) if getattr(bare, name) != getattr(wanted, name)]
        if not names:
            names = [name for name in ("external_ids", "interface_ids") if not set(getattr(wanted, name)) <= set(getattr(bare, name))]
        values = [(name, getattr(bare, name)) for name in names]
        return ", ".join(f"it has no {name}" if value in (None, "", ()) else f"its {name} is {value!r}" for name, value in values)

    def idle(self, view: View) -> str:
        """A datapath in user space reads the tap's frames before the kernel's policer, by which Open vSwitch limits them, sees them."""
        switch = view.ovs_switch(self.bridge) if self.policing else None
        limit = f"{self.device} sends without a limit, rate_out is not enforced"
        return f"{limit}: the datapath of {switch.name} is in user space (datapath_type netdev)" if switch and switch.userspace else ""

    def revert(self, view: View) -> Sequence[Request]:
        if self.kept:
            found = OvsPort(self.device, self.bridge, self.was_tag, self.was_trunks, self.was_mode, self.was_ids, self.was_interface_ids)
            return [ReleaseOvsPort(self.port(), found)]
        # A device that stays: closing it, vswitchd writes back the flags that it remembers, "up" too, over what we undo next.
        return [DeleteOvsPort(self.device, self.owner, wait=view.link_at(self.ifindex) is not None)]

    def identity(self) -> str:
        return f"ovs-port {self.device} {self.owner}"

    def place(self) -> str:
        return f"ovs-port {self.device}"

    def sentence(self) -> str:
        from runtime.format import rate, vlan

        ways = ((self.shaping, "the guest receives"), (self.policing, "the guest sends"))
        limits = [f"{way} at most {rate(kbit * 1000)}" for kbit, way in ways if kbit]
        said = ", ".join(filter(None, [vlan(self.tag, self.trunks), *limits]))
        return f"The device is a port of the Open vSwitch bridge {self.bridge}{': ' if said else ''}{said}."

    def describe(self) -> str:
        port = self.port()
        vlans = f" tag={port.tag}" if port.tag is not None else ""
        vlans += f" trunks={','.join(map(str, port.trunks))}" if port.trunks else ""
        vlans += f" vlan_mode={port.vlan_mode}" if port.vlan_mode else ""
        text = f"ovs-vsctl --if-exists del-port {self.device} -- add-port {self.bridge} {self.device}{vlans}"
        if port.policing:
            text += f" -- set Interface {self.device} ingress_policing_rate={port.policing} ingress_policing_burst={port.burst}"
        if port.shaping:
            made = f"--id=@qos create QoS type=linux-htb other_config:max-rate={port.shaping}"
            text += f" -- set Port {self.device} qos=@qos -- {made}"
        return text

    def undo(self) -> str:
        qos = f" -- destroy QoS <that of {self.device}>" if self.shaping else ""
        return f"ovs-vsctl --if-exists del-port {self.bridge} {self.device}{qos}"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for port in view.ovs_ports():
            yield owned_port(view, port)
        for shaper in view.ovs_shapers():
            text = f"Open vSwitch QoS of the port {shaper.port}, which is gone"
            delete = DeleteOvsPort(shaper.port, shaper.owner)
            yield Owned(f"ovs-port {shaper.port} {shaper.owner}", text, (delete,), shaper.owner, shaper.port)


def owned_port(view: View, port: OvsPort) -> Owned:
    """A port that bears our mark, for gc and for whoever finds it in the way."""
    delete = DeleteOvsPort(port.name, port.owner, wait=view.link(port.name) is not None)  # as in Port.revert
    text = f"Open vSwitch port {port.name} of {port.bridge}"
    return Owned(f"ovs-port {port.name} {port.owner}", text, (delete,), port.owner, port.name)
