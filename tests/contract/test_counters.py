"""What devices have carried: of all of them in one answer."""

from __future__ import annotations

from netcommon.host.api.facts import Counters
from tests.contract.worlds import World, index, view


def test_every_device_has_counters(world: World) -> None:
    """The loopback and a new tap too, which has carried nothing yet; what is gone is not among them."""
    world.tap("tap0")
    tap = index(world, "tap0")
    found = view(world).counters()
    assert set(found) == {link.index for link in view(world).links()} >= {1, tap}
    assert found[tap] == Counters() and isinstance(found[1], Counters)
    assert world.host.snapshot().counters() == found
    world.remove("tap0")
    assert tap not in view(world).counters()
