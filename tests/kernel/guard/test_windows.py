"""No moment without the guard: a guest that never stops sending forged frames while its NIC comes up, is put right, and goes."""

from __future__ import annotations

import pytest

from tests.kernel.guard import paths
from tests.kernel.guard.test_matrix import MODES
from tests.kernel.test_rate import mend
from tests.support.attacks import GROUPS, KINDS, NO_GUARD, SETTINGS
from tests.support.attacks_base import raw

FORGED = raw(next(kind for kind in KINDS if kind.name == "ARP reply, foreign address"), GROUPS[0]._replace(number=7))
GUARDED, OTHER = (next(setting for setting in SETTINGS if setting.name == name) for name in ("no switch", "allow_restricted_traffic"))


@pytest.mark.parametrize("network", MODES, indirect=True)
def test_while_it_comes_up(network: paths.Network) -> None:
    """Open vSwitch's port needs its number before it can have flows, and the device is down until it has them (test_ovs_windows.py)."""
    assert network.seen_during(FORGED, lambda: network.up(GUARDED)) == frozenset()


@pytest.mark.parametrize("network", MODES, indirect=True)
def test_without_the_guard_there_is_something_to_see(network: paths.Network) -> None:
    assert "host" in network.seen_during(FORGED, lambda: network.up(NO_GUARD))


@pytest.mark.parametrize("network", MODES, indirect=True)
def test_while_it_comes_up_again(network: paths.Network) -> None:
    network.up(GUARDED)

    def again() -> None:
        network.up(GUARDED)
        network.up(OTHER)
        mend()
        network.up(GUARDED)

    assert network.seen_during(FORGED, again) == frozenset()
