"""A routed guest that never stops sending while its NIC comes, goes and changes its table: table main sees none of its packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.flood import HOST_MAC, MAC, MAIN, Flood, Ways, packet
from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import drift, mend
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.tap import Tap

pytestmark = pytest.mark.sampled(3)

HOST4, HOST6 = "192.0.2.5", "2001:db8:f::5"
FORGED4, FORGED6 = "203.0.113.7", "2001:db8:bad::7"
OWN = (packet(HOST4), packet(HOST6))
NIC = "00000000-0667-415f-9a43-786dc01cbf24"
TABLES = ("100", "200")
ROUNDS = 20 if FULL else 4
MARK = "[rules]\nmark = 0xfff0000\n"


@pytest.fixture(params=["", MARK], ids=["rules", "mark"])
def ways(node: Node, request: pytest.FixtureRequest) -> Ways:
    Path("/etc/netcommon").mkdir(exist_ok=True)
    Path("/etc/netcommon/config.toml").write_text(request.param)
    return Ways(node, *TABLES)


@pytest.fixture
def tap(node: Node) -> Tap:
    made = node.tap("tap0")
    run("ip", "link", "set", "tap0", "address", HOST_MAC)
    return made


def nic(table: str = TABLES[0], *options: str, ip: str = HOST4, **changes: str) -> dict[str, str]:
    words = ("uplink_proxy:off", *options)
    return {
        "INTERFACE": "tap0",
        "MODE": "routed",
        "LINK": table,
        "MAC": MAC,
        "IP": ip,
        "VLAN": "",
        "INSTANCE": "web1",
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": NIC,
        "TAGS": " ".join(f"netcommon:0:{word}" for word in words),
        **changes,
    }


BOTH = f"addresses:{HOST6}"


def up(variables: dict[str, str]) -> None:
    done = rundoor("kvm-ifup", variables)
    assert (done.status, done.stderr) == (0, ""), done


def down() -> None:
    done = rundoor("kvm-ifdown", nic(), "tap0", "hot-remove")
    assert (done.status, done.stderr) == (0, ""), done


def by_main(ways: Ways) -> dict[str, int]:
    """Give what was forwarded by table main; the guest's table forwarded both families."""
    found = ways.forwarded()
    assert found["table100-ipv4"] > 0 and found["table100-ipv6"] > 0, found
    return {name: packets for name, packets in found.items() if name.startswith(MAIN)}


def figures(flood: Flood, ways: Ways) -> None:
    print(f"FIGURES sent {flood.sent}, refused {flood.refused}, forwarded {ways.forwarded()}")


def test_comes_and_goes(ways: Ways, tap: Tap) -> None:
    with Flood(tap, OWN) as flood:
        for _ in range(ROUNDS):
            up(nic(TABLES[0], BOTH))
            flood.goes_on()
            down()
            flood.goes_on()
    figures(flood, ways)
    assert flood.refused > 0
    assert by_main(ways) == {}


def test_comes_and_goes_on_a_tap_that_is_up_before(ways: Ways, tap: Tap) -> None:
    """As `ip tuntap` and QEMU's scripts leave one. The tap that somebody still holds is left down: he would speak to the node itself."""
    for _ in range(ROUNDS):
        run("ip", "link", "set", "tap0", "up")
        with Flood(tap, OWN, after_down=True) as flood:
            flood.goes_on()
            up(nic(TABLES[0], BOTH))
            flood.goes_on()
            down()
            flood.goes_on()
        assert flood.refused > 0 and not tap.up
    assert by_main(ways) == {}


def test_changes_its_table(ways: Ways, tap: Tap) -> None:
    """Its link does not go for that."""
    up(nic(TABLES[0], BOTH))
    with Flood(tap, OWN) as flood:
        for number in range(ROUNDS):
            flood.goes_on()
            up(nic(TABLES[(number + 1) % 2], BOTH))
        flood.goes_on()
    figures(flood, ways)
    assert flood.refused == 0
    assert by_main(ways) == {} and ways.forwarded()["table200-ipv4"] > 0


def test_leaves_a_bridge(ways: Ways, tap: Tap, node: Node) -> None:
    node.bridge("br0")
    run("ip", "link", "set", "br0", "address", "aa:00:00:00:00:fe")  # else the tap's own: the bridge would route what is sent to it
    up(nic(MODE="bridged", LINK="br0", TAGS="netcommon:0:spoof_guard:no"))
    with Flood(tap, OWN) as flood:
        flood.goes_on()
        up(nic(TABLES[0], BOTH))
        flood.goes_on()
        up(nic(MODE="bridged", LINK="br0", TAGS="netcommon:0:spoof_guard:no"))
        flood.goes_on()
    figures(flood, ways)
    assert by_main(ways) == {}


OTHER_FAMILY = pytest.mark.parametrize(
    ("address", "forged"), [(HOST4, FORGED6), (HOST6, FORGED4)], ids=["IPv6 of an IPv4 NIC", "IPv4 of an IPv6 NIC"]
)


@OTHER_FAMILY
@pytest.mark.parametrize("guard", ["spoof_guard:yes", "spoof_guard:no"])
def test_a_family_without_an_address(ways: Ways, tap: Tap, address: str, forged: str, guard: str) -> None:
    """Nothing of it is forwarded, by whichever table, with the guard or without."""
    with Flood(tap, (packet(address), packet(forged))) as flood:
        for _ in range(ROUNDS):
            for table in TABLES:
                up(nic(table, guard, ip=address))
                flood.goes_on()
            down()
            flood.goes_on()
    figures(flood, ways)
    family = "ipv6" if ":" in address else "ipv4"
    assert ways.forwarded().keys() == {f"table{table}-{family}" for table in TABLES}


@OTHER_FAMILY
def test_an_option_frees_it(ways: Ways, tap: Tap, address: str, forged: str) -> None:
    """It goes by the NIC's table then."""
    with Flood(tap, (packet(address), packet(forged))) as flood:
        up(nic(TABLES[0], "allow_ip_spoofing", ip=address))
        flood.goes_on()
        down()
    figures(flood, ways)
    assert by_main(ways) == {}


@pytest.mark.parametrize("kept", [False, True], ids=["as it is", "with the rule"])
def test_nothing_marks_it(ways: Ways, tap: Tap, kept: bool) -> None:
    """Flush the marks by `nft flush ruleset`: table main forwards meanwhile, unless one rule of the administrator's lets it not."""
    if kept:
        for family in ("-4", "-6"):
            run("ip", family, "rule", "add", "not", "iif", "lo", "blackhole", "preference", "32765")
    up(nic(TABLES[0], BOTH))
    marked = [line.split()[1:] for line in run("nft", "list", "tables").splitlines() if "netcommon-mark" in line]
    with Flood(tap, OWN) as flood:
        flood.goes_on()
        for table in marked:
            run("nft", "delete", "table", *table)
        flood.goes_on()
        found = drift()
        mend()
        flood.goes_on()
    figures(flood, ways)
    assert drift() == [] and flood.refused == 0
    assert len(marked) == (2 if found else 0)
    leaks = bool(marked) and not kept
    assert (by_main(ways).keys() == {f"{MAIN}-ipv4", f"{MAIN}-ipv6"}) if leaks else (by_main(ways) == {})
    said = "goes by table main meanwhile" if leaks else "is dropped meanwhile"
    assert all(said in each for each in found)
    down()
