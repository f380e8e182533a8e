"""Options of NICs: where each may come from, what wins, and what is refused."""

from __future__ import annotations

import itertools
import os
import typing
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from netcommon.options.model import DEFAULTS, Options
from netcommon.options.schema import OPTIONS, Option
from netcommon.options.sources import given, options_of
from netcommon.options.types import Service, Text
from netcommon.plan.planner import effects, plan
from netcommon.settings.model import Settings
from netcommon.settings.parse import read
from runtime import validate
from runtime.errors import NicInvalid, SettingsInvalid, escaped
from runtime.nic import Network, Nic
from runtime.vlan import NO_VLAN, Vlan
from tests.support.cli import equipped
from tests.support.options import asked

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
        ("netcommon:0:node_access:all", "node_access", ("all",)),
        ("netcommon:0:node_access:none", "node_access", ("none",)),
        ("netcommon:0:node_access:udp/67", "node_access", ("udp/67",)),
        ("netcommon:0:node_access:tcp/443 netcommon:0:node_access:tcp/80", "node_access", ("tcp/80", "tcp/443")),
        ("netcommon:0:node_access:udp/53 netcommon:0:node_access:icmp", "node_access", ("icmp", "udp/53")),
        ("netcommon:*:node_access:none netcommon:0:node_access:udp/65535", "node_access", ("udp/65535",)),
        ("netcommon:*:node_access:udp/53 netcommon:0:node_access:all", "node_access", ("all",)),
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
        ("netcommon:0:rate_in:7999", "", ("rate_in", "8kbit to 1000gbit")),
        ("netcommon:0:rate_out:1001gbit", "", ("rate_out", "8kbit to 1000gbit")),
        ("netcommon:0:rate_in:\u0664kbit", "", ("rate_in",)),
        ("netcommon:0:isolated:maybe", "", ("true or false",)),
        ("netcommon:0:addresses:10.0.0.0/8", "", ("addresses",)),
        ("netcommon:0:addresses:127.0.0.1", "", ("addresses",)),
        ("netcommon:0:prefixes:192.0.2.1/28", "", ("prefixes", "host bits")),
        ("netcommon:0:tap_mac:01:00:00:00:00:00", "", ("tap_mac", "unicast")),
        ("netcommon:0:protected netcommon:0:limited", "", ("firewall", "once")),
        ("netcommon:0:isolated:", "", ("true or false",)),
        ("netcommon:0:tap_mac", "", ("tap_mac", "unicast")),
        ("netcommon:0:flows", "", ("flows",)),
        ("netcommon:0:flows:x netcommon:0:flows:", "", ("flows", "once")),
        ("netcommon:0:flows:../../shadow", "", ("flows",)),
        ("netcommon:0:addresses:::ffff:10.0.0.1", "", ("addresses",)),
        ("netcommon:0:addresses:255.255.255.255", "", ("addresses",)),
        ("netcommon:0:prefixes:10.0.0.0/0.255.255.255", "", ("prefixes",)),
        ("netcommon:0:prefixes:224.0.0.0/8", "", ("prefixes",)),
        ("netcommon:0:prefixes:::/0", "", ("prefixes", "not ::/0")),
        ("netcommon:0:node_access", "", ("node_access", "none", "udp/PORT")),
        ("netcommon:0:node_access:", "", ("node_access", "none", "udp/PORT")),
        ("netcommon:0:node_access:some", "", ("node_access", "icmp")),
        ("netcommon:0:node_access:udp", "", ("node_access",)),
        ("netcommon:0:node_access:udp/0", "", ("node_access",)),
        ("netcommon:0:node_access:udp/053", "", ("node_access",)),
        ("netcommon:0:node_access:udp/65536", "", ("node_access",)),
        ("netcommon:0:node_access:udp/\u0663", "", ("node_access",)),
        ("netcommon:0:node_access:sctp/80", "", ("node_access",)),
        ("netcommon:0:node_access:UDP/53", "", ("node_access",)),
        ("netcommon:0:node_access:udp/53/54", "", ("node_access",)),
        ("netcommon:0:node_access:icmp/8", "", ("node_access",)),
        ("netcommon:0:node_access:none netcommon:0:node_access:udp/53", "", ("node_access", "udp/53", "with netcommon:0:node_access:none")),
        ("netcommon:0:node_access:all netcommon:0:node_access:none", "", ("node_access", "with netcommon:0:node_access:all")),
        ("netcommon:*", "", ("TAGS",)),
        ("netcommon::isolatd netcommon:0::", "", ("TAGS",)),
        ("netcommon:", "", ("TAGS", "NIC:OPTION")),
        ("netcommon::", "", ("TAGS", "NIC:OPTION")),
        ("netcommon::isolated", "", ("TAGS", "netcommon::isolated", "NIC:OPTION")),
        ("netcommon:::isolated", "", ("TAGS", "NIC:OPTION")),
        ("netcommon::0:isolated", "", ("TAGS", "NIC:OPTION")),
        ("netcommon:isolated", "", ("TAGS", "NIC:OPTION")),
        ("netcommon:isolated:", "", ("TAGS", "an option")),
        ("netcommon:lan", "", ("TAGS", "NIC:OPTION")),
        ("netcommon:7:isolatd", "", ("TAGS", "netcommon:7:isolatd", "isolated")),
        ("netcommon:7:rate_in:fast", "", ("rate_in", "bits a second")),
        ("netcommon:lan:protectd", "", ("TAGS", "firewall profile")),
        ("netcommon:lan::isolated", "", ("TAGS",)),
        ("netcommon:07:isolated", "", ("TAGS", "NIC:OPTION")),
        ("netcommon:\u0661:isolated", "", ("TAGS", "NIC:OPTION")),
        ("", "netcommon:", ("NETWORK_TAGS", "netcommon:", "an option")),
        ("", "netcommon::isolated", ("NETWORK_TAGS", "netcommon::isolated", "an option")),
        ("", "netcommon:isolated:maybe", ("NETWORK_TAGS", "true or false")),
        ("", "netcommon:0:isolated", ("NETWORK_TAGS", "an option")),
    ],
)
def test_what_is_not_understood_is_refused(tags: str, network_tags: str, words: tuple[str, ...]) -> None:
    with pytest.raises(NicInvalid) as caught:
        options_of(nic(tags, network_tags), Settings())
    assert all(word in str(caught.value) for word in words)


def test_tags_mean_the_same_in_any_order() -> None:
    """Ganeti keeps tags in sets: the first address, by which prefixes are routed, must not change with each start."""
    tags = [f"netcommon:0:addresses:192.0.2.{number}" for number in (9, 1, 5)] + ["netcommon:0:addresses:192.0.2.1"]
    found = {options_of(nic(" ".join(order)), Settings()).addresses for order in itertools.permutations(tags)}
    assert found == {("192.0.2.1", "192.0.2.5", "192.0.2.9")}
    wrong = ["netcommon:0:isolatd", "netcommon:0:announc", "netcommon:0:rate_in:1"]
    said = set()
    for order in itertools.permutations(wrong):
        with pytest.raises(NicInvalid) as caught:
            options_of(nic(" ".join(order)), Settings())
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize(
    ("name", "tag", "isolated"),
    [
        ("wan", "netcommon:WAN:isolated", False),
        ("wan", f"netcommon:{UUID}:isolated", True),
        ("1", "netcommon:1:isolated", False),
        ("*", "netcommon:*:isolated netcommon:*:rate_in:1mbit netcommon:0:rate_in:2mbit", True),
        ("00000000-0000-4000-8000-00000000000F", "netcommon:00000000-0000-4000-8000-00000000000f:isolated", False),
        ("a:b", "netcommon:a:b:isolated", True),
        ("a", "netcommon:a:isolated:off", False),
        ("ganeti:communication:web1", "netcommon:ganeti:communication:web1:isolated", True),
        ("0", "netcommon:0:isolated", True),
        ("w\u00e4n", "netcommon:w\u00e4n:isolated", True),
        ("w\u00e4n", "netcommon:wa\u0308n:isolated", False),
        ("-", "netcommon:-:isolated", True),
    ],
)
def test_how_a_nic_is_named(name: str, tag: str, isolated: bool) -> None:
    assert options_of(nic(tag, name=name), Settings()).isolated == isolated


def test_a_uuid_in_capitals() -> None:
    uuid = "abcdef00-0000-4000-8000-000000000001"
    one = nic(f"netcommon:{uuid.upper()}:rate_in:1mbit")._replace(uuid=uuid)
    assert options_of(one, Settings()).rate_in == 10**6
    there = one._replace(tags=(), network=one.network._replace(uuid=uuid))
    assert options_of(there, Settings(networks={uuid.upper(): {"rate_in": 8000}})).rate_in == 8000


def test_a_nic_without_network_or_name_is_in_none() -> None:
    """An empty name in the settings is no name of what has none."""
    alone = Nic(UUID, "tap0", "bridged", "br0", tags=("netcommon:None:isolated",))
    assert options_of(alone, Settings(networks={"": {"isolated": True}})).isolated is False


@pytest.mark.parametrize("name", ["my net", "a.b", "a]b", 'a"b', "n\u00e4t", "[nic]", "x" * 255])
def test_networks_of_any_name(name: str, tmp_path: Path) -> None:
    """As the settings file quotes it; the plan says where it came from without anything that is not ASCII."""
    file = tmp_path / "config.toml"
    quoted = name.replace('"', '\\"')
    file.write_text(f'[networks."{quoted}"]\nrate_in = "1mbit"\n', encoding="utf-8")
    settings = read(os.open(file, os.O_RDONLY), str(file)).settings
    (one,) = given(nic(network=name), settings)
    assert (one.name, one.value) == ("rate_in", 10**6)
    assert one.origin.isascii() and one.origin.startswith("[networks.")
    assert list(given(nic(network=name + "x"), settings)) == []


WORDS = ["netcommon", "0", "*", "wan", UUID, "", "isolated", "rate_in", "addresses", "prefixes", "flows", "tap_mac", "protected"]
WORDS += ["firewall", "off", "10.0.0.5", "2001", "db8", "/64", "1mbit", "8000", "00", "\u0663", "\u0130", "a" * 100, "-", "@", "+*/"]


@hypothesis.given(st.lists(st.lists(st.sampled_from(WORDS), max_size=7).map(":".join)), st.sampled_from(WORDS))
def test_any_tag_is_understood_or_refused(words: list[str], name: str) -> None:
    """Whatever Ganeti takes for a tag: options that may be had, or the one error, in ASCII; and the order of tags means nothing."""
    found = []
    for order in (words, words[::-1]):
        text = " ".join(f"netcommon:{word}"[:128] for word in order)
        try:
            found.append(str(options_of(nic(" ".join(validate.tags(text)), text, name=name), Settings())))
        except NicInvalid as error:
            found.append(str(error))
            assert found[-1].isascii()
    assert found[0] == found[1]


@hypothesis.given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(":".join), st.sampled_from(WORDS), st.booleans())
def test_no_tag_is_ignored(rest: str, name: str, of_network: bool) -> None:
    """One with the prefix gives this NIC an option, or is refused, or gives one to another NIC: the one that has the first words."""
    tag = f"netcommon:{rest}"
    one = nic("" if of_network else tag, tag if of_network else "", name=name)
    try:
        found = list(given(one, Settings()))
    except NicInvalid as error:
        assert escaped(tag) in str(error)
        return
    if not found:
        assert not of_network
        words = rest.split(":")
        others = [":".join(words[:end]) for end in range(1, len(words))]
        assert any(gives(tag, nic(tag, index=int(other) if other.isdecimal() else 9, name=other)) for other in others)


def gives(tag: str, one: Nic) -> bool:
    """Whether the tag gives the NIC an option."""
    try:
        return any(tag in each.origin for each in given(one, Settings()))
    except NicInvalid:
        return False


def reads(kind: type, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Begin to note each value of ``kind`` that is read."""
    noted: list[object] = []
    before = kind.read  # type: ignore[attr-defined]

    def reading(one: object, value: object) -> object:
        noted.append(value)
        return before(one, value)

    monkeypatch.setattr(kind, "read", reading)
    return noted


def test_many_long_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as Ganeti allows, each as long as it allows: as quick as reading them."""
    noted = reads(Text, monkeypatch)
    tags = [f"netcommon:{number}:flows:{'x' * 60}" for number in range(4096)]
    assert options_of(nic(" ".join(tags), index=4095), Settings()).flows == ("x" * 60,)
    assert len(noted) <= 2 * 4096
    noted.clear()
    assert len(options_of(nic(network_tags=" ".join(f"netcommon:flows:x{number}" for number in range(4096))), Settings()).flows) == 4096
    assert len(noted) <= 2 * 4096


@pytest.mark.parametrize(("before", "after"), [(1, 0), (1, 9), (7, 3), (3000, 1000)])
def test_the_first_of_many_tags_that_does_not_fit_is_named(before: int, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken in the order of their text; "none" goes with no service."""
    noted = reads(Service, monkeypatch)
    tags = [f"netcommon:0:node_access:tcp/{number + 1}" for number in range(before)]
    tags += [f"netcommon:z:node_access:udp/{number + 1}" for number in range(after)]
    with pytest.raises(NicInvalid) as refused:
        options_of(nic(" ".join([*reversed(tags), "netcommon:z:node_access:none"]), index=0, name="z"), Settings())
    assert f"{refused.value}".startswith("TAGS='netcommon:z:node_access:none': ")
    assert len(noted) <= 20 * (before + after)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tags]\nprefix = "netcommon:"', "without the colon"),
        (f"[nic]\nrate_in = {'9' * 5000}", "thousands of digits"),
        (f"[nic]\nrate_in = 0x{'f' * 5000}", "nic.rate_in"),
        (f"[nic]\naddresses = [0x{'f' * 5000}]", "nic.addresses"),
        ("[[networks.blue]]\nisolated = true", "networks.blue"),
        ("[networks.blue.red]\nisolated = true", "unknown setting networks.blue.red"),
        ("[nic]\nnode_access = []", "nic.node_access"),
        ("[nic]\nnode_access = ['none', 'udp/53']", "nic.node_access"),
        ("[nic]\nnode_access = 'udp/53'", "nic.node_access"),
        ("[nic]\nnode_access = ['udp/53', 'udp/53']", "nic.node_access"),
        ("[nic]\nnode_access = false", "nic.node_access"),
    ],
)
def test_settings_that_are_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingsInvalid, match=said):
        read(os.open(file, os.O_RDONLY), str(file))


@pytest.mark.parametrize("mode", ["bridged", "routed", "openvswitch"])
@pytest.mark.parametrize("option", OPTIONS, ids=[option.name for option in OPTIONS])
def test_an_option_means_something_in_its_modes_only(option: Option, mode: str) -> None:
    """What the documents say of modes is what the planner does."""
    network = Network(subnet6="2001:db8::/64", gateway="10.0.0.1", gateway6="2001:db8::1")
    link = {"bridged": "br0", "routed": "100", "openvswitch": "ovs0"}[mode]
    vlan = Vlan(10, ()) if mode == "bridged" else NO_VLAN
    one = Nic(UUID, "tap0", mode, link, "aa:00:00:00:00:01", "10.0.0.5", vlan, "web1", 0, network=network)
    base = {name: True for name in ("spoof_guard", "eui64") if name != option.name}
    for given_options in asked(option.name):
        plain, wanted = Settings(nic=base), Settings(nic=base | given_options)
        if option.name in ("firewall", "node_access") and mode == "openvswitch":  # nobody would enforce it, so it is not just ignored
            with pytest.raises(NicInvalid):
                plan(one, wanted)
            continue
        if option.name == "endpoints":  # a registry gives the node what it is about (docs/underlay.md)
            assert plan(one, plain) == plan(one, wanted)
            continue
        differ = (plan(one, plain), effects(one, plain)) != (plan(one, wanted), effects(one, wanted))
        assert differ == (mode in option.modes), given_options


def test_where_each_came_from() -> None:
    settings = Settings(nic={"isolated": True}, networks={"blue": {"announce": False}})
    found = list(given(nic("netcommon:0:rate_in:1mbit", "netcommon:eui64"), settings))
    assert [(each.name, each.origin) for each in found] == [
        ("isolated", "[nic]"),
        ("announce", "[networks.blue]"),
        ("eui64", "NETWORK_TAGS: netcommon:eui64"),
        ("rate_in", "TAGS: netcommon:0:rate_in:1mbit"),
    ]


def test_plan_says_what_means_nothing_in_a_mode(tmp_path: Path) -> None:
    cli = equipped(tmp_path)
    Path(cli.paths.etc).mkdir(parents=True, exist_ok=True)
    Path(cli.paths.config).write_text('[networks."my net"]\nblackhole = true\nisolated = true\n')
    (tmp_path / "environ").write_text("INTERFACE=tap0\nMODE=bridged\nLINK=br0\nMAC=aa:00:00:00:00:01\nNETWORK_NAME=my net\n")
    said = cli("plan", "--env-file", str(tmp_path / "environ")).stdout.splitlines()
    assert "  isolated = true, from [networks.'my net']" in said
    assert "  blackhole = true, from [networks.'my net']; nothing in mode bridged, only in routed" in said
