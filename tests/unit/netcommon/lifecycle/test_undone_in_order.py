"""An up that fails for a NIC that is up already: its guard is never taken away, so no frame passes unchecked."""

from __future__ import annotations

import pytest

from netcommon.host.api.nftables import Drop
from netcommon.host.api.requests import NftChange, Request
from runtime.errors import NetcommonError
from tests.support.sim import Sim, nic

GUARD = "spoof guard of "


def unguards(request: Request) -> bool:
    """Tell whether the request removes the NIC's chain, and puts none in its place."""
    return isinstance(request, NftChange) and request.what.startswith(GUARD) and all(isinstance(step, Drop) for step in request.steps)


@pytest.mark.parametrize("mode", ["bridged", "routed"])
def test_the_guard_stays(sim: Sim, mode: str) -> None:
    sim.up(nic(mode))
    was = sim.picture()
    sim.requests()
    sim.host.files.folders.discard("/var/lib/nfdhcpd")
    with pytest.raises(NetcommonError):
        sim.up(nic(mode, TAGS="netcommon:0:new_sources:5 netcommon:0:dhcp:nfdhcpd"))
    assert not any(map(unguards, sim.requests()))
    assert sim.picture() == was
