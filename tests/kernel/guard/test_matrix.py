"""The spoof guard's table of verdicts, on every path that a frame can take: each kind of frame, each mode, each switch.

A frame that may pass arrives exactly where it would without the guard; one that may not is seen on no path.
"""

from __future__ import annotations

import pytest

from tests.kernel.guard import paths
from tests.kernel.guard.limits import ALL, LIMITS, Limit, allowed
from tests.kernel.guard.reach import NOWHERE, reached
from tests.support.attacks import KINDS, NO_GUARD, SETTINGS, Setting
from tests.support.bootstrap import ROOT

pytestmark = pytest.mark.sampled(5)

MODES = ("bridged", "routed", "openvswitch")


def deviations(network: paths.Network, setting: Setting) -> list[str]:
    """Kinds that do not fare as they should: sent to whom, each is seen on which other paths than it should be."""
    frames = paths.batch(network.ends)
    seen = network._replace(six=network.mode == "routed" and not setting.ip).seen(frames)
    wrong = []
    for kind in KINDS:
        found = []
        for end in ALL:
            frame = frames[kind.name, end]
            wanted = reached(network.mode, frame, end) if allowed(network.mode, kind, end, setting) else NOWHERE
            if (got := seen[kind.name, end]) != wanted:
                found.append(f"to {end}: {'+'.join(sorted(got)) or 'nowhere'}, not {'+'.join(sorted(wanted)) or 'nowhere'}")
        if found:
            wrong.append(f"{kind.name}: {'; '.join(found)}")
    return wrong


@pytest.mark.parametrize("network", MODES, indirect=True)
def test_without_the_guard(network: paths.Network) -> None:
    """Every frame arrives: so one that does not arrive later was dropped by the guard."""
    network.up(NO_GUARD)
    wrong = deviations(network, NO_GUARD)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("network", "setting"),
    # A routed NIC without any address is refused.
    [(mode, setting) for mode in MODES for setting in SETTINGS if mode != "routed" or setting.ip or "addresses" in setting.tags],
    ids=lambda value: value if isinstance(value, str) else value.name,
    indirect=["network"],
)
def test_verdicts(network: paths.Network, setting: Setting) -> None:
    network.up(setting)
    wrong = deviations(network, setting)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.phrase)
def test_limits_are_documented(limit: Limit) -> None:
    text = " ".join((ROOT / limit.document).read_text().split())
    assert limit.phrase in text
