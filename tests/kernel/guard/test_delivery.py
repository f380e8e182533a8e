"""What a bridge delivers to a guarded guest: its own unicast, broadcast and multicast; with allow_unfiltered_promisc what is flooded."""

from __future__ import annotations

import pytest

from tests.kernel.guard import paths
from tests.kernel.guard.test_matrix import MODES
from tests.support.attacks import GROUPS, NO_GUARD, SETTINGS, Setting
from tests.support.attacks_base import ALL_MAC, FOREIGN_MAC, MAC, OUT_MAC, PEER_MAC, To, kind, raw
from tests.support.attacks_ip4 import ip4, plain
from tests.support.attacks_ip6 import ip6
from tests.support.attacks_ip6 import plain as plain6

PLAIN = next(setting for setting in SETTINGS if setting.name == "no switch")
PROMISCUOUS = next(setting for setting in SETTINGS if setting.name == "allow_unfiltered_promisc")
SPOOFING = next(setting for setting in SETTINGS if setting.name == "allow_mac_spoofing")

#: Destinations, by whether a guard lets frames to them through.
WANTED = {"own": MAC, "broadcast": ALL_MAC, "IPv4 multicast": "01:00:5e:00:00:01", "IPv6 multicast": "33:33:00:00:00:01"}
UNWANTED = {"somebody else's": FOREIGN_MAC, "nearly own": MAC[:-1] + "0", "a locally administered one": "02:00:00:00:00:01"}


def frames(network: paths.Network) -> dict[str, tuple[str, bytes]]:
    """From each end to each destination; what a router sends out to a guest comes from the router alone."""
    senders = ("host",) if network.mode == "routed" else ("host", "peer", "out")
    made = {}
    number = 0
    for sender in senders:
        for name, mac in {**WANTED, **UNWANTED}.items():
            for family, build in (("4", ip4("192.0.2.9", plain(), PEER_MAC)), ("6", ip6("fe80::9", plain6(), PEER_MAC))):
                number += 1
                to = To("", mac, GROUPS[0].ip4, GROUPS[0].ip6, number)
                frame = raw(kind(name, build), to)
                made[f"{name} from {sender}, IPv{family}"] = sender, bytes.fromhex(mac.replace(":", "")) + frame[6:]
    return made


@pytest.mark.parametrize("setting", [NO_GUARD, PLAIN, SPOOFING, PROMISCUOUS], ids=lambda setting: setting.name)
@pytest.mark.parametrize("network", MODES, indirect=True)
def test_what_is_delivered(network: paths.Network, setting: Setting) -> None:
    network.up(setting)
    sent = frames(network)
    # The switch's action "normal" floods, and no flow can name the port: docs/openvswitch.md, "What is delivered to the guest".
    # To a routed guest only the node itself sends, here by a packet socket; nobody looks at that: docs/spoof-guard.md.
    all_of_it = setting in (NO_GUARD, PROMISCUOUS) or network.mode != "bridged"
    expected = {name for name in sent if all_of_it or name.split(" from ")[0] in WANTED}
    assert network.received(sent) == expected


@pytest.mark.parametrize("setting", [NO_GUARD, PLAIN, PROMISCUOUS], ids=lambda setting: setting.name)
@pytest.mark.parametrize("network", ["bridged", "openvswitch"], indirect=True)
def test_nobody_steals_a_place(network: paths.Network, setting: Setting) -> None:
    """A guest that speaks with another's MAC gets nothing of what is sent to that; without the guard it gets all."""
    network.up(setting)
    thefts = {}
    for number, (owner, mac) in enumerate((("peer", PEER_MAC), ("out", OUT_MAC)), 1):
        to = To("", ALL_MAC, GROUPS[0].ip4, GROUPS[0].ip6, number)
        network.seen({(owner, "theft"): raw(kind("theft", ip4("0.0.0.0", plain(), mac)), to)})
        to = to._replace(mac=mac, number=100 + number)
        thefts[owner] = "out" if owner == "peer" else "peer", raw(kind("letter", ip4("0.0.0.0", plain(), "aa:00:00:00:00:55")), to)
    stolen = network.received(thefts)
    assert stolen == (set(thefts) if setting is NO_GUARD else set())
