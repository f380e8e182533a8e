"""Give every node of a cloud a NIC of its own in a network, and take it away."""

from __future__ import annotations

from socket import AF_INET
from typing import TYPE_CHECKING, Any

from mockcloud import sysinfo
from mockcloud.externals import NoRoom, external
from mockcloud.hardware import taken
from mockcloud.networks import own_uuid
from runtime import validate
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.sysinfo import Sysinfo

MOST = 20  #: networks in which every node has a NIC


def attach(cloud: MockCloud, name: str, subnet: str = "") -> list[Sysinfo]:
    """Give every node, those made later too, a NIC of its own in a network; one that is not there is made with ``subnet``.

    One that has no room for all nodes is refused, and everything is as before. Raises NicInvalid, HostRefused, Problem.
    """
    validate.interface(name, "NETWORK")
    if of := taken(name):
        raise NicInvalid("NETWORK", name, f"a name that no device has: {of}")
    new = name not in cloud.external
    if new and len(cloud.external) >= MOST:
        raise HostRefused(f"every node has {MOST} NICs of its own already", "take another away first (--remove)")
    there = True
    if subnet:
        validate.prefix(subnet, "--subnet", AF_INET)
        there = any(True for _ in cloud.registry.client().all("networks", name=name))
        cloud.network(name, {"subnet": subnet})
    network = cloud.networks.named(name)
    cloud.attaches((*(each for each in cloud.external if each != name), name))
    try:
        return [_attached(cloud, each, name, network) for each in sysinfo.look(cloud.root).nodes]
    except NoRoom as refused:
        if not new:  # nodes have had NICs there before
            raise
        detach(cloud, name)
        if not there:
            cloud.gone(f"networks/{network['uuid']}")
        raise NoRoom(refused.why, "nothing has changed; a larger network has room for all nodes") from None


def _attached(cloud: MockCloud, one: Sysinfo, name: str, network: Mapping[str, Any]) -> Sysinfo:
    cloud.others()
    if any(each.name == name for each in one.external):
        return one
    own = external(cloud.networks, one.uuid, one.hostname, name, network)
    found = one._replace(external=(*one.external, own))
    sysinfo.write(cloud.root, found)
    if one.uuid in cloud.nodes:
        cloud.hypervisors[one.uuid].attach(own)
    return found


def detach(cloud: MockCloud, name: str) -> list[Sysinfo]:
    """Take the NICs in a network from every node; the network stays. Raises HostRefused, Problem."""
    if name not in cloud.external:
        raise HostRefused(f"no node has a NIC of its own in {escaped(name)}", f"one of {', '.join(cloud.external) or 'none'}")
    nodes = [_detached(cloud, each, name) for each in sysinfo.look(cloud.root).nodes]
    cloud.attaches(tuple(each for each in cloud.external if each != name))
    return nodes


def _detached(cloud: MockCloud, one: Sysinfo, name: str) -> Sysinfo:
    cloud.others()
    cloud.gone(f"nics/{own_uuid(one.uuid, name)}")
    found = one._replace(external=tuple(each for each in one.external if each.name != name))
    if found != one:
        sysinfo.write(cloud.root, found)
    if one.uuid in cloud.nodes:
        cloud.hypervisors[one.uuid].detach(name)
    return found
