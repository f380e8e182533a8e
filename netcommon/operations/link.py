"""Settings of the NIC's own device: its alias (our mark), MAC address, MTU, being up, and being no port (ip-link(8))."""

from __future__ import annotations

from netcommon.host.api.requests import SetLink
from netcommon.operations.base import Operation, before, replaced
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

ALIAS, ADDRESS, MTU, UP, MASTER = "alias", "address", "mtu", "up", "master"
#: What each setting means, for people who do not know the commands.
SENTENCES = {
    ALIAS: "The device says whose it is: `ip link` shows the NIC's UUID and guest.",
    ADDRESS: "The host's side of the device has the MAC {value}.",
    MTU: "The device takes frames as long as its bridge does: mtu {value}.",
    UP: "The device is switched on.",
    MASTER: "The device is no port of a bridge: the node routes what the guest sends.",
}
ETHERNET = 1500  #: ETH_DATA_LEN (linux/if_ether.h)
ALIAS_LIMIT = 255  # bytes; the kernel's IFALIASZ is 256 with the terminating NUL


def device_link(view: View, device: str) -> Link:
    """The link ``device``. Raises HostRefused where there is none."""
    link = view.link(device)
    if link is None:
        raise HostRefused(f"device {device} does not exist", "its hypervisor makes it when the guest starts")
    return link


def link_of(view: View, ifindex: int, device: str) -> Link | None:
    """The link that was ``device`` when ``ifindex`` was noted; None where that is gone, or the index or name is another's by now."""
    link = view.link_at(ifindex)
    return link if link is not None and link.name == device else None


def bridge_link(view: View, name: str, index: int = 0, port: Link | None = None) -> Link:
    """The bridge ``name``; where ``port``, the NIC's device, is still in the one that had this name when ``index`` was noted, that one.

    An index alone tells nothing: where a bridge was deleted, another may have its index by now, and be another network.

    Raises HostRefused where there is none, or it is something else.
    """
    noted = view.link_at(index) if index > 0 and port is not None and port.master == index else None
    bridge = noted if noted is not None and noted.kind == "bridge" else view.link(name)
    if bridge is None:
        raise HostRefused(f"bridge {name} does not exist", "create it, or correct the NIC's LINK")
    if bridge.kind != "bridge":
        raise HostRefused(f"{name} is no Linux bridge but {bridge.kind or 'another device'}", "correct the NIC's LINK or MODE")
    return bridge


def marked(link: Link) -> bool:
    """Whether the link's alias is a mark of ours: a UUID, a space, and more."""
    uuid, space, rest = link.alias.partition(" ")
    return bool(space and rest) and len(uuid) == 36 and uuid.count("-") == 4 and set(uuid) <= set("0123456789abcdef-")


def too_narrow(bridge: str, link: Link, ports: Sequence[Link]) -> str:
    """Say by which of ``ports``, whose MTU is less than that of ``link``, the guest's longest frames cannot leave; "" where by all."""
    if not ports:
        return ""
    least = min(ports, key=lambda port: (port.mtu, port.index))
    more = f" (and by {len(ports) - 1} more)" if len(ports) > 1 else ""
    remedy = f"ip link set dev {least.name} mtu {link.mtu}, if what is behind it takes that"
    return f"for what leaves {bridge} by {least.name}{more}, which has {least.mtu}: {remedy}"


def down_mark(uuid: str) -> str:
    """Give the alias of a device whose NIC was taken down while its record could not be written, and says still that it is up."""
    return f"{uuid} /down"  # no instance or device has a name that begins so


def _bridge(link: Link) -> int:
    """Give the index of what the link is a port of, 0 for none; a VRF takes none of its frames from those who route."""
    return 0 if link.port_kind == "vrf" else link.master


class LinkSettingFields(NamedTuple):
    """The fields of LinkSetting."""

    device: str
    setting: str
    wanted: str | int | bool = ""  #: "" where the host decides: address and mtu
    bridge: str = ""
    ifindex: int = 0
    value: str | int | bool = ""
    was: str | int | bool = ""
    master: int = 0  #: the index of ``bridge``


class LinkSetting(LinkSettingFields, Operation):
    """One setting of the device.

    alias    the NIC's UUID, then instance and index: whoever types ``ip link`` sees it
    address  the one wanted; else its own MAC with the first octet fe, so that a bridge never takes it for its own
    mtu      that of ``bridge``: a tap with a smaller one would shrink the bridge's. Of a guest that runs it is not lowered (``retained``)
    up       IFF_UP
    master   none: it is no port of a bridge, which would take its frames; a VRF is left. Right before ``up`` it costs no message

    All of it goes with the device. For a device that stays (a persistent tap), what was there before is put back, but only while the
    value is still the one that we set. One that was up stays up only if nobody holds it: the guest would speak to the node itself.
    """

    __slots__ = ()
    KIND = "link"
    REPAIRED = "the device's MTU, MAC, alias, and that it is up"
    MIGRATION = "of the tap alone"
    CHOSEN = frozenset({"ifindex", "value", "was", "master"})
    BEFORE = frozenset({"was"})
    VALUES = (("setting", frozenset({ALIAS, ADDRESS, MTU, UP, MASTER})),)

    def lets_in(self) -> bool:
        return self.opens()

    def marks(self) -> bool:
        return self.setting == ALIAS

    def opens(self) -> bool:
        return self.setting == UP and self.wanted is True

    def taken_over(self, view: View) -> Operation:
        if self.setting == UP:
            return self._replace(was=False)
        return self._replace(was="") if self.setting == ALIAS and self.was == self.value else self

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        link = device_link(view, self.device)
        if self.setting == MASTER:
            return [self._replace(ifindex=link.index, value=0, was=0)]  # a port of somebody's is refused; what was ours is inherited
        value, master = self.wanted, 0
        if self.setting == ADDRESS:
            value = self.wanted or "fe" + link.address[2:]
        elif self.setting == MTU:
            # a record of an earlier version does not tell which bridge it was, which may have another name by now
            untold = link.master if self.ifindex and not self.master and view.link(self.bridge) is None else 0
            bridge = bridge_link(view, self.bridge, self.master or untold, link)
            value, master = bridge.mtu, bridge.index
            if value == ETHERNET:
                value = max(value, view.mtu_below(bridge))  # somebody has set the bridge's, and its ports take more
        return [self._replace(ifindex=link.index, value=value, was=self._now(link), master=master)]

    def retained(self, like: Operation, earlier: Iterable[Operation]) -> Operation:
        """The bridge may have been made anew, or have lost its uplink: it has the MTU of its ports again when the device is one of them.

        A device whose MTU somebody else has set is the bridge's to tell.
        """
        value = like._asdict().get("value")
        if self.setting != MTU or not (isinstance(value, int) and isinstance(self.value, int) and value > self.value):
            return self
        given = [one._asdict().get("value") for one in earlier if one.place() == self.place()]
        return self._replace(value=value) if self.was in given else self

    def of_running(self) -> Operation:
        larger = self.setting == MTU and isinstance(self.was, int) and isinstance(self.value, int) and self.was > self.value
        return self._replace(value=self.was) if larger else self

    def inherited(self) -> Operation:
        """Its own MAC is the one that it had before us, not what we, or others since, have made of it."""
        return self._replace(value="fe" + str(self.was)[2:]) if self.setting == ADDRESS and not self.wanted else self

    def _now(self, link: Link) -> str | int | bool:
        now: str | int | bool = getattr(link, self.setting)
        return now

    def apply(self) -> Sequence[Request]:
        return [self._request(self.value)]

    def _request(self, value: str | int | bool) -> SetLink:
        changes: dict[str, Any] = {self.setting: value}
        return SetLink(self.ifindex, **changes)

    def differs(self, view: View) -> str:
        link = link_of(view, self.ifindex, self.device)
        if link is None:
            return "the device is gone"
        if self.setting == MASTER:
            other = view.link_at(link.master)
            return f"it is a port of {other.name if other else 'another device'}" if _bridge(link) else ""
        now = self._now(link)
        shown = repr(now) if self.setting != UP else "up" if now else "down"
        return "" if now == self.value else f"it is {shown}"

    def outgrown(self, view: View, ours: Callable[[], Collection[str]]) -> Operation:
        """Give it the MTU of the bridge's other ports where the device may be what keeps the bridge below them.

        It is 1500 then: what a bridge has that had no ports, or an uplink with the usual MTU, when the device joined. Only ports that are
        no NIC's of ours count: so each device comes to the same, in whichever order, and none is lowered again. A bridge to which somebody
        has given 1500 since looks the same until the device has the larger one; then it stays as it is, and that is all.
        """
        link = link_of(view, self.ifindex, self.device) if self.setting == MTU else None
        if link is None or not link.master or (link.mtu, link.mtu, link.master) != (ETHERNET, self.value, self.master):
            return self
        bridge = view.link_at(link.master)
        if bridge is None or bridge.kind != "bridge" or bridge.mtu != link.mtu:
            return self
        least = view.least_mtu(bridge, ours)
        return self._replace(value=least) if least > link.mtu else self

    def idle(self, view: View) -> str:
        """A bridge forwards by the MTU of the port that a frame leaves by, whatever its own is (is_skb_forwardable())."""
        link = link_of(view, self.ifindex, self.device) if self.setting == MTU else None
        bridge = view.link_at(link.master) if link is not None and link.master else None
        if link is None or bridge is None or bridge.kind != "bridge":
            return ""
        narrow = [port for port in view.ports(bridge.index) if port.mtu < link.mtu and not marked(port)]
        if narrow and bridge.vlan_filtering:
            own = {vlan.vid for vlan in view.vlans(link.index)}
            narrow = [port for port in narrow if not own.isdisjoint(vlan.vid for vlan in view.vlans(port.index))]
        return too_narrow(bridge.name, link, narrow)

    def revert(self, view: View) -> Sequence[Request]:
        link = link_of(view, self.ifindex, self.device)
        if link is None or not self._is_ours(self._now(link)):
            return []
        if self.setting == MASTER and not (isinstance(self.was, int) and view.link_at(self.was)):
            return []  # the bridge that it was a port of before us has gone, or there was none
        was = False if self.setting == UP and link.holders else self.was
        return [self._request(was)] if was != self.value else []

    def _is_ours(self, now: str | int | bool) -> bool:
        return now == self.value or (self.setting == ALIAS and now == down_mark(str(self.value).partition(" ")[0]))

    def place(self) -> str:
        return f"bridge-port {self.ifindex}" if self.setting == MASTER else f"link {self.ifindex} {self.setting}"

    def sentence(self) -> str:
        if self.setting == UP and not self.wanted:
            return "The device is switched off."
        return SENTENCES[self.setting].format(value=self.value or self.wanted or "of the host's choice")

    def describe(self) -> str:
        if self.setting == UP:
            return f"ip link set dev {self.device} {'up' if self.wanted else 'down'}"
        if self.setting == MASTER:
            return f"ip link set dev {self.device} nomaster"
        unknown = "<its own, first octet fe>" if self.setting == ADDRESS else f"<that of {self.bridge}>"
        return f"ip link set dev {self.device} {self.setting} {self.value or self.wanted or unknown}"

    def undo(self) -> str:
        if self.setting == UP:
            return f"ip link set dev {self.device} down" + (", unless nobody holds it: it was up before" if self.was else "")
        if self.setting == MASTER:
            return "nothing: it was no port" if not self.was else f"ip link set dev {self.device} master <as it was>"
        return f"ip link set dev {self.device} {self.setting} {before(self.ifindex, self.was)}"


#: What tells of our mark on the device in an operation as a record has it.
MARK: Mapping[str, object] = {"kind": LinkSetting.KIND, "setting": ALIAS}


def is_mark(stored: Mapping[str, object]) -> bool:
    """Tell whether an operation, as a record has it, is our mark on the device."""
    return all(stored.get(name) == value for name, value in MARK.items())


def marked_down(device: str, ifindex: int, uuid: str) -> Operation:
    """Give what notes on the device itself that its NIC is down."""
    return LinkSetting(device, ALIAS, ifindex=ifindex, value=down_mark(uuid))


def shut(device: str, ifindex: int) -> Operation:
    """Give what takes the device down while what decides where its frames go is not in place: a bridge's default VLAN, table main."""
    return LinkSetting(device, UP, False, ifindex=ifindex, value=False)


def orphan(operation: Operation) -> Operation:
    """``operation`` for a device that is certainly gone (an earlier boot): no interface index of its can match any more."""
    return replaced(operation, ifindex=-1) if "ifindex" in operation._asdict() else operation
