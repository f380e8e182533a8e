"""Give every node of a cloud a NIC of its own in a network, and take it away."""

from __future__ import annotations

from socket import AF_INET
from typing import TYPE_CHECKING

from mockcloud import sysinfo
from mockcloud.externals import NoRoom, external
from mockcloud.hardware import taken
from mockcloud.networks import own_uuid
from runtime import validate
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mockcloud.cloud import MockCloud
    from mockcloud.hardware import External
    from mockcloud.sysinfo import Sysinfo

MOST = 20  #: networks in which every node has a NIC


def attach(cloud: MockCloud, name: str, subnet: str = "") -> list[Sysinfo]:
    """Give every node, those made later too, a NIC of its own in a network; one that is not there is made with ``subnet``.

    One that has no room for all nodes is refused, and everything is as before. Raises NicInvalid, HostRefused, Problem.
    """
    validate.interface(name, "NETWORK")
    if of := taken(name):
        raise NicInvalid("NETWORK", name, f"a name that no device has: {of}")
    if name not in cloud.external and len(cloud.external) >= MOST:
        raise HostRefused(f"every node has {MOST} NICs of its own already", "take another away first (--remove)")
    there = True
    if subnet:
        validate.prefix(subnet, "--subnet", AF_INET)
        there = any(True for _ in cloud.registry.client().all("networks", name=name))
        cloud.network(name, {"subnet": subnet})
    network = cloud.networks.named(name)
    nodes = sysinfo.look(cloud.root).nodes
    lack = [each for each in nodes if name not in _names(each)]
    try:
        # all of it before anybody has one: where a call is killed that is refused at its end, so is the next one, and undoes what both did
        given = {each.uuid: external(cloud.networks, each.uuid, each.hostname, name, network) for each in _turns(cloud, lack)}
    except NoRoom as refused:
        for each in lack:
            cloud.gone(f"nics/{own_uuid(each.uuid, name)}")
        if name in cloud.external:  # other nodes have had NICs there before
            raise
        if not there:
            cloud.gone(f"networks/{network['uuid']}")
        raise NoRoom(refused.why, "nothing has changed; a larger network has room for all nodes") from None
    cloud.attaches((*(each for each in cloud.external if each != name), name))
    return [_attached(cloud, each, given[each.uuid]) if each.uuid in given else each for each in _turns(cloud, nodes)]


def _names(one: Sysinfo) -> list[str]:
    return [each.name for each in one.external]


def _turns(cloud: MockCloud, nodes: Iterable[Sysinfo]) -> Iterator[Sysinfo]:
    """Give nodes one after the other, while those that run have their turns."""
    for each in nodes:
        cloud.others()
        yield each


def _attached(cloud: MockCloud, one: Sysinfo, own: External) -> Sysinfo:
    found = one._replace(external=(*one.external, own))
    sysinfo.write(cloud.root, found)
    if one.uuid in cloud.nodes:
        cloud.hypervisors[one.uuid].attach(own)
    return found


def detach(cloud: MockCloud, name: str) -> list[Sysinfo]:
    """Take the NICs in a network from every node; the network stays. Raises HostRefused, Problem."""
    tree = sysinfo.look(cloud.root).nodes
    have = dict.fromkeys((*cloud.external, *(each for one in tree for each in _names(one))))  # a node that was refused has what it had
    if name not in have and not _given(cloud, tree, name):
        raise HostRefused(f"no node has a NIC of its own in {escaped(name)}", f"one of {', '.join(have) or 'none'}")
    nodes = [_detached(cloud, each, name) for each in _turns(cloud, tree)]
    cloud.attaches(tuple(each for each in cloud.external if each != name))
    return nodes


def _given(cloud: MockCloud, nodes: Iterable[Sysinfo], name: str) -> bool:
    """Tell whether a call was killed that has had NICs given out, and has not given them to nodes."""
    wanted = {own_uuid(each.uuid, name) for each in nodes}
    return any(each["nic"]["uuid"] in wanted for each in cloud.registry.client().all("nics", belongs="server", name=name))


def _detached(cloud: MockCloud, one: Sysinfo, name: str) -> Sysinfo:
    cloud.gone(f"nics/{own_uuid(one.uuid, name)}")
    found = one._replace(external=tuple(each for each in one.external if each.name != name))
    if found != one:
        sysinfo.write(cloud.root, found)
    if one.uuid in cloud.nodes:
        cloud.hypervisors[one.uuid].detach(name)
    return found
