"""Options of NICs: where each may come from, what wins, and what is refused."""

from __future__ import annotations

import typing

import pytest

from netcommon.options import DEFAULTS, Options, options_of
from netcommon.options_schema import OPTIONS
from netcommon.settings import Settings
from netcommon.tags import given
from runtime.errors import NicInvalid
from runtime.nic import Network, Nic

UUID = "00000000-0000-4000-8000-000000000001"


def nic(tags: str = "", network_tags: str = "", index: int | None = 0, name: str = "wan", network: str = "blue") -> Nic:
    found = Network(name=network, uuid="11111111-0000-4000-8000-000000000001", tags=tuple(network_tags.split()))
    return Nic(UUID, "tap0", "bridged", "br0", index=index, name=name, tags=tuple(tags.split()), network=found)


def test_every_option_is_a_field_with_a_default_that_it_may_have() -> None:
    assert [option.name for option in OPTIONS] == list(Options._fields)
    for option in OPTIONS:
        value = getattr(DEFAULTS, option.name)
        assert option.kind.read(list(value) if isinstance(value, tuple) else value) == value
    assert set(typing.get_type_hints(Options).values()) <= {bool, str, int, tuple[str, ...]}


def test_nobody_asks_for_anything() -> None:
    assert options_of(nic("role:web", "zone:a"), Settings()) is DEFAULTS


LEVELS: list[tuple[Settings, str, str]] = [
    (Settings(nic={"rate_in": 8000}), "", ""),
    (Settings(networks={"blue": {"rate_in": 9000}}), "", ""),
    (Settings(networks={"11111111-0000-4000-8000-000000000001": {"rate_in": 10000}}), "", ""),
    (Settings(), "", "netcommon:rate_in:11kbit"),
    (Settings(), "netcommon:*:rate_in:12kbit", ""),
    (Settings(), "netcommon:0:rate_in:13kbit", ""),
]


@pytest.mark.parametrize("low", range(len(LEVELS)))
@pytest.mark.parametrize("high", range(len(LEVELS)))
def test_the_nearer_to_the_nic_the_stronger(low: int, high: int) -> None:
    chosen = [LEVELS[number] for number in sorted({low, high})]
    settings = Settings()
    for one, _tags, _network in chosen:
        settings = settings._replace(nic={**settings.nic, **one.nic}, networks={**settings.networks, **one.networks})
    one_nic = nic(" ".join(tags for _, tags, _ in chosen), " ".join(tags for _, _, tags in chosen))
    assert options_of(one_nic, settings).rate_in == 8000 + 1000 * max(low, high)
    assert len(list(given(one_nic, settings))) == len(chosen)


@pytest.mark.parametrize(
    ("tag", "field", "value"),
    [
        ("netcommon:0:isolated", "isolated", True),
        ("netcommon:wan:isolated:true", "isolated", True),
        (f"netcommon:{UUID}:isolated:yes", "isolated", True),
        ("netcommon:*:announce:off", "announce", False),
        ("netcommon:1:isolated", "isolated", False),
        ("netcommon:lan:isolated", "isolated", False),
        ("Netcommon:0:isolated", "isolated", False),
        ("netcommonx:0:isolated", "isolated", False),
        ("netcommon:0:protected", "firewall", "protected"),
        ("netcommon:0:firewall:limited", "firewall", "limited"),
        ("netcommon:0:addresses:2001:DB8:0::1", "addresses", ("2001:db8::1",)),
        ("netcommon:0:prefixes:192.0.2.0/28", "prefixes", ("192.0.2.0/28",)),
        ("netcommon:0:tap_mac:FE:00:00:00:00:01", "tap_mac", "fe:00:00:00:00:01"),
        ("netcommon:0:rate_out:2gbit", "rate_out", 2 * 10**9),
        ("netcommon:0:rate_out:64000", "rate_out", 64000),
        ("netcommon:0:addresses:192.0.2.1 netcommon:0:addresses:192.0.2.2", "addresses", ("192.0.2.1", "192.0.2.2")),
        ("netcommon:*:addresses:192.0.2.1 netcommon:0:addresses:192.0.2.2", "addresses", ("192.0.2.2",)),
    ],
)
def test_tags_of_an_instance(tag: str, field: str, value: object) -> None:
    assert getattr(options_of(nic(tag), Settings()), field) == value


def test_another_prefix_with_a_colon() -> None:
    settings = Settings(tag_prefix="synnefo:network")
    assert options_of(nic("synnefo:network:0:protected netcommon:0:limited"), settings).firewall == "protected"


@pytest.mark.parametrize(
    ("tags", "network_tags", "words"),
    [
        ("netcommon:0:isolatd", "", ("TAGS", "netcommon:0:isolatd", "isolated")),
        ("netcommon:0:", "", ("TAGS",)),
        ("netcommon:0", "", ("TAGS",)),
        ("netcommon:0:rate_in", "", ("rate_in", "bits a second")),
        ("netcommon:0:rate_in:7999", "", ("rate_in",)),
        ("netcommon:0:rate_in:\u0664kbit", "", ("rate_in",)),
        ("netcommon:0:isolated:maybe", "", ("true or false",)),
        ("netcommon:0:addresses:10.0.0.0/8", "", ("addresses",)),
        ("netcommon:0:addresses:127.0.0.1", "", ("addresses",)),
        ("netcommon:0:prefixes:192.0.2.1/28", "", ("prefixes", "host bits")),
        ("netcommon:0:tap_mac:01:00:00:00:00:00", "", ("tap_mac", "unicast")),
        ("netcommon:0:protected netcommon:0:limited", "", ("firewall", "once")),
        ("", "netcommon:isolated:maybe", ("NETWORK_TAGS", "true or false")),
        ("", "netcommon:0:isolated", ("NETWORK_TAGS", "an option")),
    ],
)
def test_what_is_not_understood_is_refused(tags: str, network_tags: str, words: tuple[str, ...]) -> None:
    with pytest.raises(NicInvalid) as caught:
        options_of(nic(tags, network_tags), Settings())
    assert all(word in str(caught.value) for word in words)


def test_where_each_came_from() -> None:
    settings = Settings(nic={"isolated": True}, networks={"blue": {"announce": False}})
    found = list(given(nic("netcommon:0:rate_in:1mbit", "netcommon:eui64"), settings))
    assert [(each.name, each.origin) for each in found] == [
        ("isolated", "[nic]"),
        ("announce", "[networks.blue]"),
        ("eui64", "NETWORK_TAGS: netcommon:eui64"),
        ("rate_in", "TAGS: netcommon:0:rate_in:1mbit"),
    ]
