"""The addresses of a NIC: from IP, options and the MAC, in one place."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.options.addresses import Addresses, addresses_of, eui64, link_local
from netcommon.options.model import Options
from runtime.errors import NicInvalid
from runtime.nic import Network, Nic

MAC = "aa:00:00:12:34:56"


def found(ip: str = "", subnet6: str = "", mac: str = MAC, **options: Any) -> Addresses:
    return addresses_of(Nic("u", "tap0", "routed", "", mac, ip, network=Network(subnet6=subnet6)), Options(**options))


@pytest.mark.parametrize(
    ("ip", "expected"),
    [
        ("", Addresses()),
        ("10.0.0.5", Addresses(ipv4=("10.0.0.5",))),
        ("10.0.0.5/24", Addresses(ipv4=("10.0.0.5",))),
        ("10.0.0.5/32", Addresses(ipv4=("10.0.0.5",))),
        ("10.0.0.0/24", Addresses(prefixes4=("10.0.0.0/24",))),
        ("2001:db8::5", Addresses(ipv6=("2001:db8::5",))),
        ("2001:db8::5/64", Addresses(ipv6=("2001:db8::5",))),
        ("2001:db8::/64", Addresses(prefixes6=("2001:db8::/64",))),
    ],
)
def test_ip(ip: str, expected: Addresses) -> None:
    assert found(ip) == expected


def test_all_there_is() -> None:
    """In the order of IP, addresses, EUI-64, prefixes; none twice; a prefix of full length is a host."""
    many = found(
        "10.0.0.5/24",
        "2001:db8::/64",
        eui64=True,
        addresses=("10.0.0.6", "10.0.0.5", "2001:db8::5", "2001:db8::a800:ff:fe12:3456"),
        prefixes=("10.1.0.0/28", "10.0.0.7/32", "2001:db8:1::/64"),
    )
    assert many == Addresses(
        ("10.0.0.5", "10.0.0.6", "10.0.0.7"), ("2001:db8::5", "2001:db8::a800:ff:fe12:3456"), ("10.1.0.0/28",), ("2001:db8:1::/64",)
    )
    assert many.families == (2, 10)
    assert many.hosts(2) == many.ipv4 and many.prefixes(10) == many.prefixes6
    assert many.destinations(2) == ("10.0.0.5/32", "10.0.0.6/32", "10.0.0.7/32", "10.1.0.0/28")
    assert many.destinations(10)[-1] == "2001:db8:1::/64"


def test_eui64_needs_subnet_and_mac() -> None:
    assert found(subnet6="2001:db8::/64", mac="", eui64=True) == found(eui64=True) == Addresses()
    assert found(subnet6="2001:db8::/64") == Addresses()
    with pytest.raises(NicInvalid, match=r"NETWORK_SUBNET6.*/64.*eui64"):
        found(subnet6="2001:db8::/56", eui64=True)


def test_eui64_of_the_rfc() -> None:
    """RFC 4291, appendix A: 34-56-78-9A-BC-DE becomes 36-56-78-FF-FE-9A-BC-DE."""
    assert eui64("2001:db8::/64", "34:56:78:9a:bc:de") == "2001:db8::3656:78ff:fe9a:bcde"
    assert link_local("34:56:78:9a:bc:de") == "fe80::3656:78ff:fe9a:bcde"


@given(st.sampled_from([2, 10]), st.data())
def test_canonical_as_ipaddress_has_it(family: int, data: st.DataObject) -> None:
    """Any address, in a prefix of any length: the host's own where it has host bits, else the prefix."""
    size, kind = (32, ipaddress.IPv4Interface) if family == 2 else (128, ipaddress.IPv6Interface)
    number, length = data.draw(st.integers(0, (1 << size) - 1)), data.draw(st.integers(0, size))
    given_ = kind((number, length))
    made = found(str(given_))
    expected = str(given_.network) if given_.ip == given_.network.network_address and length < size else str(given_.ip)
    assert made.hosts(family) + made.prefixes(family) == (expected,)
