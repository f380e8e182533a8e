"""The fuzz of the spoof guard in Debian's kernel: on its bridge, and on Open vSwitch's kernel datapath, which cuts large packets itself."""

from __future__ import annotations

import pytest

from tests.support.attacks import SETTINGS
from tests.support.fuzz import place as places
from tests.support.fuzz.fuzz import Fuzz
from tests.support.fuzz.place import Place
from tests.support.node import Node
from tests.support.sample import drawn

pytestmark = pytest.mark.slow  # emulated, and Open vSwitch's program is asked about most frames

FRAMES = drawn(1_500, 3_000, 20_000)
ASKED = drawn(400, 800, 5_000)  #: on Open vSwitch, whose program is asked about most of them


@pytest.mark.parametrize("mode", ["bridged", "routed"])
def test_nftables(node: Node, mode: str) -> None:
    with places.made(node, mode) as place:
        place.up(SETTINGS[0])
        result = Fuzz(place, 5).run(FRAMES)
    assert not result.violations and not result.missing, str(result)


def test_the_kernel_datapath(switched: Place) -> None:
    switched.up(SETTINGS[0])
    result = Fuzz(switched, 6).run(ASKED)
    print(f"FIGURES {result}")
    assert not result.violations and not result.missing, str(result)
