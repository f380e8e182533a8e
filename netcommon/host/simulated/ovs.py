"""Open vSwitch of a simulated node, with its kernel datapath or without (datapath_type netdev)."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import OVS_MARK, STOPPED, Link, OvsBridge, OvsPort, OvsShaper, Qdisc
from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import PutOvsPort, ReleaseOvsPort, TakeOvsPort
from netcommon.host.ovs.rows import Fake, inside, shown
from netcommon.host.ovs.transaction import OURS
from netcommon.host.simulated.events import ALTERED, GONE, MADE, LinkState, OvsRow
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.api.requests import OvsChange
    from netcommon.host.simulated.kernel import Kernel

SYSTEM = "ovs-system"
USERSPACE = "ovs-netdev"  #: vswitchd makes it with the first bridge of its own datapath

Pairs = tuple[tuple[str, str], ...]


class Condition(NamedTuple):
    """How Open vSwitch is."""

    there: bool = True  #: its socket is
    database: bool = True  #: ovsdb-server answers
    switch: bool = True  #: ovs-vswitchd does its work


class Switch:
    """The database, and what vswitchd makes of it."""

    def __init__(self, kernel: Kernel) -> None:
        self.condition = Condition(there=False)
        self.bridges: dict[str, bool] = {}  #: whether it is of the kernel's datapath
        self.fakes: list[Fake] = []
        self.controlled: set[str] = set()  #: the bridges that have a controller
        self.shapers: list[OvsShaper] = []  #: the QoS rows that we have made
        self.policed: set[str] = set()  #: ports of which others limit what comes in
        self._kernel = kernel
        self._ports: dict[str, OvsPort] = {}
        self._count = 0

    @property
    def away(self) -> bool:
        """Tell whether it is stopped: one that was never there, or was removed, has no bridges."""
        return not self.condition.there and bool(self.bridges)

    def _none(self) -> Answer:
        return Answer(errno.EAGAIN, STOPPED) if self.away else Answer(errno.ENOENT, "there is no Open vSwitch on this node")

    def _row(self, how: str, table: str, name: str, fake_bridge: bool = False) -> None:
        self._kernel.tell(how, OvsRow(table, name, fake_bridge))

    def add_bridge(self, name: str, system: bool) -> None:
        self.condition = self.condition._replace(there=True)
        if name not in self.bridges:
            self._row(MADE, "Bridge", name)
            self._row(MADE, "Port", name)
            self._row(MADE, "Interface", name)
            self._row(ALTERED, "Interface", name)  # its number
        self.bridges[name] = system
        if system and self._kernel.named(SYSTEM) is None:
            self._kernel.add(Link(0, SYSTEM, kind="openvswitch"))
        elif not system and self._kernel.named(USERSPACE) is None:
            self._kernel.add(Link(0, USERSPACE, kind="tun", holders=1))
        self._police_again(self._limited())

    def add_fake_bridge(self, name: str, parent: str, tag: int) -> None:
        """As ovs-vsctl add-br with a parent; its device is vswitchd's own."""
        self._count += 1
        self.fakes.append(Fake(name, parent, tag, _row(self._count)))
        self._row(MADE, "Port", name, fake_bridge=True)
        self._row(MADE, "Interface", name)
        self._row(ALTERED, "Interface", name)
        if self._kernel.named(name) is None:
            system = self.bridges[parent]
            self._kernel.add(Link(0, name, "openvswitch" if system else "tun", holders=-1 if system else 1))

    def retag(self, name: str, tag: int) -> None:
        """Give a fake bridge another VLAN, as its administrator does."""
        self.fakes = [fake._replace(tag=tag) if fake.name == name else fake for fake in self.fakes]
        self._row(ALTERED, "Port", name, fake_bridge=True)

    def control(self, bridge: str) -> None:
        """Give a bridge a controller, as its administrator does."""
        self.controlled.add(bridge)
        self._row(ALTERED, "Bridge", bridge)

    def amend(self, port: OvsPort) -> None:
        """Change the rows of a port that is there, as its administrator does."""
        self._put(port)
        self._police_again(self._limited())

    def switch(self, name: str) -> OvsBridge | None:
        """See View.ovs_switch."""
        real = next((fake.parent for fake in self.fakes if fake.name == name), name)
        return self._about(real) if real in self.bridges else None

    def switches(self) -> list[OvsBridge]:
        """All real bridges."""
        return [self._about(name) for name in self.bridges]

    def _about(self, name: str) -> OvsBridge:
        return OvsBridge(name, name in self.controlled, not self.bridges[name])

    def unused_shapers(self) -> list[OvsShaper]:
        """See View.ovs_shapers."""
        return [each for each in self.shapers if (port := self._ports.get(each.port)) is None or port.owner != each.owner]

    def real(self, name: str) -> OvsPort | None:
        """The port with the real bridge that it is of."""
        return self._ports.get(name)

    def restart(self) -> None:
        """vswitchd starts anew, and numbers its ports in another order. Devices of its own are without it for a moment."""
        for name, system in self.bridges.items():
            link = self._kernel.named(name)
            if link is not None and link.up and not system:
                self._kernel.tell(ALTERED, LinkState(link, False))
                self._kernel.tell(ALTERED, LinkState(link, True))
        for port in reversed(list(self._ports.values())):
            self._count += 1
            self._put(port._replace(ofport=self._count) if port.ofport > 0 else port)

    def police(self, name: str) -> None:
        """Limit what a port takes, as others do, or limit it otherwise: their limits are not shown."""
        had, index = self._limited(), self._kernel.index_of(name)
        self.policed.add(name)
        self._row(ALTERED, "Interface", name)
        if index and self.condition.switch and name not in had:
            self._kernel.tell(MADE, Qdisc(index, "ingress", 0))
        self._police_again(had)

    def _put(self, port: OvsPort, replaced: OvsPort | None = None) -> OvsPort:
        """The rows of a port are so now. ``replaced``: the port of its device that went in the same transaction."""
        before = self._ports.get(port.name)
        self._ports[port.name] = port
        if before is None:
            self._row(MADE, "Port", port.name)
            self._row(MADE, "Interface", port.name)
        elif before != port:
            self._row(ALTERED, "Port", port.name)
        self._limit(before or replaced, port)
        return port

    def _limit(self, before: OvsPort | None, port: OvsPort) -> None:
        """vswitchd puts the limits of a port on its device, as qdiscs of its own. Of another rate it changes a class of its htb."""
        index = self._kernel.index_of(port.name)
        if not index or not self.condition.switch:
            return
        was = before or OvsPort(port.name, port.bridge)
        for kind, had, has in (("ingress", was.policing, port.policing), ("htb", was.shaping, port.shaping)):
            if had and not has:
                self._kernel.tell(GONE, Qdisc(index, kind, 0))
            elif has and not had:
                self._kernel.tell(MADE, Qdisc(index, kind, 0))

    def _limited(self) -> set[str]:
        """Give the ports with a limit of what comes in by them."""
        return {name for name, port in self._ports.items() if port.policing or name in self.policed}

    def _police_again(self, had: set[str]) -> None:
        """Whatever changes in the database, vswitchd removes the qdisc of each port that has had such a limit, and makes it anew."""
        for name in sorted(had & self._limited()) if self.condition.switch else ():
            if index := self._kernel.index_of(name):
                self._kernel.tell(GONE, Qdisc(index, "ingress", 0))
                self._kernel.tell(MADE, Qdisc(index, "ingress", 0))

    def has_bridge(self, name: str) -> bool:
        """Whether it is there, as a real one or a fake one."""
        return name in self.bridges or any(fake.name == name for fake in self.fakes)

    def ports(self) -> list[OvsPort]:
        return [shown(port, self.fakes) for port in self._ports.values()]

    def port(self, name: str) -> OvsPort | None:
        port = self._ports.get(name) or (OvsPort(name, name, kind="internal") if name in self.bridges else None)
        return None if port is None else shown(port, self.fakes)

    def insert(self, port: OvsPort) -> OvsPort:
        """A transaction: the rows of a new port of a real bridge, which vswitchd has not seen."""
        self._count += 1
        had = self._limited()
        before = self._remove(port.name)
        made = port._replace(
            trunks=tuple(sorted(port.trunks)),
            external_ids=tuple(sorted(port.external_ids)),
            interface_ids=tuple(sorted(port.interface_ids)),
            error="",
            ofport=0,
            row=_row(self._count),
        )
        self._put(made, before)
        self._shape(port)
        self._police_again(had)
        return made

    def _shape(self, port: OvsPort) -> None:
        """The QoS row of the port is there if it has a limit of ours."""
        wanted = OvsShaper(port.name, port.owner)
        self.shapers = [each for each in self.shapers if each != wanted] + ([wanted] if port.shaping > 0 else [])

    def update(self, port: OvsPort, before: OvsPort) -> None:
        """A transaction: new VLANs for a port that is there, and whose rows stay."""
        had = self._limited()
        ids = {key: value for key, value in before.external_ids if not key.startswith(OURS)} | dict(port.external_ids)
        interface_ids = dict(before.interface_ids) | dict(port.interface_ids)
        changed = before._replace(
            tag=port.tag,
            trunks=tuple(sorted(port.trunks)),
            vlan_mode=port.vlan_mode,
            external_ids=tuple(sorted(ids.items())),
            interface_ids=tuple(sorted(interface_ids.items())),
            policing=port.policing,
            burst=port.burst,
            shaping=port.shaping,
        )
        self._put(changed)
        self._shape(port)
        self._police_again(had)

    def remove(self, name: str) -> None:
        """A transaction: the rows of a port go. What vswitchd has put on its device stays."""
        self._remove(name)
        self._police_again(self._limited())

    def _remove(self, name: str) -> OvsPort | None:
        port = self._ports.pop(name, None)
        self.policed.discard(name)
        link = self._kernel.named(name)
        if port is not None and link is not None and link.port_kind == "openvswitch" and self.condition.switch:
            self._kernel.put(link._replace(master=0, port_kind=""))
        if port is not None:
            self._row(GONE, "Port", name)
            self._row(GONE, "Interface", name)
        return port

    def execute(self, request: OvsChange) -> Answer:
        """Carries it out."""
        if isinstance(request, ReleaseOvsPort):
            return self.release(request)
        if isinstance(request, TakeOvsPort):
            return self.take(request)
        return self.put(request.port) if isinstance(request, PutOvsPort) else self.delete(request.name, request.owner, request.wait)

    def put(self, port: OvsPort) -> Answer:
        """See PutOvsPort."""
        if not self.condition.there:
            return self._none()
        if not self.condition.database:
            return Answer(errno.ETIMEDOUT, f"OVS port {port.name}: whether it was made is not known")
        if port.bridge not in self.bridges:
            found = inside(port, self.fakes)
            if isinstance(found, Answer):
                return found
            port = port._replace(bridge=found.parent, tag=found.tag)
        if any(not 0 <= vid <= 4095 for vid in (*port.trunks, port.tag or 0)):
            return Answer(errno.EINVAL, f"OVS port {port.name}: constraint violation")
        before = self._ports.get(port.name)
        if before is not None and port.owner and (before.owner, before.bridge) == (port.owner, port.bridge):
            self.update(port, before)
        else:
            self.insert(port)
        if not self.condition.switch:
            return Answer(errno.ETIMEDOUT, f"OVS port {port.name}: it is in the database, but ovs-vswitchd has not taken it")
        self.look()
        taken = self._ports[port.name]
        return Answer(errno.EIO, f"OVS port {port.name}: {taken.error}") if taken.error else DONE

    def take(self, request: TakeOvsPort) -> Answer:
        """See TakeOvsPort."""
        if not self.condition.there:
            return self._none()
        if not self.condition.database:
            return Answer(errno.ETIMEDOUT, f"OVS port {request.name}: whether it is marked is not known")
        port = self.port(request.name)
        if port is None or port.bridge != request.bridge or port.owner not in ("", request.owner):
            return Answer(errno.ENOENT, f"OVS port {request.name}: {request.bridge} has none without a mark")
        ids = dict(port.external_ids) | {OVS_MARK: request.owner}
        self._put(self._ports[request.name]._replace(external_ids=tuple(sorted(ids.items()))))
        return DONE

    def release(self, request: ReleaseOvsPort) -> Answer:
        """See ReleaseOvsPort."""
        made, found = request
        if not self.condition.there:
            return self._none()
        if not self.condition.database:
            return Answer(errno.ETIMEDOUT, f"OVS port {made.name}: whether it is given back is not known")
        fake = next((each for each in self.fakes if each.name == made.bridge), None)
        port = self._ports.get(made.name)
        if port is None or port.owner != made.owner or port.bridge != (fake.parent if fake else made.bridge):
            return Answer(errno.ENOENT, f"OVS port {made.name}: there is none of this NIC")
        given_back = port._replace(
            tag=fake.tag if fake else found.tag,
            trunks=tuple(sorted(found.trunks)),
            vlan_mode=found.vlan_mode,
            external_ids=_as_found(port.external_ids, made.external_ids, found.external_ids),
            interface_ids=_as_found(port.interface_ids, made.interface_ids, found.interface_ids),
            policing=0,
            burst=0,
            shaping=0,
        )
        had = self._limited()
        self._put(given_back)
        self._police_again(had)
        self.shapers = [each for each in self.shapers if each != OvsShaper(made.name, made.owner)]
        return DONE

    def delete(self, name: str, owner: str, wait: bool = False) -> Answer:
        """See DeleteOvsPort. Who waits has limits taken from the device before the port goes."""
        if not self.condition.there:
            return self._none()
        if not self.condition.database:
            return Answer(errno.ETIMEDOUT, f"OVS port {name}: whether it is deleted is not known")
        port, shaper = self._ports.get(name), OvsShaper(name, owner)
        own = port is not None and owner and port.owner == owner
        if not own and shaper not in self.shapers:
            return Answer(errno.ENOENT, f"OVS port {name}: there is none of this NIC")
        self.shapers = [each for each in self.shapers if each != shaper]
        if port is not None and own:
            if wait and (port.policing or port.shaping):
                self._put(port._replace(policing=0, burst=0, shaping=0))
            self.remove(name)
        return DONE

    def look(self) -> None:
        """vswitchd compares its ports with the devices there are, as it does at each event."""
        if not (self.condition.there and self.condition.switch):
            return
        before = dict(self._ports)
        for port in list(self._ports.values()):
            self._put(self._opened(port))
        if before != self._ports:
            self._police_again(self._limited())  # what it has written itself is a change, too

    def _opened(self, port: OvsPort) -> OvsPort:
        if port.ofport > 0 and not self.bridges[port.bridge]:
            return port  # without the kernel's datapath vswitchd does not notice that a device goes
        link = self._kernel.named(port.name)
        if link is None:
            return port._replace(error=f"could not open network device {port.name} (No such device)", ofport=-1)
        if link.kind == "bridge" or link.port_kind == "bridge":
            error = f"could not add network device {port.name} to ofproto (Device or resource busy)"
            return port._replace(error=error, ofport=-1)
        if self.bridges[port.bridge] and not link.master:
            system = self._kernel.named(SYSTEM)
            if system is not None:
                self._kernel.put(link._replace(master=system.index, port_kind="openvswitch"))
        return port._replace(error="", ofport=port.ofport if port.ofport > 0 else self._number())

    def _number(self) -> int:
        """Give a number that no port has: that of the port which was made last, unless its device came before this one's."""
        if any(port.ofport == self._count for port in self._ports.values()):
            self._count += 1
        return self._count


def _as_found(now: Pairs, made: Pairs, found: Pairs) -> Pairs:
    """Put what we have set back to what was found; the rest is as it is now."""
    keys = {key for key, _ in made}
    stays = {key: value for key, value in now if key not in keys and not key.startswith(OURS)}
    return tuple(sorted({**stays, **{key: value for key, value in found if key in keys and not key.startswith(OURS)}}.items()))


def _row(count: int) -> str:
    return f"00000000-0000-4000-8000-{count:012x}"
