"""netcommon trace where programs of BPF see the frames of a device: what they do is not told, and that they are there is."""

from __future__ import annotations

import contextlib

import pytest

from tests.support import bpf
from tests.support.datapath import places as at
from tests.support.datapath.said import Frames, outcome, said

pytestmark = pytest.mark.no_agent("trace asks no agent")

FAR4 = at.FAR4[0]


@pytest.mark.parametrize("by_link", [False, True])
@pytest.mark.parametrize("value", [bpf.TC_NEXT, bpf.TC_DROP])
@pytest.mark.parametrize(("place", "doubted"), [(bpf.TCX_INGRESS, [True, False]), (bpf.TCX_EGRESS, [False, True])])
def test_tcx(place: int, doubted: list[bool], value: int, by_link: bool) -> None:
    """One side is in doubt, not the other, whoever holds the program."""
    frames = Frames(at.ROUTED)
    frames.sent(at.GUEST4, FAR4)
    frames.received(FAR4, at.GUEST4)
    with contextlib.ExitStack() as held:
        found = outcome(said(frames, more=lambda: held.enter_context(bpf.attached("tap0", place, value, by_link))))
    arrives = ["up0", "tap0"]
    if value == bpf.TC_DROP:
        arrives[doubted.index(True)] = ""
    assert found == [(there, not each) for there, each in zip(arrives, doubted, strict=True)]


@pytest.mark.parametrize("value", [bpf.XDP_PASS, bpf.XDP_DROP])
def test_xdp(value: int) -> None:
    """It sees what is received, the bridge's own device included."""
    frames = Frames(at.BRIDGED)
    frames.sent(at.GUEST4, at.BRIDGE4)
    frames.sent(at.GUEST4, at.PEER4, mac=at.PEER_MAC)
    with contextlib.ExitStack() as held:
        found = outcome(said(frames, more=lambda: held.enter_context(bpf.attached("br0", bpf.XDP, value))))
    assert found == [("node" if value == bpf.XDP_PASS else "", False), ("tap1", True)]
