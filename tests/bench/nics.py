"""The NICs that are measured: what a hypervisor says of each, by mode and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.rundoor import BASE

BRIDGE, SWITCH, TABLE = "br0", "ovs0", "100"

#: By the names of the tables and bars.
MODES: dict[str, Mapping[str, str]] = {
    "bridged": {"MODE": "bridged", "LINK": BRIDGE, "BRIDGE": BRIDGE},
    "routed": {"MODE": "routed"},
    "routed + table": {"MODE": "routed", "LINK": TABLE},
    "ovs": {"MODE": "openvswitch", "LINK": SWITCH},
    "ovs tag": {"MODE": "openvswitch", "LINK": SWITCH, "VLAN": ".10"},
    "ovs trunk": {"MODE": "openvswitch", "LINK": SWITCH, "VLAN": ".10:20:30"},
}
KERNEL = ("bridged", "routed", "routed + table")
SWITCHED = ("ovs", "ovs tag", "ovs trunk")
UNGUARDED = "netcommon:*:spoof_guard:off"


class Measured(NamedTuple):
    """One NIC, by a number of its own. ``link``: another bridge than the mode's."""

    mode: str
    number: int
    guard: bool = False
    link: str = ""

    @property
    def tap(self) -> str:
        return f"tap{self.number}"

    @property
    def ip(self) -> str:
        return f"10.{self.number >> 16 & 255}.{self.number >> 8 & 255}.{self.number & 255}"

    @property
    def mac(self) -> str:
        return f"aa:00:00:{self.number >> 16 & 255:02x}:{self.number >> 8 & 255:02x}:{self.number & 255:02x}"

    @property
    def uuid(self) -> str:
        return f"11111111-1111-4111-8111-{self.number:012x}"

    @property
    def variables(self) -> dict[str, str]:
        """What the hook gets, and nothing else."""
        return {
            **BASE,
            "INTERFACE": self.tap,
            "INTERFACE_INDEX": "0",
            "INTERFACE_UUID": self.uuid,
            "INSTANCE": f"web{self.number}.example.com",
            "MAC": self.mac,
            "IP": self.ip,
            "VLAN": "",
            "TAGS": "" if self.guard else UNGUARDED,
            **MODES[self.mode],
            **({"LINK": self.link, "BRIDGE": self.link} if self.link else {}),
        }
