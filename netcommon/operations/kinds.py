"""Kinds of the [agent] settings, and what [repair] may name."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from netcommon.kinds import Seconds

#: What is done about an operation that does not hold any more.
REPAIRS = ("off", "report", "on")

#: Each kind of operation (netcommon.operations.KINDS), and what of a NIC it is.
REPAIRED = {
    "link": "the device's MTU, MAC, alias, and that it is up",
    "steady-address": "the host's side has the same MAC for every NIC",
    "guard-table": "the nftables table of the spoof guard",
    "delivery-table": "the nftables table of what bridges deliver to guarded guests",
    "guard": "the NIC's entries in them",
    "gateway-arp-table": "the nftables table for ARP in the gateway's name",
    "gateway-arp": "the NIC's entries in it",
    "access-table": "the nftables tables of what guests reach of the node",
    "access": "the NIC's entries in them",
    "bridge-port": "the device is a port of its bridge",
    "bridge-vlans": "the VLANs of the NIC's port",
    "uplink-vlan": "the guests' VLANs on a bridge's uplinks",
    "port-flag": "the flags of the NIC's port, such as isolated",
    "fdb-entry": "the static entry of the guest's MAC",
    "sysctl": "sysctls of the device",
    "rule": "policy rules",
    "mark-table": "the nftables tables that mark what routed guests send",
    "mark": "the NIC's entries in them",
    "mark-rule": "the policy rule of such a mark",
    "route": "routes to the guest's addresses",
    "prefix-route": "routes to the prefixes behind the guest",
    "blackhole": "what holds a guest's addresses while it is down",
    "neighbour": "proxy entries on uplinks",
    "gateway-neighbour": "proxy entries for the gateway on the device",
    "uplink-sysctl": "sysctls of uplinks",
    "address": "addresses of the device",
    "firewall": "the firewall's tables",
    "firewall-nic": "the NIC's place in them",
    "shaper": "the limit of what the guest receives",
    "police": "the limit of what the guest sends",
    "ovs-port": "the port in Open vSwitch",
    "ovs-link-shut": "the device is down while it is no port in Open vSwitch",
    "ovs-link-mtu": "the device has the MTU of the Open vSwitch bridge",
    "ovs-link-open": "the device is up as a port whose flows are there",
    "flows": "OpenFlow flows",
    "flows-end": "their end, after that of the port",
    "file": "files for DHCP servers",
    "daemon": "the DHCP server of instance communication",
}


class Delay(NamedTuple):
    """Seconds, or "auto"."""

    seconds: Seconds

    @property
    def expected(self) -> str:
        return f'"auto", or {self.seconds.expected}'

    def read(self, value: Any) -> object:
        return value if value == "auto" else self.seconds.read(value)


class Listen(NamedTuple):
    """An address with a port, or the path of a Unix socket; "" for none. Read in canonical form."""

    @property
    def expected(self) -> str:
        return 'an address with a port such as "127.0.0.1:9642" or "[::1]:9642", the path of a Unix socket, or ""'

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError
        if not value:
            return value
        if value.startswith("/"):
            if value.endswith("/") or len(value.encode()) > 107:  # sun_path, unix(7)
                raise ValueError
            return value
        host, colon, port = value.rpartition(":")
        six = host.startswith("[") and host.endswith("]")
        if not colon or not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16):
            raise ValueError
        family = AF_INET6 if six else AF_INET
        try:
            host = inet_ntop(family, inet_pton(family, host.strip("[]") if six else host))
        except OSError:
            raise ValueError from None
        return f"[{host}]:{int(port)}" if six else f"{host}:{int(port)}"
