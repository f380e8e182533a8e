"""The NICs of the differential tests: those of Ganeti's recorded calls, each once, and generated ones for what no recording has.

Each is what a hypervisor hands to kvm-ifup, and what it finds on the node's place (tests/kernel/differential/place.py).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from tests.support.nics import calls

#: The variables from which a script makes something; two calls that agree in all of them are one environment.
TELLING = ("MODE", "LINK", "IP", "VLAN", "INTERFACE", "NETWORK_NAME")

NETWORK = {
    "NETWORK_NAME": "net-gen",
    "NETWORK_UUID": "5f3b2c1a-9d8e-4f70-8a6b-1c2d3e4f5a6b",
    "NETWORK_SUBNET": "10.77.31.0/24",
    "NETWORK_SUBNET6": "fd77:31::/64",
    "NETWORK_GATEWAY": "10.77.31.1",
    "NETWORK_GATEWAY6": "fd77:31::1",
    "NETWORK_MAC_PREFIX": "aa:77:0a",
    "NETWORK_TAGS": "zone:a zone:b",
}


class Environment(NamedTuple):
    """One call of kvm-ifup."""

    name: str
    variables: Mapping[str, str]
    #: What an earlier guest left on the node before the tap was made: commands, without a shell.
    leftovers: tuple[str, ...] = ()
    #: Whether those stay after our down: what is not ours is not touched.
    kept: bool = False
    #: Needs what only the virtual machine's kernel has: bridges that filter VLANs, Open vSwitch's kernel datapath.
    vm: bool = False

    @property
    def tap(self) -> str:
        return self.variables["INTERFACE"]

    @property
    def mode(self) -> str:
        return self.variables["MODE"]

    @property
    def link(self) -> str:
        return self.variables.get("LINK", "")

    @property
    def ip(self) -> str:
        return self.variables.get("IP", "")

    @property
    def vlan(self) -> str:
        return self.variables.get("VLAN", "")

    @property
    def ipv6(self) -> bool:
        return ":" in self.ip

    @property
    def communication(self) -> bool:
        return self.tap.startswith("gnt.com.")

    @property
    def down(self) -> dict[str, str]:
        """What design-ifdown.rst gives to kvm-ifdown: the NIC, without tags."""
        return {name: value for name, value in self.variables.items() if "TAGS" not in name}


@functools.cache
def recorded() -> tuple[Environment, ...]:
    """Every different NIC of Ganeti 3.0.2's recorded calls of kvm-ifup."""
    found: dict[tuple[str, ...], Environment] = {}
    for where, variables, _arguments in calls():
        if not where.startswith("3.0.2") or "kvm-ifup" not in where or not where.endswith(".environ"):
            continue
        key = tuple(variables.get(name, "") for name in TELLING)
        parts = where.split("/")
        found.setdefault(key, Environment(f"{parts[1]}-{parts[2]}-{parts[-1][:4]}", variables))
    return tuple(found.values())


def _made(number: int, name: str, mode: str, link: str, ip: str = "", vlan: str = "", tap: str = "tap0", **more: str) -> Environment:
    variables = {
        "INTERFACE": tap,
        "MODE": mode,
        "LINK": link,
        "MAC": f"aa:00:00:00:01:{number:02x}",
        "VLAN": vlan,
        "INSTANCE": f"made{number}.gnt.example",
        "INTERFACE_INDEX": str(number % 8),
        "INTERFACE_UUID": f"{number:08x}-0000-4000-8000-0000000000ff",
        "TAGS": "role:test",
        **({"IP": ip} if ip else {}),
        **({"BRIDGE": link} if mode == "bridged" else {}),
        **more,
    }
    return Environment(name, {variable: value for variable, value in variables.items() if value or variable == "VLAN"})


#: name, mode, link, IP, VLAN, tap
_FORMS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("bridged", "bridged", "br0", "", "", "tap0"),
    ("bridged-jumbo", "bridged", "brjumbo", "", "", "tap0"),
    ("bridged-ipv6", "bridged", "br0", "fd77:1::50", "", "tap0"),
    ("bridged-long-name", "bridged", "br0", "", "", "fifteen-letters"),
    ("bridged-dotted-name", "bridged", "br0", "", "", "web1.eth0"),
    ("bridged-missing-bridge", "bridged", "brnone", "", "", "tap0"),
    ("bridged-no-bridge", "bridged", "eth3", "", "", "tap0"),
    ("bridged-vlan-number", "bridged", "br0", "", "10", "tap0"),
    ("bridged-vlan-trunk", "bridged", "br0", "", ":10:20", "tap0"),
    ("bridged-vlan-hybrid", "bridged", "br0", "", ".10:20", "tap0"),
    ("routed-name", "routed", "gntroute", "10.77.31.5", "", "tap0"),
    ("routed-number", "routed", "100", "10.77.31.6", "", "tap0"),
    ("routed-free-number", "routed", "4321", "10.77.31.7", "", "tap0"),
    ("routed-main", "routed", "main", "10.77.31.8", "", "tap0"),
    ("routed-main-number", "routed", "254", "10.77.31.9", "", "tap0"),
    ("routed-no-link", "routed", "", "10.77.31.10", "", "tap0"),
    ("routed-default-table", "routed", "default", "10.77.31.11", "", "tap0"),
    ("routed-bridge", "routed", "br0", "10.77.31.12", "", "tap0"),
    ("routed-ovs-bridge", "routed", "ovs0", "10.77.31.13", "", "tap0"),
    ("routed-unknown-table", "routed", "nosuchtable", "10.77.31.14", "", "tap0"),
    ("routed-local-number", "routed", "255", "10.77.31.15", "", "tap0"),
    ("routed-host-length", "routed", "gntroute", "10.77.31.16/32", "", "tap0"),
    ("routed-address-in-net", "routed", "gntroute", "10.77.31.17/24", "", "tap0"),
    ("routed-prefix", "routed", "gntroute", "10.77.32.0/28", "", "tap0"),
    ("routed-no-ip", "routed", "gntroute", "", "", "tap0"),
    ("routed-vlan-ignored", "routed", "gntroute", "10.77.31.18", ".10", "tap0"),
    ("routed-dotted-name", "routed", "gntroute", "10.77.31.19", "", "web1.eth1"),
    ("routed6-name", "routed", "gntroute", "fd77:31::5", "", "tap0"),
    ("routed6-number", "routed", "100", "fd77:31::6", "", "tap0"),
    ("routed6-main", "routed", "main", "fd77:31::7", "", "tap0"),
    ("routed6-no-link", "routed", "", "fd77:31::8", "", "tap0"),
    ("routed6-bridge", "routed", "br0", "fd77:31::9", "", "tap0"),
    ("routed6-host-length", "routed", "gntroute", "fd77:31::a/128", "", "tap0"),
    ("routed6-address-in-net", "routed", "gntroute", "fd77:31::b/64", "", "tap0"),
    ("routed6-prefix", "routed", "gntroute", "fd77:32::/64", "", "tap0"),
    ("routed6-unknown-table", "routed", "nosuchtable", "fd77:31::c", "", "tap0"),
    ("ovs", "openvswitch", "ovs0", "", "", "tap0"),
    ("ovs-other-bridge", "openvswitch", "ovs1", "10.77.2.9", "", "tap0"),
    ("ovs-number", "openvswitch", "ovs0", "", "10", "tap0"),
    ("ovs-access", "openvswitch", "ovs0", "", ".11", "tap0"),
    ("ovs-access-highest", "openvswitch", "ovs0", "", ".4094", "tap0"),
    ("ovs-trunk-one", "openvswitch", "ovs0", "", ":10", "tap0"),
    ("ovs-trunk", "openvswitch", "ovs0", "", ":1:10:4094", "tap0"),
    ("ovs-trunk-unsorted", "openvswitch", "ovs0", "", ":30:20:10", "tap0"),
    ("ovs-hybrid", "openvswitch", "ovs0", "", ".10:20:30", "tap0"),
    ("ovs-hybrid-number", "openvswitch", "ovs0", "", ".1:2", "tap0"),
    ("ovs-dotted-name", "openvswitch", "ovs0", "", ".10", "web1.eth2"),
    ("ovs-missing-bridge", "openvswitch", "ovsnone", "", "", "tap0"),
    ("ovs-linux-bridge", "openvswitch", "br0", "", "", "tap0"),
    ("ext", "ext", "whatever", "10.77.9.9", "", "tap0"),
)

#: With a network, by name of the form above.
_IN_A_NETWORK = ("bridged", "bridged-ipv6", "routed-name", "routed6-name", "ovs-access")

#: With what an earlier guest left: name, form, commands, whether it stays.
_AFTER_OTHERS: tuple[tuple[str, str, tuple[str, ...], bool], ...] = (
    ("ovs-after-stale-port", "ovs-access", ("ovs-vsctl --no-wait add-port ovs1 tap0 tag=77 trunks=1,2",), False),
    ("ovs-after-stale-bond", "ovs", ("ovs-vsctl --no-wait add-port ovs0 tap0 vlan_mode=trunk",), False),
    ("routed-after-stale-rule", "routed-name", ("ip rule add iif tap0 lookup 101 priority 300",), True),
    ("routed-after-later-rule", "routed-name", ("ip rule add iif tap0 lookup 101 priority 700",), True),
    ("bridged-after-stale-rule", "bridged", ("ip rule add iif tap0 lookup 101 priority 300",), True),
)

#: Only in the virtual machine; "brv" filters VLANs there. Forms of above that differ with it, too.
_IN_THE_MACHINE: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("aware-plain", "bridged", "brv", "", "", "tap0"),
    ("aware-access", "bridged", "brv", "", ".10", "tap0"),
    ("aware-default-vid", "bridged", "brv", "", ".1", "tap0"),
    ("aware-trunk", "bridged", "brv", "", ":20:30", "tap0"),
    ("aware-hybrid", "bridged", "brv", "", ".10:30", "tap0"),
    ("unaware-access", "bridged", "br0", "", ".10", "tap0"),
    ("kernel-datapath-hybrid", "openvswitch", "ovs0", "", ".10:20", "tap0"),
)


@functools.cache
def generated() -> tuple[Environment, ...]:
    """The forms that the recordings lack, alone, in a network, and after other guests."""
    forms = [_made(number, name, mode, link, ip, vlan, tap) for number, (name, mode, link, ip, vlan, tap) in enumerate(_FORMS, 1)]
    by_name = {form.name: form for form in forms}
    networked = [
        by_name[name]._replace(name=f"{name}-in-network", variables={**by_name[name].variables, **NETWORK}) for name in _IN_A_NETWORK
    ]
    after = [by_name[form]._replace(name=name, leftovers=commands, kept=kept) for name, form, commands, kept in _AFTER_OTHERS]
    return (*forms, *networked, *after)


@functools.cache
def machine() -> tuple[Environment, ...]:
    """Those of the virtual machine."""
    return tuple(
        _made(number, name, mode, link, ip, vlan, tap)._replace(vm=True)
        for number, (name, mode, link, ip, vlan, tap) in enumerate(_IN_THE_MACHINE, 101)
    )


def environments() -> tuple[Environment, ...]:
    """All of them."""
    return (*recorded(), *generated(), *machine())
