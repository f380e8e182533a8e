"""Addresses of devices: added without a route, replaced, deleted whatever their mark, and gone with their device."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import Address
from netcommon.host.api.requests import AddAddress, DeleteAddress, SetLink, SetSysctl
from tests.contract.worlds import World, do, index, told, view
from tests.support.netns import wait_until

ADDRESSES = {2: ("169.254.169.254", 32), 10: ("fe80::1", 64)}
BOTH = pytest.mark.parametrize("family", ADDRESSES)
KERNELS_OWN = 3  #: IFAPROT_KERNEL_LL: the link-local address that comes by itself


def address(world: World, family: int, **changes: object) -> Address:
    text, length = ADDRESSES[family]
    return Address(family, text, length, index(world, "tap0"))._replace(**changes)  # type: ignore[arg-type]


def found(world: World, device: str | None = "tap0") -> list[Address]:
    """What was asked for."""
    there = view(world).addresses(None if device is None else index(world, device))
    return [one for one in there if one.protocol in (174, 4)]


@pytest.fixture
def tap(world: World) -> World:
    """A tap, up, without the address that the kernel would give it."""
    world.tap("tap0")
    assert do(world, SetSysctl("net/ipv6/conf/tap0/addr_gen_mode", "1"), SetLink(index(world, "tap0"), up=True)) == [0, 0]
    return world


@BOTH
def test_add_and_delete(tap: World, family: int) -> None:
    made = address(tap, family)
    assert do(tap, AddAddress(made), AddAddress(made)) == [0, 0]
    assert found(tap) == found(tap, None) == [made]
    assert list(tap.host.snapshot().addresses(made.index)) == [made]
    assert made in tap.host.snapshot().addresses()
    assert do(tap, DeleteAddress(made)) == [0]
    assert found(tap) == []
    assert told(tap, DeleteAddress(made)).errno == errno.EADDRNOTAVAIL


@BOTH
def test_no_route_to_its_prefix(tap: World, family: int) -> None:
    """Whatever the length."""
    made = address(tap, family, address="192.0.2.1" if family == 2 else "2001:db8::1", length=24 if family == 2 else 64)
    assert do(tap, AddAddress(made)) == [0]
    assert view(tap).routes(family, 254) == []


@BOTH
def test_the_mark_is_not_compared(tap: World, family: int) -> None:
    made = address(tap, family)
    assert do(tap, AddAddress(made._replace(protocol=4))) == [0]
    assert found(tap) == [made._replace(protocol=4)]
    assert do(tap, AddAddress(made)) == [0]
    assert found(tap) == [made]
    assert do(tap, DeleteAddress(made._replace(protocol=4))) == [0]
    assert found(tap) == []


@BOTH
def test_only_the_same_one_is_deleted(tap: World, family: int) -> None:
    made = address(tap, family)
    assert do(tap, AddAddress(made)) == [0]
    assert told(tap, DeleteAddress(made._replace(length=24 if family == 2 else 128))).errno == errno.EADDRNOTAVAIL
    other = "169.254.169.253" if family == 2 else "fe80::2"
    assert told(tap, DeleteAddress(made._replace(address=other))).errno == errno.EADDRNOTAVAIL
    assert found(tap) == [made]


def test_of_ipv6_a_device_has_an_address_once(tap: World) -> None:
    """Added again with another length it is the same one, which is changed, but for its length; of IPv4 these are two."""
    six, four = address(tap, 10), address(tap, 2)
    assert do(tap, AddAddress(six), AddAddress(six._replace(length=128, protocol=4, deprecated=True))) == [0, 0]
    assert found(tap) == [six._replace(protocol=4, deprecated=True)]
    assert do(tap, DeleteAddress(six), AddAddress(four), AddAddress(four._replace(length=24))) == [0, 0, 0]
    assert sorted(found(tap)) == sorted([four, four._replace(length=24)])


def test_down_takes_those_of_ipv6(tap: World) -> None:
    four, six = address(tap, 2), address(tap, 10)
    assert do(tap, AddAddress(four), AddAddress(six), SetLink(four.index, up=False)) == [0, 0, 0]
    assert found(tap) == [four]


@BOTH
def test_they_go_with_their_device(tap: World, family: int) -> None:
    made = address(tap, family)
    assert do(tap, AddAddress(made)) == [0]
    tap.let_go("tap0")
    assert view(tap).addresses(made.index) == [] and made not in view(tap).addresses()


@BOTH
def test_refused(tap: World, family: int) -> None:
    made = address(tap, family, index=9999)
    assert told(tap, AddAddress(made)).errno == errno.ENODEV
    assert told(tap, DeleteAddress(made)).errno == errno.ENODEV
    answer = told(tap, AddAddress(address(tap, family, address="nonsense")))
    assert answer.errno == errno.EINVAL and "tap0" in answer.text
    assert view(tap).addresses(0) == []


def test_ipv6_is_off_on_the_device(tap: World) -> None:
    assert do(tap, SetSysctl("net/ipv6/conf/tap0/disable_ipv6", "1")) == [0]
    assert told(tap, AddAddress(address(tap, 10))).errno == errno.EACCES
    assert do(tap, AddAddress(address(tap, 2))) == [0]


@pytest.mark.parametrize(
    ("family", "address", "length", "shared", "free"),
    [
        (2, "192.0.2.1", 24, "192.0.2.255", "192.0.2.254"),
        (2, "192.0.2.1", 30, "192.0.2.3", "192.0.2.2"),
        (2, "192.0.2.0", 31, "", "192.0.2.1"),
        (2, "192.0.2.1", 32, "", "192.0.2.255"),
        (10, "fd00::1", 64, "fd00::", "fd00::ffff:ffff:ffff:ffff"),
    ],
)
def test_an_address_of_all_or_any(world: World, family: int, address: str, length: int, shared: str, free: str) -> None:
    """That of a broadcast, and in IPv6 of the routers in a network: the node gets what is for it."""
    world.veth("up0", "peer")
    assert do(world, SetSysctl("net/ipv6/conf/all/forwarding", "1")) == [0]
    assert do(world, SetLink(index(world, "up0"), up=True), SetLink(index(world, "peer"), up=True)) == [0, 0]
    assert do(world, AddAddress(Address(family, address, length, index(world, "up0")))) == [0]
    wait_until(lambda: view(world).local(family, address), 10, "the kernel takes an IPv6 address once nobody else claims it")
    for each in (view(world), world.host.snapshot()):
        assert (not shared or each.local(family, shared)) and not each.local(family, free)


@pytest.mark.parametrize(("family", "address", "length"), [(2, "192.0.2.1", 24), (10, "fd00::1", 64)])
def test_an_address_of_the_node_itself(world: World, family: int, address: str, length: int) -> None:
    """Whichever device has it, and whichever route to it there is; not the rest of its network, nor one that nothing leads to."""
    world.veth("up0", "peer")
    other = address[:-1] + "2"
    assert do(world, SetLink(index(world, "up0"), up=True), SetLink(index(world, "peer"), up=True)) == [0, 0]
    for each in (view(world), world.host.snapshot()):
        assert not each.local(family, address) and not each.local(family, other)
    assert do(world, AddAddress(Address(family, address, length, index(world, "up0")))) == [0]
    wait_until(lambda: view(world).local(family, address), 10, "the kernel takes an IPv6 address once nobody else claims it")
    for each in (view(world), world.host.snapshot()):
        assert each.local(family, address) and not each.local(family, other)


def test_a_deprecated_one_is_told_as_such(tap: World) -> None:
    """And is one that is not, as soon as it is asked for so: the node may begin connections from it."""
    made = address(tap, 10, address="2001:db8::1", length=128)
    assert do(tap, AddAddress(made._replace(deprecated=True))) == [0]
    assert found(tap) == [made._replace(deprecated=True)]
    assert do(tap, AddAddress(made)) == [0]
    assert found(tap) == [made]
    assert do(tap, AddAddress(made._replace(deprecated=True))) == [0]
    assert found(tap) == [made._replace(deprecated=True)]
    assert do(tap, DeleteAddress(made)) == [0]
    assert found(tap) == []
