"""Let a registry have said what it wants of a NIC, as the agent of a node that has joined one keeps it for hooks."""

from __future__ import annotations

from collections.abc import Mapping

from runtime import networks, wanted
from runtime.nic import NetworkWanted
from runtime.paths import Paths

REVISION = "2b6f8c8e-6a52-4a0e-9d3f-3f5f1e0c7a11:4711"
NETWORK = NetworkWanted("22222222-2222-4222-8222-222222222222", REVISION, "blue", "192.0.2.1", resolvers=("192.0.2.53",), mtu=1500)


def said(uuid: str, options: Mapping[str, str]) -> None:
    """Keep options for good, and what the registry says of the NIC's network."""
    entries = tuple(wanted.Entry(name, value) for name, value in options.items())
    networks.write(Paths(), NETWORK)
    wanted.write(Paths(), uuid, wanted.Wanted(registry=entries, revision=REVISION, network=NETWORK.uuid))
