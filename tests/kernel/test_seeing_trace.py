"""netcommon trace beside the kernel: real frames of a guest, and what trace says of the same bytes by the rules as they were read."""

from __future__ import annotations

import json

import pytest

from netcommon.cli.group import netcommon
from netcommon.host.api.nftables import NETDEV
from netcommon.views.trace.nft_eval import Devices, Judged, Ruleset
from netcommon.views.trace.packet import Packet
from netcommon.views.trace.request import subject, trace
from netcommon.views.trace.trail import Path as Way
from tests.kernel.guard import networks, paths
from tests.kernel.guard.reach import HOST
from tests.kernel.test_guard_verdicts import FRAMES, NIC, OPTIONS, C, Guarded
from tests.support.attacks import KINDS, NO_GUARD, SETTINGS, Setting
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import ours


@pytest.fixture
def network(node: Node, request: pytest.FixtureRequest) -> object:
    """The network of a mode (the parameter), as the guard's own tests have it."""
    made = networks.bridged(node) if request.param == "bridged" else networks.routed(node)
    request.addfinalizer(made.close)
    return made


def told(guarded: Guarded, sent: bytes) -> str:
    """Why trace says that the guard drops it, "" where it does not."""
    view = guarded.host.view()
    (chain,) = (each for each in view.nft_chains(NETDEV) if each.device == guarded.tap.name)
    link = view.link(guarded.tap.name)
    assert link is not None
    judged: Judged = Ruleset(view).judge(chain, Packet(sent), Devices(link.index))
    assert judged.verdict, judged
    return judged.chains[-1].removeprefix("drop-") if judged.verdict == "drop" else ""


@pytest.mark.parametrize("switch", ["", *C])
def test_the_guards_reasons_are_the_kernels(node: Node, switch: str) -> None:
    """Of each frame of the verdicts' table: the kernel's counter that moved, and what the same rules say when they are carried out here."""
    guarded = Guarded(node, NIC, OPTIONS._replace(**{C[switch]: True}) if switch else OPTIONS)
    frames = {kind: sent.ljust(60, b"\0") for kind, (sent, _reason, _free) in FRAMES.items()}
    found = {kind: (guarded.reason(sent), told(guarded, sent)) for kind, sent in frames.items()}
    assert {kind: pair for kind, pair in found.items() if pair[0] != pair[1]} == {}
    assert len({pair[0] for pair in found.values()}) > 2


def traced(frames: dict[tuple[str, str], bytes]) -> dict[tuple[str, str], Way]:
    with ours() as mine:
        (record,) = mine.store.all()[0]
        view, of = mine.host.snapshot(), subject(record, [record])
        return {key: trace(view, of, "from", data, {}) for key, data in frames.items()}


def arrived(way: Way) -> frozenset[str]:
    found = {"peer" for end in way.ends if "tap1" in end and "receives" in end}
    return frozenset(found | {"out" for end in way.ends if end.startswith("it leaves the node by up0")})


@pytest.mark.parametrize("network", ["bridged", "routed"], indirect=True)
@pytest.mark.parametrize("setting", [NO_GUARD, SETTINGS[0]], ids=lambda setting: setting.name)
def test_frames_arrive_where_trace_says(network: paths.Network, setting: Setting) -> None:
    """Every kind to every end, sent by the guest and traced: other guests and the world outside; programs on the node see more."""
    network.up(setting)
    frames = paths.batch(network.ends)
    said = traced(frames)
    seen = network.seen(frames)
    wrong = {key: (sorted(seen[key]), said[key].ends) for key in frames if seen[key] - HOST != arrived(said[key])}
    assert wrong == {}
    assert {kind.name for kind in KINDS} == {kind for kind, _end in frames}


def test_the_command(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """On a bridge of the real kernel, with rules of somebody else's in the way: those are named, and not guessed about."""
    made = networks.bridged(node)
    try:
        made.up(SETTINGS[0])
        run("nft", "add table bridge theirs; add chain bridge theirs forward { type filter hook forward priority 10; policy drop; }")

        def asked(*arguments: str) -> dict[str, object]:
            netcommon(["trace", "tap0", *arguments, "--json"], standalone_mode=False)
            found: dict[str, object] = json.loads(capsys.readouterr().out)
            return found

        good = asked("--src", "10.0.0.1")
        assert any("nftables bridge theirs, chain forward" in str(each) for each in good["untold"])  # type: ignore[attr-defined]
        forged = asked("--src", "10.0.0.77")
        assert forged["untold"] == [] and "an IP address that it claims is not the NIC's" in str(forged["ends"])
        back = asked("--to", "guest", "--dst", "10.0.0.1")
        assert "web1/0 receives it, by tap0" in str(back["ends"])
    finally:
        made.close()
