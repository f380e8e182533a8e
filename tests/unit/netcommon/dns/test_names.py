"""Names, addresses and the records that an instance shall have: pure."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.dns.guest import Guest, Nic, dump, event, load
from netcommon.dns.names import LONGEST, eui64, hostname, is_published, is_zone, reverse, zone_of
from netcommon.dns.records import Policy, names_of, wanted
from runtime.errors import USAGE, NicInvalid
from tests.support.ganeti_event import CLUSTER, nic
from tests.support.ganeti_event import event as environment

POLICY = Policy(("example.com", "2.0.192.in-addr.arpa", "8.b.d.0.1.0.0.2.ip6.arpa"), other_nics="{host}-eth{index}")


@pytest.mark.parametrize("name", ["web.example.com", "WEB.Example.COM", "a", "3com.com", "a-b.c", "a." * 30 + "com", "x" * 63 + ".de"])
def test_host_names(name: str) -> None:
    assert hostname(name, "NAME") == name.lower()


@pytest.mark.parametrize(
    "name",
    ["", ".", "a.", ".a", "a..b", "-a.b", "a-.b", "a_b.c", "*.example.com", "a b", "a\n", "a\0b", "web.\udcff", "ü.de", "192.0.2.1", "x.1",
     "10.2.0.192.in-addr.arpa", "x" * 64, "a." * (LONGEST // 2) + "com", "../x", "a/b", "xn--\u00df", "\u212a.de", '"', "a;b"],
)  # fmt: skip
def test_what_is_no_host_name(name: str) -> None:
    with pytest.raises(NicInvalid) as caught:
        hostname(name, "NAME")
    assert caught.value.status == USAGE
    assert str(caught.value).isprintable()


@given(st.text())
def test_a_host_name_is_what_it_should_be(text: str) -> None:
    """Whatever comes in: an error, or letters, digits, hyphens and dots that fit into a message with the mark's label before them."""
    try:
        name = hostname(text, "NAME")
    except NicInvalid:
        return
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert len("_netcommon." + name) <= 253
    assert all(0 < len(label) <= 63 for label in name.split("."))


@given(st.ip_addresses())
def test_reverse_names(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert reverse(str(address)) == address.reverse_pointer


@given(st.ip_addresses())
def test_what_is_link_local_is_not_published(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert is_published(str(address)) == (not address.is_link_local)


def test_the_longest_zone_counts_and_only_whole_labels() -> None:
    zones = ("example.com", "b.example.com", "le.com")
    expected = {"a.example.com": "example.com", "a.b.example.com": "b.example.com", "b.example.com": "b.example.com"}
    expected |= {"ample.com": "", "example.com": "example.com", "x.org": ""}
    assert {name: zone_of(name, zones) for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "good"), [("0/26.2.0.192.in-addr.arpa", True), ("a_b.c", True), ("a b", False), ("", False), ("-a", False)]
)
def test_zones(name: str, good: bool) -> None:
    assert is_zone(name) == good


def test_eui64() -> None:
    """RFC 4291, appendix A, and 2.5.1: the bit of universal addresses is inverted."""
    assert eui64("2001:db8:0:1::/64", "34:56:78:9a:bc:de") == "2001:db8:0:1:3656:78ff:fe9a:bcde"


def test_the_records_of_an_instance() -> None:
    nics = (Nic("192.0.2.10"), Nic("2001:db8::10"), Nic(), Nic("198.51.100.7"), Nic("169.254.0.1"))
    assert wanted(Guest("web.example.com", CLUSTER, nics), POLICY) == {
        "web.example.com": {"A": {"192.0.2.10"}},
        "10.2.0.192.in-addr.arpa": {"PTR": {"web.example.com"}},
        "web-eth1.example.com": {"AAAA": {"2001:db8::10"}},
        reverse("2001:db8::10"): {"PTR": {"web-eth1.example.com"}},
        "web-eth3.example.com": {"A": {"198.51.100.7"}},
    }


def test_policies() -> None:
    guest = Guest("web", CLUSTER, (Nic("192.0.2.10", "aa:00:00:00:00:01", "2001:db8:0:1::/64"), Nic("192.0.2.11")))
    assert wanted(guest, POLICY) == {
        "10.2.0.192.in-addr.arpa": {"PTR": {"web"}},
        "11.2.0.192.in-addr.arpa": {"PTR": {"web-eth1"}},
    }
    one = POLICY._replace(domain="example.com", other_nics="{host}", zones=("example.com",))
    assert wanted(guest, one) == {"web.example.com": {"A": {"192.0.2.10", "192.0.2.11"}}}
    first = POLICY._replace(domain="example.com", other_nics="", eui64=True, zones=("example.com",))
    assert wanted(guest, first) == {"web.example.com": {"A": {"192.0.2.10"}, "AAAA": {"2001:db8:0:1:a800:ff:fe00:1"}}}
    no64 = guest._replace(nics=(Nic("", "aa:00:00:00:00:01", "2001:db8::/48"),))
    assert wanted(no64, first) == {}


def test_a_name_that_gets_too_long_is_refused() -> None:
    guest = Guest("x" * 60 + ".example.com", CLUSTER, (Nic("192.0.2.10"), Nic("192.0.2.11")))
    with pytest.raises(NicInvalid, match="the name of NIC 1"):
        wanted(guest, POLICY)
    assert names_of(guest.name, POLICY) == [guest.name]


class TestEvents:
    def test_rename_takes_the_new_name_and_the_old_one(self) -> None:
        told = event(environment("rename", "web.example.com", [nic("192.0.2.10")], INSTANCE_NEW_NAME="www.example.com"))
        assert told is not None
        assert (told.guest.name, told.former) == ("www.example.com", "web.example.com")
        told = event(environment("rename", "web.example.com", [], INSTANCE_NEW_NAME="web.example.com"))
        assert told is not None and told.former == ""

    def test_what_holds_after_the_operation_counts(self) -> None:
        found = environment("modify", "web.example.com", [nic("192.0.2.10"), nic("192.0.2.11")])
        found |= {"GANETI_INSTANCE_NIC_COUNT": "1", "GANETI_INSTANCE_NIC0_IP": "192.0.2.99"}
        told = event(found)
        assert told is not None and [one.ip for one in told.guest.nics] == ["192.0.2.10", "192.0.2.11"]

    def test_a_removal_wants_nothing_though_the_nics_are_listed(self) -> None:
        told = event(environment("remove", "web.example.com", [nic("192.0.2.10")]))
        assert told is not None and told.guest == Guest("web.example.com", CLUSTER)

    @pytest.mark.parametrize("operation", ["start", "stop", "migrate", "export", "", "add/../remove"])
    def test_others_tell_nothing(self, operation: str) -> None:
        assert event(environment(operation, "web.example.com", [nic("192.0.2.10")])) is None

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("GANETI_POST_INSTANCE_NIC_COUNT", "-1"),
            ("GANETI_POST_INSTANCE_NIC_COUNT", "9" * 400),
            ("GANETI_POST_INSTANCE_NIC_COUNT", "65"),
            ("GANETI_POST_INSTANCE_NIC_COUNT", "\u0661"),
            ("GANETI_POST_INSTANCE_NIC0_IP", "192.0.2.10/24"),
            ("GANETI_POST_INSTANCE_NIC0_IP", "::1"),
            ("GANETI_POST_INSTANCE_NIC0_IP", "pool"),
            ("GANETI_POST_INSTANCE_NIC0_MAC", "auto"),
            ("GANETI_POST_INSTANCE_NIC0_NETWORK_SUBNET6", "2001:db8::1/64"),
            ("GANETI_CLUSTER", "a b"),
            ("GANETI_CLUSTER", ""),
            ("GANETI_INSTANCE_NAME", "web\n.example.com"),
            ("GANETI_INSTANCE_NAME", '"x" "y"'),
        ],
    )
    def test_hostile_values_are_refused_by_name(self, key: str, value: str) -> None:
        with pytest.raises(NicInvalid, match=key):
            event(environment("add", "web.example.com", [nic("192.0.2.10")]) | {key: value})

    def test_a_guest_comes_back_from_json(self) -> None:
        guest = Guest("web.example.com", CLUSTER, (Nic("192.0.2.10", "aa:00:00:00:00:01", "2001:db8::/64"), Nic()))
        assert load(dump(guest)) == guest
