"""Per-device network settings of the kernel (Documentation/networking/ip-sysctl.rst), on the NIC's own device and on its uplinks."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL
from netcommon.host.api.requests import SetSysctl
from netcommon.operations.base import ABSENT, FINDINGS, FOREIGN, IP_FAMILIES, Operation, Waiting, before
from netcommon.operations.link import device_link, link_of
from netcommon.operations.routed_uplink import absent, lacking, moved, no_uplink, on, on_uplink, uplinks
from netcommon.operations.table import renumbered, table_number
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

RP_FILTER, PROXY_NDP, DISABLE_IPV6, FORWARDING = "rp_filter", "proxy_ndp", "disable_ipv6", "forwarding"

#: What settings of a device mean, for people who do not know them.
MEANINGS = {
    "proxy_arp": "the node answers the guest's ARP requests for everything it routes",
    PROXY_NDP: "the node answers neighbour solicitations for addresses that it was told",
    FORWARDING: "the node forwards what comes from this device",
    RP_FILTER: "what comes with a source address of elsewhere is dropped (1 strict, 2 loose) or not (0)",
    "accept_local": "packets from the node's own addresses are taken",
}

#: By which a device's guest is refused more: values, each of which drops what the one before it drops, and more.
STRICTER = {RP_FILTER: ("0", "2", "1"), DISABLE_IPV6: ("0", "1"), FORWARDING: ("1", "0")}

#: IFAPROT_KERNEL_LO, _RA and _LL (linux/if_addr.h, 5.18 and later): the kernel has made the address, and makes it again.
OF_THE_KERNEL = (1, 2, 3)


def path_of(family: int, device: str, name: str) -> str:
    """Relative to /proc/sys; with slashes, since a device may have dots in its name."""
    return f"net/{'ipv4' if family == AF_INET else 'ipv6'}/conf/{device}/{name}"


def reverse_path(view: View, device: str) -> tuple[int, int]:
    """Return rp_filter of the device and of all devices; the larger one counts."""
    own, every = (view.sysctl(path_of(AF_INET, each, RP_FILTER)) or "0" for each in (device, "all"))
    return int(own), int(every)


def dropped(view: View, device: str, operations: Sequence[Operation]) -> Sequence[tuple[str, str]]:
    """Return what the kernel's reverse path filter drops of a routed guest's packets though all that was done holds: why, and what helps.

    Raises TryAgain.
    """
    own, every = reverse_path(view, device)
    if not (own or every):
        return ()
    from netcommon.operations import reverse_path as filtering  # where no such filter is on, nothing is asked

    kept = any(isinstance(one, DeviceSysctl) and one.name == RP_FILTER for one in operations)
    return filtering.dropped(view, operations, filtering.Filter(own, every, kept))


class DeviceSysctlFields(NamedTuple):
    """The fields of DeviceSysctl."""

    family: int
    device: str
    name: str
    value: str
    ifindex: int = 0
    was: str = ""


class DeviceSysctl(DeviceSysctlFields, Operation):
    """net.ipv4.conf.DEVICE.NAME, or net.ipv6, is ``value``. Goes with the device. Nothing on a kernel without the setting.

    A device whose MTU is below 1280 has no settings of IPv6; they come, as the kernel's defaults are, when its MTU is raised.
    """

    __slots__ = ()
    KIND = "sysctl"
    REPAIRED = "sysctls of the device"
    MIGRATION = "of the tap alone"
    CHOSEN = frozenset({"ifindex", "was"})
    BEFORE = frozenset({"was"})
    VALUES = (("family", IP_FAMILIES),)

    def taken_over(self, view: View) -> Operation:
        """Ganeti's script has set it on a device that had the defaults of new ones."""
        new = view.sysctl(self.path.replace(f"/conf/{self.device}/", "/conf/default/")) if self.was == self.value else None
        return self if new is None else self._replace(was=new)

    @property
    def path(self) -> str:
        """Relative to /proc/sys."""
        return path_of(self.family, self.device, self.name)

    def confines(self) -> str:
        """Name the setting where it refuses the guest something; not where what was there before refuses more, for then it opens."""
        values = STRICTER.get(self.name, ())
        opens = self.value != self.was and self._replace(value=self.was).firmer(self)
        return self.name if self.value in values[1:] and not opens else ""

    def firmer(self, before: Operation) -> bool:
        values = STRICTER.get(self.name, ())
        theirs = before._asdict()["value"] if before.place() == self.place() else ""
        return self.value in values and theirs in values and values.index(self.value) >= values.index(theirs)

    def effective(self, view: View) -> Operation:
        """Give it with the larger of its value and that of all devices, where the kernel takes that (rp_filter, ip-sysctl.rst).

        So where all have 1 a device's own 0 is as strict, and its own 2 is looser.
        """
        every = view.sysctl(path_of(AF_INET, "all", RP_FILTER)) if self.name == RP_FILTER else None
        return self._replace(value=max(self.value, every), was=max(self.was, every)) if every else self

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link, was = device_link(view, self.device), view.sysctl(self.path)
        if self.name == RP_FILTER:
            everywhere = view.sysctl(path_of(AF_INET, "all", RP_FILTER)) or "0"
            if int(everywhere) > int(self.value):
                warnings.append(f"net.ipv4.conf.all.rp_filter is {everywhere}, which counts for {self.device} too: the larger one does")
        if (self.name, self.value, was) == (DISABLE_IPV6, "1", "0"):
            _keep_addresses(view, link)
        if was is not None:
            return [self._replace(ifindex=link.index, was=was)]
        return [] if view.sysctl(path_of(self.family, "all", self.name)) is None else [Waiting(self, f"/proc/sys/{self.path}")]

    def apply(self) -> Sequence[Request]:
        return [SetSysctl(self.path, self.value, self.ifindex)]

    def differs(self, view: View) -> str:
        if link_of(view, self.ifindex, self.device) is None:
            return "the device is gone"
        now = view.sysctl(self.path)
        return "" if now in (None, self.value) else f"it is {now}"

    def idle(self, view: View) -> str:
        return "" if view.sysctl(self.path) is not None else f"it waits for /proc/sys/{self.path}"

    def revert(self, view: View) -> Sequence[Request]:
        if link_of(view, self.ifindex, self.device) is None or self.was == self.value or view.sysctl(self.path) != self.value:
            return []
        return [SetSysctl(self.path, self.was, self.ifindex)]

    def place(self) -> str:
        return f"sysctl {self.family} {self.ifindex} {self.name}"

    def sentence(self) -> str:
        family = "IPv4" if self.family == AF_INET else "IPv6"
        return f"In {family}, {self.name} is {self.value}: {MEANINGS.get(self.name, 'see ip-sysctl')}."

    def describe(self) -> str:
        return f"echo {self.value} >/proc/sys/{self.path}"

    def undo(self) -> str:
        return f"echo {before(self.ifindex, self.was)} >/proc/sys/{self.path}"


def _keep_addresses(view: View, link: Link) -> None:
    """Raise HostRefused where the device has IPv6 addresses of somebody's, which go with IPv6 and do not come back with it."""
    theirs = (each for each in view.addresses(link.index) if each.family == AF_INET6 and each.protocol not in (PROTOCOL, *OF_THE_KERNEL))
    found = next((each.address for each in theirs if not each.address.startswith("fe80:")), "")
    if found:
        text = f"{link.name} has the IPv6 address {found}, which it would lose: the NIC has none, so IPv6 is switched off on its device"
        raise HostRefused(text, "remove it, give the NIC an IPv6 address, or keep its spoof guard")


def no_ipv6(device: str) -> DeviceSysctl:
    """The device takes and sends no IPv6 at all."""
    return DeviceSysctl(AF_INET6, device, DISABLE_IPV6, "1")


class UplinkSysctlFields(NamedTuple):
    """The fields of UplinkSysctl."""

    family: int
    name: str
    table: str  #: name or number; "" is main
    number: int = 0
    port: str = ""  #: the uplink; "" where none was found
    ifindex: int = 0
    uplinks: tuple[str, ...] = ()  #: all that were found, this one among them
    found: str = ABSENT
    found_by: str = ""  #: how the uplinks were found (netcommon.operations.routed_uplink)


class UplinkSysctl(UplinkSysctlFields, Operation):
    """A switch of an uplink (proxy_ndp) is on, shared by all NICs that need it; the last one puts it back, if it was we who set it.

    The kernel has no place for a mark here: whether it was on before us is known by the records alone.
    """

    __slots__ = ()
    KIND = "uplink-sysctl"
    REPAIRED = "sysctls of uplinks"
    MIGRATION = "lets the node answer for what has a route or an entry; says nothing of one guest"
    CHOSEN = frozenset({"number", "port", "ifindex", "uplinks", "found", "found_by"})
    BEFORE = frozenset({"found"})
    VALUES = (("family", IP_FAMILIES), ("found", FINDINGS))

    @property
    def path(self) -> str:
        """Relative to /proc/sys."""
        return path_of(self.family, self.port, self.name)

    def shared(self) -> tuple[str, ...]:
        """By the uplink's name, as earlier versions have it, and by its index, which a NIC that comes after a renaming knows too."""
        key = f"uplink-sysctl-{self.family}-{self.name}"
        return (f"{key}@{self.port}", f"{key}@:{self.ifindex}") if self.port else (key,)

    def unmarked(self) -> bool:
        return True

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        number = table_number(view, self.table, warnings)
        now = uplinks(view, self.family, number)
        if not now.links:
            no_uplink(self.family, self.table, now, warnings)
            return [UplinkSysctl(self.family, self.name, self.table, number)]
        if self.family == AF_INET6 and self.name == PROXY_NDP and view.sysctl(path_of(AF_INET6, "all", PROXY_NDP)) == "0":
            warnings.append(
                "net.ipv6.conf.all.proxy_ndp is 0, so the kernel does not answer a router or guest that verifies an address for which "
                "it answers otherwise: packets are lost each time; it is the administrator's to set to 1 (docs/routed.md)"
            )
        made = []
        for link in now.links:
            one = self._replace(number=number, port=link.name, ifindex=link.index, uplinks=now.names, found_by=now.found_by)
            value = view.sysctl(one.path)
            if value is None:
                continue  # a kernel without this family on the device
            if self.family == AF_INET6 and view.sysctl(path_of(AF_INET6, link.name, "forwarding")) == "0":
                warnings.append(
                    f"net.ipv6.conf.{link.name}.forwarding is 0, so the kernel does not answer for guests there: it is the "
                    f"administrator's to set (with accept_ra=2, if the default route comes from router advertisements)"
                )
            made.append(one._replace(found=ABSENT if value == "0" else FOREIGN))
        return made

    def idle(self, view: View) -> str:
        return "" if self.port else lacking(self.family, self.table, uplinks(view, self.family, self.number))

    def waits(self, view: View) -> bool:
        known = bool(self.port) and not renumbered(view, self.table, self.number)  # of another table nothing is known yet
        return known and absent(view, self.family, self.number, self.found_by)

    def apply(self) -> Sequence[Request]:
        return [SetSysctl(self.path, "1", self.ifindex)] if self.port and self.found != FOREIGN else []

    def differs(self, view: View) -> str:
        away = renumbered(view, self.table, self.number) or moved(view, self.family, self.number, self.uplinks, self.found_by)
        if away or not self.port:
            return away
        now = view.sysctl(self.path)
        # of another name it is not among the uplinks that there were
        if now is None or link_of(view, self.ifindex, self.port) is None:
            if self.waits(view):
                return ""  # it comes back with its uplink, which is another device then
            return f"{self.port} is gone" if now is None else f"{self.port} is another device now"
        return "it is 0" if now == "0" else ""

    def revert(self, view: View) -> Sequence[Request]:
        """The switch went with its device; another of the same name is not ours to change. Renamed, it has the switch still.

        Another device may have its index by now: one of another name is ours only if it has entries of ours, which go with a device too.
        """
        link = view.link_at(self.ifindex) if self.port and self.ifindex > 0 else None
        if link and link.name != self.port and not any(entry.protocol == PROTOCOL for entry in view.neighbours(self.family, link.index)):
            return []
        path = path_of(self.family, link.name, self.name) if link else ""
        return [SetSysctl(path, "0", self.ifindex)] if path and self.found != FOREIGN and view.sysctl(path) == "1" else []

    def identity(self) -> str:
        return f"uplink-sysctl {self.family} {self.name} {self.ifindex}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        family = "IPv4" if self.family == AF_INET else "IPv6"
        return f"In {family}, {self.name} is on {on_uplink(self.port)}: the node may answer for guests there."

    def describe(self) -> str:
        return f"echo 1 >/proc/sys/{path_of(self.family, on(self.port, self.table), self.name)}"

    def undo(self) -> str:
        if self.found == FOREIGN:
            return "nothing: it was so before"
        return f"echo 0 >/proc/sys/{path_of(self.family, on(self.port, self.table), self.name)}, with the last NIC that needs it"
