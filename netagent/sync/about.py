"""Tell what there is on the node itself: its addresses and NICs, bridges, switches, tables and VLANs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from netcommon import __version__
from netcommon.host.api.facts import AF_INET, AF_INET6
from netregistry.model.node import About, Interface
from runtime import validate
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from netcommon.host.api.facts import Address, Link
    from netcommon.host.api.host import View

MOST, MANY = 100, 1000
ALONE = 128  #: the length of an address without a prefix
LOOPBACK = ("127.0.0.1", "::1")


def about(view: View, node: str) -> About:
    """Give what there is. ``node``: its UUID, of which those of its NICs are made. Raises NetcommonError where the kernel does not tell.

    What it provides for networks (their tag) is a bridge, a switch or a table of that name.
    """
    links = view.links()
    of: dict[int, list[str]] = {}
    for address in view.addresses():
        if address.address not in LOOPBACK and _usable(address.address) and not _is_endpoint(address):
            of.setdefault(address.index, []).append(address.address)
    bridges = tuple(sorted(link.name for link in links if link.kind == "bridge" and _sayable(link.name))[:MANY])
    switches, tables = _switches(view), _tables(view)
    hardware = [link for link in links if not link.kind and _mac(link) and _sayable(link.name)]
    # each guest's device has one that is good on that link alone: a start of a guest would be news of the node
    addresses = sorted({each for found in of.values() for each in found if not each.startswith("fe80:")})
    return About(
        __version__,
        tuple(addresses[:MOST]),
        tuple(_interface(link, node, of.get(link.index, [])) for link in hardware[:MOST]),
        bridges,
        tables,
        switches,
        tuple(sorted({link.vlan for link in links if 1 <= link.vlan <= 4094})),
        tuple(sorted({each for each in (*bridges, *switches, *tables) if _tag(each)}))[:MOST],
    )


def _is_endpoint(address: Address) -> bool:
    """Tell whether an address may be that of an endpoint, which comes and goes with a guest (netcommon.operations.underlay)."""
    return address.deprecated and address.length == ALONE


def _tables(view: View) -> tuple[str, ...]:
    """Give the numbers of the routing tables that policy rules lead to, and the names of tables, by which NICs and tags call them."""
    numbers = {rule.table for family in (AF_INET, AF_INET6) for rule in view.rules(family) if rule.table}
    return tuple(dict.fromkeys((*map(str, sorted(numbers)), *sorted(filter(_sayable, view.named_tables())))))[:MANY]


def _sayable(name: str) -> bool:
    """Tell whether a registry takes a device's name, of which the kernel allows nearly any: one that it refuses hid all others."""
    try:
        return bool(validate.name(name, ""))
    except NetcommonError:
        return False


def _tag(name: str) -> bool:
    try:
        return validate.tags(name, "") == (name,)
    except NetcommonError:
        return False


def _interface(link: Link, node: str, addresses: list[str]) -> Interface:
    made = str(uuid.uuid5(uuid.UUID(node), _mac(link)))
    return Interface(made, link.name, _mac(link), link.up, tuple(dict.fromkeys(addresses))[:MOST])


def _switches(view: View) -> tuple[str, ...]:
    try:
        return tuple(sorted(each.name for each in view.ovs_switches() if _sayable(each.name)))[:MOST]
    except NetcommonError:
        return ()


def _mac(link: Link) -> str:
    """Give the MAC of a device, "" for one that no NIC has (the loopback's)."""
    try:
        return validate.mac(link.address, "") if link.address and link.address != "00:00:00:00:00:00" else ""
    except NetcommonError:
        return ""


def _usable(address: str) -> bool:
    try:
        return bool(validate.address(address, "", length=False))
    except NetcommonError:
        return False
