"""The late down of guest A, after guest B took its tap's name, its address or its index: B stays whole, in every mode.

Through the doors, on the prepared node. "Whole" is the canonical snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netcommon.operations.flows import cookie_of
from netcommon.operations.guard.egress_filter import NAME
from netcommon.operations.guard.table import table_of
from runtime.environment import generated_uuid
from tests.kernel.differential.place import Place, prepared
from tests.support.netns import run
from tests.support.rundoor import BASE, HOOKS, Outcome, execute, rundoor
from tests.support.snapshot import Snapshot, diff, snapshot
from tests.support.tap import Tap

pytestmark = pytest.mark.sampled(5)

MODES = {
    "bridged": {"MODE": "bridged", "LINK": "br0"},
    "routed": {"MODE": "routed", "LINK": "gntroute", "IP": "10.77.31.9"},
    "routed6": {"MODE": "routed", "LINK": "gntroute", "IP": "fd77:31::9"},
    "openvswitch": {"MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10"},
}
ROUTED = ("routed", "routed6")


def guest(letter: str, mode: str, tap: str, uuid: bool = True, **more: str) -> dict[str, str]:
    """What Ganeti hands over for NIC 0 of the instance ``letter``."""
    found = {
        "INTERFACE": tap,
        "INSTANCE": f"{letter}.gnt.example",
        "INTERFACE_INDEX": "0",
        "MAC": f"aa:00:00:00:00:0{letter}",
        "VLAN": "",
        "INTERFACE_UUID": f"0000000{letter}-0000-4000-8000-0000000000ff",
        **MODES[mode],
        **more,
    }
    return found if uuid else {name: value for name, value in found.items() if name != "INTERFACE_UUID"}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with prepared(machine=False) as made:
        yield made


class Taps:
    """The taps of a test; what it leaves is taken down, so that the next finds the node as before."""

    def __init__(self) -> None:
        self.open: list[Tap] = []
        self.guests: list[dict[str, str]] = []

    def start(self, described: dict[str, str]) -> Tap:
        """QEMU makes the tap, then the NIC comes up on it."""
        tap = Tap(described["INTERFACE"])
        self.open.append(tap)
        self.guests.append(described)
        good(rundoor("kvm-ifup", described))
        return tap


@pytest.fixture
def taps(place: Place) -> Iterator[Taps]:
    before = network()
    made = Taps()
    yield made
    for tap in made.open:
        tap.close()
    for described in made.guests:
        good(rundoor("kvm-ifdown", described))
    assert diff(before, network()) == []


def network() -> Snapshot:
    """All of the snapshot but files: what remains of those is for other tests."""
    return snapshot(())


def good(outcome: Outcome) -> Outcome:
    assert outcome.status == 0, outcome.stderr
    return outcome


def whole(before: Snapshot) -> None:
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize(
    ("first", "second", "late"),
    [(first, second, "described") for first in MODES for second in MODES]
    + [(mode, mode, late) for mode in MODES for late in ("without-uuid", "nothing-but-uuid")],
)
def test_tap_name_taken(taps: Taps, first: str, second: str, late: str) -> None:
    """A's QEMU has died and B's tap has the same name; whatever the late down says of A, B is not it."""
    one = guest("a", first, "tap0")
    taps.start(one).close()
    taps.start(guest("b", second, "tap0"))
    before = snapshot()
    said = {
        "described": one,
        "without-uuid": {name: value for name, value in one.items() if name != "INTERFACE_UUID"},
        "nothing-but-uuid": {"INTERFACE": "tap0", "INTERFACE_UUID": one["INTERFACE_UUID"]},
    }[late]
    good(rundoor("kvm-ifdown", said))
    whole(before)


@pytest.mark.parametrize("mode", MODES)
def test_tap_name_alone_while_held(taps: Taps, mode: str) -> None:
    """A down that says nothing but the name means B; its QEMU holds the tap, so B is not cut off, and its next up is as good as new."""
    taps.start(guest("a", mode, "tap0")).close()
    two = guest("b", mode, "tap0")
    taps.start(two)
    before = network()
    # by another process than the one that holds the tap: QEMU's own downscript is final
    good(execute(["/bin/sh", "-c", f"{HOOKS}/kvm-ifdown tap0; exit $?"], BASE))
    assert diff(before, network()) == []
    good(rundoor("kvm-ifup", two))
    assert diff(before, network()) == []


@pytest.mark.parametrize("alive", [False, True], ids=["gone", "alive"])
@pytest.mark.parametrize("mode", MODES)
def test_address_taken(taps: Taps, mode: str, alive: bool) -> None:
    """B has A's address on a tap of its own, while A's tap is gone, or still there."""
    one = guest("a", mode, "tap0")
    tap = taps.start(one)
    if not alive:
        tap.close()
    taps.start(guest("b", mode, "tap1"))
    tap.close()
    before = snapshot()
    good(rundoor("kvm-ifdown", one))
    changed = diff(before, snapshot())
    assert [line for line in changed if not of_first(line, one)] == []
    assert any(line.startswith("- files: /run/netcommon/nics/") for line in changed)
    if mode in ROUTED:
        assert "dev tap1 " in way(MODES[mode]["IP"])


def way(address: str) -> str:
    """Where the router's packets to ``address`` go."""
    beyond = "2001:db8::1" if ":" in address else "192.0.2.1"
    return run("ip", "route", "get", address, "from", beyond, "iif", "eth3")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tap", ["tap0", "tap1"])
@pytest.mark.parametrize("late", ["described", "index-alone"])
def test_index_taken_without_uuid(taps: Taps, mode: str, tap: str, late: str) -> None:
    """NICs without UUID: A was NIC 0 of the instance, now B is, with a MAC of its own. Ganeti's files say nothing of either."""
    one = guest("a", mode, "tap0", uuid=False, INSTANCE="c.gnt.example")
    taps.start(one).close()
    taps.start(guest("b", mode, tap, uuid=False, INSTANCE="c.gnt.example"))
    before = snapshot()
    if late == "described":
        good(rundoor("kvm-ifdown", one))
    else:
        good(rundoor("kvm-ifdown", {"INSTANCE": "c.gnt.example", "INTERFACE_INDEX": "0"}, ""))
    changed = diff(before, snapshot())
    assert [line for line in changed if not of_first(line, one)] == []
    # A's record was undone when B took its tap; else now, if the call says enough to know it
    assert bool(changed) == (tap != "tap0" and late == "described")


def of_first(line: str, one: dict[str, str]) -> bool:
    """Whether something that went was the first guest's own: its record, what waits for a tap of its name, and its spoof guard."""
    if f'"table": "{NAME}"' in line:  # the sets of all guests: what is there of B stays
        return line.startswith("- ") or '"tap1"' in line
    uuid = one.get("INTERFACE_UUID") or generated_uuid(one["INSTANCE"], 0, one["MAC"])
    words = (uuid, "tap0", "a.gnt.example", f"cookie={cookie_of(uuid, 'tap0'):#x},", f'"{table_of("tap0")}"', f"nft-{table_of('tap0')}")
    return line.startswith("- ") and any(word in line for word in words) and "tap1" not in line


def test_open_vswitch_lets_go_of_a_persistent_tap(place: Place) -> None:
    """Closing the device, vswitchd writes back the flags that it remembers, "up" among them: what we undo comes after that, each time."""
    described = guest("a", "openvswitch", "tap0")
    kept = Tap("tap0", persistent=True)
    kept.close()
    try:
        for state in ("up", "down"):
            run("ip", "link", "set", "dev", "tap0", state)
        before = network()
        for _ in range(8):
            held = Tap("tap0")
            good(rundoor("kvm-ifup", described))
            held.close()
            good(rundoor("kvm-ifdown", described))
            assert diff(before, network()) == []
    finally:
        Tap("tap0", persistent=True).delete()
