"""Describe a NIC by variables, as a hypervisor does for its hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netregistry.model.network import Network
    from netregistry.model.nic import Nic


def variables(nic: Nic, network: Network | None, device: str) -> dict[str, str]:
    """Give the variables by which a hypervisor describes a NIC (gnt-instance(8), kvm-ifup)."""
    found = {
        "INTERFACE": device,
        "INTERFACE_UUID": nic.uuid,
        "INTERFACE_NAME": nic.name,
        "INTERFACE_INDEX": "" if nic.index is None else str(nic.index),
        "INSTANCE": nic.instance,
        "MODE": nic.mode,
        "LINK": nic.link,
        "MAC": nic.mac,
        "IP": nic.ip,
        "VLAN": nic.vlan,
        "TAGS": " ".join(nic.tags),
    }
    if network is not None:
        found |= {
            "NETWORK_NAME": network.name,
            "NETWORK_UUID": network.uuid,
            "NETWORK_SUBNET": network.subnet,
            "NETWORK_SUBNET6": network.subnet6,
            "NETWORK_GATEWAY": network.gateway,
            "NETWORK_GATEWAY6": network.gateway6,
            "NETWORK_MAC_PREFIX": network.mac_prefix,
            "NETWORK_TAGS": " ".join(network.tags),
        }
    # like Ganeti: VLAN is always there, the others only where they say something
    return {name: value for name, value in found.items() if value or name == "VLAN"}
