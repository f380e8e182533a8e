"""Push what a registry wants to guests that never stop sending, and see what a real DHCP client is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.lifecycle.context import Call
from netcommon.lifecycle.push import keep, keep_network
from netcommon.log import recording
from runtime.networks import network_of
from runtime.registry_wanted import RegistryOption, RegistryWanted
from tests.kernel.test_change import CHANGES
from tests.kernel.test_dhcp import OPTIONS, UUID, Client, client, command, down, up
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent, seconds_until, watched
from tests.support.netns import slowness, wait_until
from tests.support.node import Node
from tests.support.pushing import pushed
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.streams import Streams, guests

__all__ = ["client"]  # a fixture

BLUE = "b1b1b1b1-0667-415f-9a43-786dc01cbf24"


@pytest.mark.parametrize(("mode", "link"), [("bridged", "br0"), ("routed", "main"), ("openvswitch", "ovs0")])
def test_a_flag_is_flipped_under_traffic(node: Node, mode: str, link: str, request: pytest.FixtureRequest) -> None:
    """A spoofed frame passes, then not; nothing of the guest's is lost, nor anything else passes."""
    if mode == "bridged":
        node.bridge(link)
    elif mode == "openvswitch":
        request.getfixturevalue("ovs").bridge(link)
    else:
        node.router()
    uuid, took = environment(0)["INTERFACE_UUID"], list[float]()
    with guests(node, mode, link) as taps:
        with Streams(taps, mode) as streams:
            for turn in range(CHANGES):
                free = turn % 2 == 0
                assert pushed(uuid, f"e:{turn}", f"allow_ip_spoofing={'yes' if free else 'no'}").changed
                took.append(seconds_until(lambda free=free: streams.passes() == free, 5, "the verdict has changed"))  # type: ignore[misc]
        lost = [sent - heard for sent, heard in zip(streams.sent, streams.heard, strict=True)]
    middle = sorted(took)[len(took) // 2]
    print(f"{mode}: {CHANGES} pushes, verdict after {middle * 1e3:.0f} ms, at most {max(took) * 1e3:.0f} ms; lost {lost}")
    assert middle < 0.1 * slowness() and lost[0] <= max(lost[1], 0) and streams.strange == 0


@pytest.mark.parametrize("present", [True, False])
def test_a_guest_that_comes_has_it_from_its_first_frame(node: Node, present: bool) -> None:
    """With the registry away: kept beforehand. It ends at its time, whoever is there."""
    node.bridge("br0")
    node.tap("tap0")
    nic = environment(MODE="bridged", LINK="br0", IP="")
    uuid = nic["INTERFACE_UUID"]
    with watched() as seen, ours() as one:
        until = one.clock.wall() + 3.0
        keep(one, uuid, RegistryWanted("e:7", (RegistryOption("isolated", "yes", until),)), Call(recording()[0], one.clock.now() + 5))
        assert rundoor("kvm-ifup", nic).status == 0
        assert [each.option for each in seen.records["tap0"].nic.wanted] == ["isolated"] and one.clock.wall() < until
        if present:
            with agent() as running:
                wait_until(lambda: seen.records["tap0"].nic.wanted == () and seen.drift() == [], 10, running.output)
        else:
            wait_until(lambda: one.clock.wall() >= until, 10)
            node.tap("tap1")
            assert rundoor("kvm-ifup", environment(1, MODE="bridged", LINK="br0", IP="")).status == 0
            assert seen.records["tap0"].nic.wanted == () and seen.drift() == []


def test_a_real_client_is_told_what_the_registry_says(client: Client) -> None:
    """At its next renewal; where the registry says nothing, the settings do."""
    assert up(NETWORK_UUID=BLUE).status == 0
    client.start()
    expected = client.lease()
    assert (expected["dns"], expected["mtu"], expected["router"]) == ("10.0.0.53", "1400", "10.0.0.1")
    said = {"name": "blue", "resolvers": ["10.0.0.60"], "routes": [{"prefix": "10.2.0.0/16", "via": "10.0.0.253"}]}
    with ours() as one:
        assert keep_network(one, network_of(BLUE, "e:8", said)) == (UUID,)
    assert client.renewed() == expected, "nothing was pushed"
    assert pushed(UUID, "e:7", network=BLUE).changed
    expected |= {"dns": "10.0.0.60", "staticroutes": "10.2.0.0/16 10.0.0.253 0.0.0.0/0 10.0.0.1"}
    assert client.renewed() == expected and command("check").returncode == 0
    assert down().status == 0 and list(Path(OPTIONS).iterdir()) == []
    assert up(NETWORK_UUID=BLUE).status == 0 and "10.0.0.60" in Path(OPTIONS, "blue").read_text()
