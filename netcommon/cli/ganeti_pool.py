"""Say which addresses that a registry has given out Ganeti's own pool may give out too: that knows nothing of a registry."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Any

from netcommon.cli.output import say

Item = dict[str, Any]


def unreserved(network: Item, addresses: Iterable[str]) -> list[str]:
    """Give the IPv4 addresses that the pool of a Ganeti network may give out: none of what Ganeti reserves, nor of any other network."""
    if not network["master"].startswith("ganeti:"):
        return []
    kept = [(IPv4Address(each["first"]), IPv4Address(each["last"])) for each in network["reserved"] if ":" not in each["first"]]
    found = [IPv4Address(each) for each in addresses if ":" not in each]
    return [str(each) for each in found if not any(first <= each <= last for first, last in kept)]


def warn(asked: Any, before: Item | None, nic: Item, network: Item | None = None) -> None:
    """Say on standard error what is to be reserved in Ganeti, of what a NIC has now and had not before.

    ``asked``: the registry, which is asked for the NIC's ``network`` where that is not given.
    """
    had = {before["ip"], *before["addresses"]} if before is not None and before["network"] == nic["network"] else set()
    own = [] if nic["master"].startswith("ganeti:") or not nic["ip"] else [nic["ip"]]
    given = [each for each in (*own, *nic["addresses"]) if each not in had]
    if not nic["network"] or not given:
        return
    network = network or asked.get(f"networks/{nic['network']}").body["network"]
    for each in unreserved(network, given):
        command = f"gnt-network modify --add-reserved-ips={each} {network['name']}"
        say(f"netcommon: Ganeti does not know that {each} is given out, and its pool may give it out too: {command}", err=True)
