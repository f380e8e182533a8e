"""The guests of the demonstration: one per mode, and a routed one with IPv6. Each gets its address by the kernel's command line."""

from __future__ import annotations

from typing import NamedTuple

#: The world outside: what a guest pings to show that it gets anywhere.
WORLD, WORLD6 = "198.51.100.1", "2001:db8::1"

#: A routing table of the administrator, with the only way out for routed guests.
TABLE, TABLE_NUMBER = "guests", 100


class Plan(NamedTuple):
    """What a guest is to be."""

    name: str
    number: int  #: its tap is tap<number>
    mode: str
    address: str  #: with prefix length
    gateway: str  #: as examples/guest/init understands it
    pings: tuple[str, str]  #: what the guest itself pings: the node, and somebody outside
    says: str  #: for the reader
    link: str = ""
    more: tuple[str, ...] = ()  #: further options of ``netcommon define``
    watch: str = ""  #: the address that the guest pings on and on

    @property
    def tap(self) -> str:
        return f"tap{self.number}"

    @property
    def mac(self) -> str:
        return f"52:54:00:99:00:{self.number:02x}"

    @property
    def inner(self) -> str:
        """The address that others ping."""
        return self.address.partition("/")[0]

    @property
    def definition(self) -> tuple[str, ...]:
        """The arguments of ``netcommon define`` for its NIC."""
        link = ("--link", self.link) if self.link else ()
        identity = ("--instance", self.name, "--index", "0", "--mac", self.mac)
        return ("--interface", self.tap, "--mode", self.mode, *link, *identity, *self.more)


PLANS = (
    Plan(
        name="web",
        number=0,
        mode="bridged",
        link="br0",
        address="10.99.1.2/24",
        gateway="10.99.1.9",
        pings=("10.99.1.1", WORLD),
        says="a port of the Linux bridge br0",
    ),
    Plan(
        name="mail",
        number=1,
        mode="routed",
        link=TABLE,
        address="10.99.30.2/32",
        gateway="direct",
        pings=("10.99.3.1", WORLD),
        more=("--ip", "10.99.30.2"),
        says="a route of its own, in a table that knows the way out",
    ),
    Plan(
        name="news",
        number=2,
        mode="routed",
        link=TABLE,
        address="fd99:30::2/128",
        gateway="router",
        pings=("fd99:3::1", WORLD6),
        more=("--ip", "fd99:30::2"),
        says="the same with IPv6",
    ),
    Plan(
        name="shop",
        number=3,
        mode="openvswitch",
        link="ovs0",
        address="10.99.2.2/24",
        gateway="10.99.2.9",
        pings=("10.99.2.1", WORLD),
        more=("--vlan", "10"),
        says="a port of the Open vSwitch bridge ovs0, in VLAN 10",
    ),
    Plan(
        name="test",
        number=4,
        mode="ext",
        address="10.99.4.2/24",
        gateway="10.99.4.1",
        pings=("10.99.4.1", "10.99.3.9"),
        says="nothing but what the site's own script does",
    ),
)
