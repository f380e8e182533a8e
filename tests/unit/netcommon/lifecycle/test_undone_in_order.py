"""An up that fails for a NIC that is up already: the link goes down before the guard does, so no frame passes unchecked."""

from __future__ import annotations

import pytest

from netcommon.host.api.nftables import Drop
from netcommon.host.api.requests import NftChange, Request, SetLink
from runtime.errors import NetcommonError
from tests.support.sim import Sim, nic

GUARD = "spoof guard of "


def shuts(request: Request) -> bool:
    return isinstance(request, SetLink) and request.up is False


def unguards(request: Request) -> bool:
    """Tell whether the request removes the NIC's chain, and puts none in its place."""
    return isinstance(request, NftChange) and request.what.startswith(GUARD) and all(isinstance(step, Drop) for step in request.steps)


@pytest.mark.parametrize("mode", ["bridged", "routed"])
def test_the_link_goes_down_first(sim: Sim, mode: str) -> None:
    sim.up(nic(mode))
    sim.requests()
    sim.host.files.folders.discard("/var/lib/nfdhcpd")
    with pytest.raises(NetcommonError):
        sim.up(nic(mode, TAGS="netcommon:0:new_sources:5 netcommon:0:dhcp:nfdhcpd"))
    made = sim.requests()
    (shut, *_), (bare, *_) = ([place for place, one in enumerate(made) if wanted(one)] for wanted in (shuts, unguards))
    assert shut < bare
