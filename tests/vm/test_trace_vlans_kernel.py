"""netcommon trace beside Debian's kernel on bridges that know VLANs: what it says, and where the frames arrive.

A sample in an ordinary run: each case puts up a node on an emulated processor.
"""

from __future__ import annotations

import pytest

from tests.kernel.test_trace_cases import FLOODED, NOWHERE, PEER, TOLD, UNTOLD, Case, asks4, frame, hold, sent4, token
from tests.support.datapath import places as at
from tests.support.datapath.changes import Change
from tests.support.datapath.frames import TO_GUEST, Shot
from tests.support.datapath.places import BRIDGED
from tests.support.frames import mac_bytes
from tests.support.sample import sample

pytestmark = pytest.mark.sampled(2)

DOT1Q, DOT1AD = 0x8100, 0x88A8
OUT, NODE = frozenset({"up0"}), frozenset({"node"})
AWARE, PROVIDER = ("link set br0 type bridge vlan_filtering 1",), ("link set br0 type bridge vlan_filtering 1 vlan_protocol 802.1ad",)
TEN = ("vlan del dev tap0 vid 1", "vlan add dev tap0 vid 10 pvid untagged", "vlan add dev up0 vid 10")
TAGGED, UNTAGGED = "vlan add dev br0 vid 10 self", "vlan add dev br0 vid 10 self pvid untagged"
MINE = sent4(at.BRIDGE4, at.BRIDGE_MAC)


def tagged(shot: Shot, vid: int, protocol: int = DOT1Q) -> Shot:
    data = shot.data[:12] + protocol.to_bytes(2, "big") + vid.to_bytes(2, "big") + shot.data[12:]
    return shot._replace(data=data, words=f"{shot.words}, {protocol:#x} {vid}")


def from_outside(shot: Shot) -> Shot:
    return shot._replace(way=TO_GUEST, data=shot.data[:6] + mac_bytes(at.OUT_MAC) + shot.data[12:], words=f"from outside, {shot.words}")


def aware(*bridge: str, ip: tuple[str, ...] = AWARE) -> Change:
    return Change("", ip, bridge)


def blocked(device: str, state: int = 4) -> str:
    """A state of VLAN 10 there: 4 blocks, 2 learns."""
    return f"vlan set vid 10 dev {device} state {state}"


ABROAD = from_outside(tagged(sent4(at.BRIDGE4, at.BRIDGE_MAC, source=at.OUT4), 10))
LINK_GROUPS = tuple(
    frame(0x88B5, token(number) * 8, f"01:80:c2:00:00:{number:02x}", f"group {number:#x}")._replace(inner=False)
    for number in (2, 8, 11, 13)
)
CASES = (
    Case("the node in the default VLAN", BRIDGED, aware(), (MINE, from_outside(MINE)), TOLD, (), NODE),
    Case("the bridge's MAC in a VLAN that it is not in", BRIDGED, aware(*TEN), (MINE,), TOLD, (), OUT),
    Case("the bridge's own device gets the tag", BRIDGED, aware(*TEN, TAGGED), (MINE, ABROAD), TOLD, (), NOWHERE),
    Case("the bridge's own device takes the tag off", BRIDGED, aware(*TEN, UNTAGGED), (MINE, ABROAD), TOLD, (), NODE),
    Case(
        "an answer into another VLAN",
        BRIDGED,
        aware(*TEN, "vlan add dev br0 vid 10 self untagged"),
        (asks4(at.BRIDGE4),),
        UNTOLD,
        (),
        OUT | {"answer"},
    ),
    Case("an answer into the same VLAN", BRIDGED, aware(*TEN, UNTAGGED), (asks4(at.BRIDGE4),), TOLD, (), OUT | {"answer"}),
    Case(
        "a VLAN interface",
        BRIDGED,
        aware(*TEN, TAGGED, ip=(*AWARE, "link add link br0 name br0.10 up type vlan id 10")),
        (MINE, ABROAD),
        UNTOLD,
    ),
    Case(
        "an interface of another VLAN",
        BRIDGED,
        aware(*TEN, TAGGED, ip=(*AWARE, "link add link br0 name v7 up type vlan id 7")),
        (MINE,),
        TOLD,
    ),
    Case("a port's MAC in a VLAN that it is not in", BRIDGED, aware(*TEN), (sent4(at.PEER4, at.TAP1_MAC),), TOLD, (), OUT),
    Case("a port's MAC in its VLAN", BRIDGED, aware(*TEN, "vlan add dev tap1 vid 10"), (sent4(at.PEER4, at.TAP1_MAC),), TOLD, (), NOWHERE),
    Case(
        "a known MAC",
        BRIDGED,
        aware(*TEN, "vlan add dev tap1 vid 10", f"fdb replace {at.PEER_MAC} dev tap1 master static vlan 10"),
        (sent4(at.PEER4, at.PEER_MAC),),
        TOLD,
        (),
        PEER,
    ),
    Case(
        "a blocked VLAN of the guest's port",
        BRIDGED,
        aware(*TEN, UNTAGGED, blocked("tap0")),
        (MINE, sent4(at.FAR4[0], at.BROADCAST)),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "a VLAN that learns", BRIDGED, aware(*TEN, UNTAGGED, blocked("tap0", 2)), (MINE, sent4(at.FAR4[0], at.BROADCAST)), TOLD, (), NOWHERE
    ),
    Case(
        "a blocked VLAN of the way out",
        BRIDGED,
        aware(*TEN, blocked("up0")),
        (sent4(at.FAR4[0], at.BROADCAST), sent4(at.PEER4, at.NOBODY_MAC, 1)),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "a blocked VLAN of the node's",
        BRIDGED,
        aware(*TEN, UNTAGGED, "vlan set vid 10 dev br0 self state 4"),
        (MINE, ABROAD),
        TOLD,
        (),
        NOWHERE,
    ),
    Case(
        "another VLAN is blocked",
        BRIDGED,
        aware(*TEN, UNTAGGED, "vlan add dev tap0 vid 11", "vlan set vid 11 dev tap0 state 4"),
        (MINE,),
        TOLD,
        (),
        NODE,
    ),
    Case(
        "a tag of customers",
        BRIDGED,
        aware("vlan add dev tap0 vid 10", ip=PROVIDER),
        (tagged(MINE, 10), tagged(sent4(at.PEER4, at.PEER_MAC), 10)),
        UNTOLD,
    ),
    Case(
        "a tag of providers",
        BRIDGED,
        aware("vlan add dev tap0 vid 10", "vlan add dev up0 vid 10", ip=PROVIDER),
        (tagged(sent4(at.PEER4, at.NOBODY_MAC), 10, DOT1AD),),
        TOLD,
        (),
        OUT,
    ),
    Case("a tag of providers on a bridge of customers", BRIDGED, aware("vlan add dev tap0 vid 10"), (tagged(MINE, 10, DOT1AD),), UNTOLD),
    Case("groups of one link", BRIDGED, aware(), LINK_GROUPS, TOLD, (), NOWHERE),
    Case("groups of one link, for providers", BRIDGED, aware(ip=PROVIDER), LINK_GROUPS[2:], TOLD, (), FLOODED),
    Case("the others, for providers", BRIDGED, aware(ip=PROVIDER), LINK_GROUPS[:2], TOLD, (), NOWHERE),
)


@pytest.mark.parametrize("case", sample(CASES, 4), ids=lambda case: case.words.replace(" ", "-"))
def test_where_they_arrive(case: Case) -> None:
    hold(case)
