"""netcommon trace of any frame and any words for one: it ends with an answer, or says what is wrong with them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netcommon.host.api.facts import AF_INET, AF_INET6, Address, Link, Neighbour, Route
from netcommon.host.api.host import View
from netcommon.views.trace.frame import FROM_GUEST, PROTOCOLS, TO_GUEST, Wanted, build
from netcommon.views.trace.packet import Packet
from netcommon.views.trace.request import Subject, frame, subject, trace
from netcommon.views.trace.trail import VERDICTS
from runtime.errors import HostRefused, NicInvalid
from tests.support.datapath.mutants import mutant
from tests.support.sim import Sim, nic

UNGUARDED = "netcommon:*:spoof_guard:no"
PLACES: Mapping[str, Mapping[str, str]] = {
    "bridged": {},
    "aware": {"LINK": "brv", "VLAN": ".10", "TAGS": UNGUARDED},
    "routed": {"TAGS": UNGUARDED},
    "six": {"IP": "", "TAGS": f"{UNGUARDED} netcommon:*:addresses:fd00::5"},
    "nameless": {"IP": "", "TAGS": UNGUARDED},
}
FRAMES = 600
SETTINGS = ("net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables", "net/bridge/bridge-nf-filter-vlan-tagged")
VIDS, MASK = (
    st.integers(-1, 4095),
    st.sampled_from(["", "aa:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01", "02:00:00:00:00:01"]),
)
ADDRESSES = st.sampled_from(
    [
        "",
        "",
        "10.0.0.5",
        "10.0.0.1",
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "fd00::5",
        "::",
        "::1",
        "ff02::1",
        "fe80::1%tap0",
    ]
)


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[View, Subject]:
    """Return what trace asks of a node on which everything is on, and its NIC."""
    sim = Sim(str(tmp_path_factory.mktemp("node")))
    mode = "routed, table" if request.param == "routed" else "bridged"
    sim.up(nic(mode, **{"IP": "10.0.0.5", **PLACES[request.param]}))
    kernel = sim.host.kernel
    for path in SETTINGS:
        kernel.settings.put(path, "1")
    tap = sim.index("tap0")
    inner = kernel.links[tap].master or tap
    kernel.addresses += [Address(AF_INET, "10.0.0.1", 24, inner), Address(AF_INET6, "fd00::1", 64, inner)]
    kernel.add_neighbour(Neighbour(AF_INET6, "fd00::7", inner))
    uplink = sim.host.add_link(Link(0, "far", up=True))
    for family, destination in ((AF_INET, "0.0.0.0/0"), (AF_INET6, "::/0")):
        kernel.add_route(Route(family, 254, destination, uplink.index))
    records = sim.records()
    return sim.host.snapshot(), subject(records[0], records)


def test_any_bytes(place: tuple[View, Subject]) -> None:
    view, of = place
    for seed in range(FRAMES):
        for way in (FROM_GUEST, TO_GUEST):
            answered(view, of, way, mutant(random.Random(seed)))


def answered(view: View, of: Subject, way: str, data: bytes) -> None:
    """Hold that a frame is followed to an end."""
    try:
        path = trace(view, of, way, data, {})
    except HostRefused:
        assert way == TO_GUEST  # nothing leads to the guest from outside
        return
    assert path.steps and path.ends and all(step.verdict in VERDICTS for step in path.steps)


WANTED = st.builds(
    Wanted,
    source_mac=MASK,
    target_mac=MASK,
    source=ADDRESSES,
    target=ADDRESSES,
    ethertype=st.sampled_from([-1, -1, 0, 0x0800, 0x86DD, 0x0806, 0x8100, 0x88CC, 0xFFFF]),
    vlan=VIDS,
    arp=st.booleans(),
    protocol=st.sampled_from(sorted(PROTOCOLS)),
    source_port=st.integers(0, 0xFFFF),
    target_port=st.integers(0, 0xFFFF),
    kind=st.integers(-1, 255),
)


@given(WANTED, st.sampled_from([FROM_GUEST, TO_GUEST]))
@settings(max_examples=150)
def test_any_words(place: tuple[View, Subject], wanted: Wanted, way: str) -> None:
    view, of = place
    try:
        data = frame(view, of, way, wanted, {})
    except (NicInvalid, HostRefused):
        return
    answered(view, of, way, data)


@pytest.mark.parametrize("way", [FROM_GUEST, TO_GUEST])
@pytest.mark.parametrize(("name", "ethertype"), [("bridged", 0x86DD), ("routed, table", 0x86DD), ("bridged", 0x0800)])
def test_a_type_of_the_other_family(tmp_path: Path, name: str, ethertype: int, way: str) -> None:
    """The frame is of the type that was asked for, and not from an address of the NIC's that is of another family."""
    sim = Sim(str(tmp_path))
    sim.up(nic(name, IP="10.0.0.5"))
    records = sim.records()
    view, of = sim.host.snapshot(), subject(records[0], records)
    packet = Packet(frame(view, of, way, Wanted(ethertype=ethertype), {}))
    assert packet.protocol == ethertype and (":" in packet.source) == (":" in packet.target) == (ethertype == 0x86DD)


def test_addresses_of_another_family_than_the_type() -> None:
    with pytest.raises(NicInvalid, match="--src"):
        build(Wanted(source="10.0.0.5", ethertype=0x86DD))
