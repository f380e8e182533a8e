"""NICs as the tree and the graph of a node show them."""

from __future__ import annotations

from netcommon.views.topology.model import GOOD, NicView
from tests.support.cli import UUIDS


def nic_view(label: str = "web1/0", **changes: object) -> NicView:
    """Return a NIC that is well, with fields changed."""
    made = NicView(
        label, "web1", 0, UUIDS[0], UUIDS[0], "tap0", "bridged", "br0", "aa:00:00:00:00:01", ("10.0.0.5",), None, (),
        True, (), "", False, 0, 0, False, "up", GOOD, (), (), (), (), (),
    )  # fmt: skip
    return made._replace(**changes)  # type: ignore[arg-type]
