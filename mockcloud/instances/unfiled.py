"""Take away what is left of an instance whose file somebody has removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mockcloud import belongings, sysinfo

if TYPE_CHECKING:
    from mockcloud.cloud import MockCloud


def take_left(cloud: MockCloud, name: str, seconds: float) -> list[str]:
    """Take away what is left of an instance that no node has a file of: give the NICs that the registry had of it.

    ``seconds``: until agents of nodes that report them are in step with the registry. Raises HostRefused, TryAgain, Problem.
    """
    client = cloud.registry.client()
    nics = belongings.of_instance(client, name)
    said = {each["node"] for nic in nics for each in client.all("reports", nic=nic)} - cloud.off.keys()
    cloud.ready([each.uuid for each in sysinfo.look(cloud.root).nodes if each.uuid in said] if said else (), seconds)
    if nics:
        cloud.take_away(name, nics)
    return nics
