"""Settings below /proc/sys, by device, and those that follow others."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.requests import SetSysctl
from tests.contract.worlds import World, do, told, view

TAP = "net/ipv4/conf/tap0/proxy_arp"


def test_read_and_write(world: World) -> None:
    world.tap("tap0")
    assert view(world).sysctl(TAP) == "0"
    assert do(world, SetSysctl(TAP, "1")) == [0]
    assert view(world).sysctl(TAP) == "1"
    assert do(world, SetSysctl(TAP, " 2 ")) == [0]
    assert view(world).sysctl(TAP) == "2"


@pytest.mark.parametrize(
    "name", ["ipv4/conf/tap0/forwarding", "ipv4/conf/tap0/rp_filter", "ipv6/conf/tap0/proxy_ndp", "ipv6/conf/tap0/forwarding"]
)
def test_what_a_routed_nic_needs(world: World, name: str) -> None:
    world.tap("tap0")
    assert do(world, SetSysctl(f"net/{name}", "1")) == [0]
    assert view(world).sysctl(f"net/{name}") == "1"
    world.let_go("tap0")
    assert view(world).sysctl(f"net/{name}") is None
    assert told(world, SetSysctl(f"net/{name}", "1")).errno == errno.ENOENT


def test_another_device_of_the_same_name(world: World) -> None:
    """Is not written to: the kernel knows settings by name, we mean a device."""
    world.tap("tap0")
    one = index(world)
    assert do(world, SetSysctl(TAP, "1", one)) == [0]
    world.let_go("tap0")
    assert told(world, SetSysctl(TAP, "1", one)).errno == errno.ENOENT
    world.tap("tap0")
    assert told(world, SetSysctl(TAP, "1", one)).errno == errno.ENODEV
    assert view(world).sysctl(TAP) == "0"
    assert do(world, SetSysctl(TAP, "1", index(world))) == [0]


def index(world: World) -> int:
    """Of tap0."""
    link = view(world).link("tap0")
    assert link is not None
    return link.index


@pytest.mark.parametrize(
    ("path", "value", "number"),
    [
        (TAP, "x", errno.EINVAL),
        (TAP, "", errno.EINVAL),
        (TAP, "99999999999", errno.EINVAL),
        ("net/ipv4/conf/tap9/proxy_arp", "1", errno.ENOENT),
        ("net/ipv4/conf/tap0", "1", errno.EISDIR),
        ("../sys/net/ipv4/ip_forward", "1", errno.EINVAL),
        ("net/../net/ipv4/ip_forward", "1", errno.EINVAL),
        ("net/ipv4/./ip_forward", "1", errno.EINVAL),
        ("/proc/sys/net/ipv4/ip_forward", "1", errno.EINVAL),
        ("net//ipv4/ip_forward", "1", errno.EINVAL),
        ("net/ipv4/ip_forward\0", "1", errno.EINVAL),
        ("", "1", errno.EINVAL),
    ],
)
def test_refused(world: World, path: str, value: str, number: int) -> None:
    world.tap("tap0")
    assert told(world, SetSysctl(path, value)).errno == number
    assert view(world).sysctl(TAP) == "0"
    assert view(world).sysctl("net/ipv4/ip_forward") == "0"
    if path != TAP:
        assert view(world).sysctl(path) is None


def test_devices_with_dots(world: World) -> None:
    world.tap("gnt.com.0")
    assert do(world, SetSysctl("net/ipv4/conf/gnt.com.0/proxy_arp", "1")) == [0]
    assert view(world).sysctl("net/ipv4/conf/gnt.com.0/proxy_arp") == "1"


@pytest.mark.parametrize("switch", ["net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"])
def test_forwarding_of_ipv4_is_everywhere(world: World, switch: str) -> None:
    world.tap("tap0")
    names = ["net/ipv4/ip_forward", *(f"net/ipv4/conf/{name}/forwarding" for name in ("all", "default", "tap0"))]
    for value in ("1", "0"):
        assert do(world, SetSysctl(switch, value)) == [0]
        assert [view(world).sysctl(name) for name in names] == [value] * 4
    assert do(world, SetSysctl("net/ipv4/conf/tap0/forwarding", "1")) == [0]
    assert [view(world).sysctl(name) for name in names] == ["0", "0", "0", "1"]


def test_forwarding_of_ipv6_is_everywhere(world: World) -> None:
    world.tap("tap0")
    names = [f"net/ipv6/conf/{name}/forwarding" for name in ("all", "default", "tap0")]
    assert do(world, SetSysctl(names[0], "1")) == [0]
    assert [view(world).sysctl(name) for name in names] == ["1", "1", "1"]
    assert do(world, SetSysctl(names[2], "0")) == [0]
    assert [view(world).sysctl(name) for name in names] == ["1", "1", "0"]


def test_new_devices_take_the_default(world: World) -> None:
    """In IPv4 so do those whose setting was never written."""
    world.tap("tap0")
    world.tap("tap1")
    assert do(world, SetSysctl(TAP, "0"), SetSysctl("net/ipv4/conf/default/proxy_arp", "1")) == [0, 0]
    assert do(world, SetSysctl("net/ipv6/conf/default/proxy_ndp", "1")) == [0]
    world.tap("tap2")
    assert [view(world).sysctl(f"net/ipv4/conf/tap{number}/proxy_arp") for number in range(3)] == ["0", "1", "1"]
    assert [view(world).sysctl(f"net/ipv6/conf/tap{number}/proxy_ndp") for number in range(3)] == ["0", "0", "1"]
