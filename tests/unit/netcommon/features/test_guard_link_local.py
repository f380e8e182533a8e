"""link_local = "eui64" where no other IPv6 address of the guest is known, as most bridged guests are."""

from __future__ import annotations

import pytest

from netcommon.features.guard import plan
from netcommon.modes.openvswitch_flows import flows
from netcommon.operations.guard import rules as guard_rules
from netcommon.operations.guard.table import NicGuard
from netcommon.options.model import Options
from netcommon.settings.model import Settings
from runtime.nic import Nic

UUID = "00000000-0000-4000-8000-000000000001"
MAC, LOCAL = "aa:00:00:00:00:01", "fe80::a800:ff:fe00:1"
ANY, NOTHING = "any link local", "no IPv6 address known, MAC checks only"
BY_MAC = "no other IPv6 address known, only link-local ones are checked"


def guarded(mac: str = MAC, ip: str = "", **options: object) -> NicGuard:
    chosen = Options()._replace(**options)  # type: ignore[arg-type]
    (found,) = (one for one in plan(Nic(UUID, "tap0", "bridged", "br0", mac, ip), Settings(), chosen).before if isinstance(one, NicGuard))
    return found


@pytest.mark.parametrize(
    ("mac", "ip", "options", "addresses", "free", "said"),
    [
        (MAC, "", {"link_local": "eui64"}, (LOCAL,), {guard_rules.FREE_IPV4, guard_rules.FREE_IPV6}, BY_MAC),
        (MAC, "10.0.0.5", {"link_local": "eui64"}, ("10.0.0.5", LOCAL), {guard_rules.FREE_IPV6}, BY_MAC),
        (MAC, "fd00::5", {"link_local": "eui64"}, ("fd00::5", LOCAL), {guard_rules.FREE_IPV4}, ""),
        (MAC, "", {}, (), {guard_rules.FREE_IPV4, guard_rules.FREE_IPV6, guard_rules.ANY_LINK_LOCAL}, NOTHING),
        (
            MAC,
            "",
            {"link_local": "eui64", "allow_ip_spoofing": True},
            (),
            {guard_rules.FREE_IPV4, guard_rules.FREE_IPV6, guard_rules.ANY_LINK_LOCAL},
            NOTHING,
        ),
        (
            "",
            "",
            {"link_local": "eui64"},
            (),
            {guard_rules.FREE_IPV4, guard_rules.FREE_IPV6, guard_rules.ANY_LINK_LOCAL, guard_rules.FREE_MAC, guard_rules.NO_MAC},
            NOTHING,
        ),
    ],
)
def test_what_is_known_and_free(
    mac: str, ip: str, options: dict[str, object], addresses: tuple[str, ...], free: set[str], said: str
) -> None:
    made = guarded(mac, ip, **options)
    assert (made.addresses, set(made.free)) == (addresses, free)
    assert [words for words in (NOTHING, BY_MAC) if words in made.describe()] == ([said] if said else [])
    assert (ANY in made.describe()) == (guard_rules.ANY_LINK_LOCAL in free)


@pytest.mark.parametrize(
    ("mac", "options", "checked"),
    [
        (MAC, {"link_local": "eui64"}, "yes"),
        (MAC, {}, ""),
        ("", {"link_local": "eui64"}, ""),
        (MAC, {"link_local": "eui64", "allow_ip_spoofing": True}, ""),
        (MAC, {"link_local": "eui64", "allow_dhcp_spoofing": True}, ""),
    ],
)
def test_flows_are_told(mac: str, options: dict[str, object], checked: str) -> None:
    chosen = Options()._replace(**options)  # type: ignore[arg-type]
    words = dict(flows(Nic(UUID, "tap0", "openvswitch", "ovs0", mac), chosen)[1].words)
    assert (words["check_link_local"], words["check_ipv6"]) == (checked, "")
