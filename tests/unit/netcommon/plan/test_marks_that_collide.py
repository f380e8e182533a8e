"""Bits of packets' marks that the settings give away, and features need for themselves."""

from __future__ import annotations

import pytest

from netcommon.host.nftables.profile_table import OWN_MARK
from netcommon.operations.access_rules import FOREIGN
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from runtime.errors import SettingsInvalid
from tests.support.sim import nic

TAGS = {"netcommon:0:node_access:none": FOREIGN, "netcommon:0:protected": OWN_MARK}


@pytest.mark.parametrize("mode", ["bridged", "routed"])
@pytest.mark.parametrize("tag", TAGS)
def test_a_mark_with_that_bit_is_refused(mode: str, tag: str) -> None:
    """Only for a NIC that has the feature, and with the bit named."""
    bit = TAGS[tag]
    for mark in (bit, bit | bit >> 1):
        with pytest.raises(SettingsInvalid, match=f"{bit:#x}"):
            plan(nic(mode, TAGS=tag), Settings(rule_mark=mark))
        assert plan(nic(mode), Settings(rule_mark=mark))
    assert plan(nic(mode, TAGS=tag), Settings(rule_mark=0x0FF00000))
