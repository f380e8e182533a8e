"""The rules of each value."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime import validate
from runtime.errors import NicInvalid
from runtime.vlan import Vlan, parse_vlan

HOSTILE = ["", "a\nb", "a\x1b[0m", "a\udcffb", "a\0b", "../../etc", "$(reboot)/", "x" * 300, "\u202e\u2028"]
RULES: list[Callable[[str], object]] = [
    validate.interface,
    validate.uuid,
    validate.mac,
    validate.address,
    lambda text: validate.prefix(text, "NETWORK_SUBNET"),
    validate.index,
    validate.instance,
    validate.mac_prefix,
    lambda text: validate.link(text, "bridged"),
    lambda text: validate.link(text, "openvswitch"),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_refused_in_one_printable_line(rule: Callable[[str], object], text: str) -> None:
    with pytest.raises(NicInvalid) as caught:
        rule(text)
    assert caught.value.status == 64
    assert str(caught.value).isprintable()
    assert str(caught.value).isascii()


def refuses(rule: Callable[[str], object], *texts: str) -> None:
    for text in texts:
        with pytest.raises(NicInvalid):
            rule(text)


def test_interface_obeys_the_kernel() -> None:
    for good in ("tap0", "gnt.com.0", "a" * 15, "br-lan", "vif1.0-emu", "é" * 6):
        assert validate.interface(good) == good
    # the last: 0xa0 is a space to the kernel's isspace(), inside UTF-8 too
    refuses(validate.interface, ".", "..", "a/b", "a:1", "a b", "a" * 16, "é" * 8, "tap%d", "all", "default", "lo", "\u00a0x", "à")


def test_uuid_is_lower_cased() -> None:
    assert validate.uuid("13264FB6-0667-415f-9a43-786dc01cbf24") == "13264fb6-0667-415f-9a43-786dc01cbf24"
    refuses(
        validate.uuid, "13264fb60667415f9a43786dc01cbf24", "13264fb6-0667-415f-9a43-786dc01cbf2g", "{13264fb6-0667-415f-9a43-786dc01cbf24}"
    )


def test_mac_is_of_one_host() -> None:
    assert validate.mac("AA:00:00:12:34:5F") == "aa:00:00:12:34:5f"
    refuses(
        validate.mac,
        "01:00:5e:00:00:01",
        "ff:ff:ff:ff:ff:ff",
        "00:00:00:00:00:00",
        "aa:0:0:12:34:56",
        "aa-00-00-12-34-56",
        "aa:00:00:12:34",
    )


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("10.0.0.5/24", "10.0.0.5/24"),
        ("2001:DB8:0:0::0005", "2001:db8::5"),
        ("fe80::1/64", "fe80::1/64"),
        ("169.254.0.1", "169.254.0.1"),
        ("fd77::1/128", "fd77::1/128"),
    ],
)
def test_address_is_canonical(text: str, canonical: str) -> None:
    assert validate.address(text) == canonical
    assert validate.address(canonical) == canonical


def test_address_is_of_a_host() -> None:
    refuses(validate.address, "0.0.0.0", "127.0.0.1", "224.0.0.1", "239.255.255.255", "255.255.255.255", "0.1.2.3")
    refuses(validate.address, "::", "::1", "ff02::1", "::ffff:10.0.0.5", "::10.0.0.5", "fe80::1%eth0")
    refuses(
        validate.address,
        "10.0.0.5/33",
        "10.0.0.5/",
        "10.0.0.5/024",
        "10.0.0.5/-1",
        "10.0.0.5/255.255.255.0",
        "010.0.0.5",
        "10.0.5",
        "10.0.0.5 ",
    )
    refuses(lambda text: validate.address(text, length=False), "10.0.0.5/24")
    refuses(lambda text: validate.address(text, family=10), "10.0.0.5")
    refuses(lambda text: validate.address(text, family=2), "fe80::1")


def test_prefix_has_no_host_bits() -> None:
    for text, canonical in (
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("FD77:0::/64", "fd77::/64"),
        ("10.0.0.7/32", "10.0.0.7/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ):
        assert validate.prefix(text, "NETWORK_SUBNET") == canonical
    refuses(lambda text: validate.prefix(text, "N"), "10.0.0.1/24", "10.0.0.0", "fd77::1/64", "10.0.0.0/33")
    refuses(lambda text: validate.prefix(text, "N", 10), "10.0.0.0/8")


def test_index_and_instance() -> None:
    assert [validate.index(text) for text in ("0", "65535")] == [0, 65535]
    refuses(validate.index, "65536", "-1", "+1", "01", " 1", "1.0", "٣", "9" * 5000)
    for good in ("web1", "a.b.example", "Wébserver 1", ".hidden", "x" * 255):
        assert validate.instance(good) == good
    refuses(validate.instance, ".", "..", "a/b", "a..b", "-rf", "x" * 256, "é" * 128)


def test_tags_are_ganetis() -> None:
    assert validate.tags(" role:web  tenant/a@b.c+d*e-f_g ünï ") == ("role:web", "tenant/a@b.c+d*e-f_g", "ünï")
    assert validate.tags("") == ()
    assert validate.tags("x" * 128) == ("x" * 128,)
    refuses(validate.tags, "a,b", "a\tb", "$(x)", "a\nb", "x" * 129, "a;b", "\udcff")


def test_link_by_mode() -> None:
    def routed(text: str) -> str:
        return validate.link(text, "routed")

    assert [routed(text) for text in ("", "main", "100", "4294967295", "gnt-route.1@x", "br0", "communication_rt", "x" * 64)]
    refuses(routed, "0", "255", "local", "unspec", "4294967296", "0100", "0xff", "0XFF", "x" * 65, "a b", "../main", ".", "..", "a\n")
    assert [validate.link(text, "ext") for text in ("", "anything printable; $(even this)", "x" * 255)]
    refuses(lambda text: validate.link(text, "ext"), "a\nb", "x" * 256, "\udcff")


def test_vlan_notation() -> None:
    good = {"": Vlan(), "10": Vlan(10), ".10": Vlan(10), ":10:20": Vlan(None, (10, 20)), ".10:20": Vlan(10, (20,)), ".4094": Vlan(4094)}
    for text, vlan in good.items():
        assert parse_vlan(text) == vlan
        assert parse_vlan(str(vlan)) == vlan
    refuses(
        parse_vlan,
        ".",
        ":",
        "0",
        "4095",
        ".10:10",
        ":10:10",
        "10:20",
        ".10:",
        ":",
        "a",
        ".\u0661",
        "-1",
        ".10\n",
        " 10",
        "00010",
        "..10",
        ":.10",
    )
