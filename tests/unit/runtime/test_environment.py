"""A NIC from its variables, and a down call's hint."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import validate
from runtime.environment import NAMESPACE, device_argument, down_hint, environment_of, generated_uuid, nic_from_environment
from runtime.errors import NicInvalid
from runtime.nic import MODES, Nic
from runtime.vlan import Vlan, parse_vlan
from tests.support.nics import U1, calls, environment, nic, raw, valid_environments


def obeys(found: Nic) -> None:
    """Every validated field passes its rule unchanged: it is valid and canonical."""
    assert found.mode in MODES
    assert validate.interface(found.interface) == found.interface
    assert validate.uuid(found.uuid) == found.uuid
    assert validate.link(found.link, found.mode) == found.link
    assert not found.mac or validate.mac(found.mac) == found.mac
    assert not found.ip or validate.address(found.ip) == found.ip
    assert parse_vlan(str(found.vlan)) == found.vlan
    assert not found.instance or validate.instance(found.instance) == found.instance
    assert found.index is None or 0 <= found.index <= 65535
    assert validate.name(found.name) == found.name
    assert validate.tags(" ".join(found.tags)) == found.tags


def test_every_recorded_call_is_understood() -> None:
    seen = 0
    for where, variables, arguments in calls():
        found = nic_from_environment(variables, arguments)
        obeys(found)
        assert found.environment == variables, where
        assert (found.uuid, found.interface) == (variables["INTERFACE_UUID"], variables["INTERFACE"]), where
        assert nic_from_environment(environment_of(found))._replace(environment=variables) == found, where
        hint = down_hint(variables, arguments)
        assert (hint.uuid, hint.device, hint.instance) == (found.uuid, found.interface, variables["INSTANCE"]), where
        assert not hint.complaints, where
        seen += 1
    assert seen > 200


def test_fields_of_a_full_call() -> None:
    where, variables, arguments = next(call for call in calls() if "3.0.2/03-start/node1/calls/0000" in call[0])
    found = nic_from_environment(variables, arguments)
    assert arguments == ["b'tap0'"], where
    assert (found.mode, found.link, found.mac, found.ip, found.index, found.name) == (
        "bridged",
        "br0",
        "aa:77:0a:4d:01:32",
        "10.77.1.50",
        0,
        "front",
    )
    assert sorted(found.tags) == ["role:web", "tenant:alpha"]
    assert found.network == (
        "net-br",
        "d658a623-f084-4bcb-9e58-a18d834d52c2",
        "10.77.1.0/24",
        "fd77:1::/64",
        "10.77.1.9",
        "fd77:1::9",
        "aa:77:0a",
        ("kind:net-br", "tenant:alpha"),
    )


def test_device_argument() -> None:
    assert [device_argument(text) for text in ("b'tap0'", 'b"tap0"', "tap0", "b0")] == ["tap0", "tap0", "tap0", "b0"]
    for text in ("b''", "b'../x'", "b'a\nb'"):
        with pytest.raises(NicInvalid):
            device_argument(text)


def test_device_comes_from_the_variable_or_else_the_argument() -> None:
    assert nic_from_environment(environment(INTERFACE=""), ["b'tap3'"]).interface == "tap3"
    assert nic_from_environment(environment(), ["tap0"]).interface == "tap0"
    for argv, interface in ((["tap1"], "tap0"), ([], ""), ([""], "")):
        with pytest.raises(NicInvalid) as caught:
            nic_from_environment(environment(INTERFACE=interface), argv)
        assert caught.value.variable == "INTERFACE"


@pytest.mark.parametrize(
    ("changes", "variable"),
    [
        ({"MODE": ""}, "MODE"),
        ({"MODE": "Bridged"}, "MODE"),
        ({"LINK": "", "BRIDGE": ""}, "LINK"),
        ({"MODE": "openvswitch", "LINK": ""}, "LINK"),
        ({"BRIDGE": "br1"}, "BRIDGE"),
        ({"BRIDGE": "a b"}, "BRIDGE"),
        ({"MODE": "ext", "VLAN": "x"}, "VLAN"),
        ({"VLAN": "." + "1" * 40000}, "VLAN"),
        ({"IP": "10.0.0.256"}, "IP"),
        ({"IP": "1" * 5000}, "IP"),
        ({"MAC": "zz"}, "MAC"),
        ({"INSTANCE": "../x"}, "INSTANCE"),
        ({"INTERFACE_INDEX": "x"}, "INTERFACE_INDEX"),
        ({"INTERFACE_UUID": "../../x"}, "INTERFACE_UUID"),
        ({"INTERFACE_NAME": "a\nb"}, "INTERFACE_NAME"),
        ({"TAGS": "a;b"}, "TAGS"),
        ({"NETWORK_SUBNET": "fd77::/64"}, "NETWORK_SUBNET"),
        ({"NETWORK_SUBNET6": "10.0.0.0/8"}, "NETWORK_SUBNET6"),
        ({"NETWORK_GATEWAY": "10.0.0.1/24"}, "NETWORK_GATEWAY"),
        ({"NETWORK_GATEWAY6": "10.0.0.1"}, "NETWORK_GATEWAY6"),
        ({"NETWORK_MAC_PREFIX": "aa:bb"}, "NETWORK_MAC_PREFIX"),
        ({"NETWORK_UUID": "x"}, "NETWORK_UUID"),
        ({"NETWORK_NAME": "\udcff"}, "NETWORK_NAME"),
        ({"NETWORK_TAGS": "a,b"}, "NETWORK_TAGS"),
        ({"INTERFACE_UUID": "", "MAC": ""}, "MAC"),
        ({"INTERFACE_UUID": "", "MAC": "", "INSTANCE": "", "INTERFACE_INDEX": ""}, "INTERFACE_UUID"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, str], variable: str) -> None:
    with pytest.raises(NicInvalid) as caught:
        nic(**changes)
    assert caught.value.variable == variable
    assert str(caught.value).startswith(variable + "=")
    assert str(caught.value).isprintable()


def test_link_rules() -> None:
    assert nic(LINK="").link == "br0"  # from BRIDGE
    assert nic(MODE="routed", LINK="", IP="10.0.0.5").link == ""
    assert nic(MODE="ext", LINK="", BRIDGE="").link == ""
    assert nic(MODE="openvswitch", LINK="ovs0", BRIDGE="whatever; noded had").link == "ovs0"


def test_all_vlans_and_many_tags_fit() -> None:
    assert nic(VLAN="".join(f":{vid}" for vid in range(1, 4095))).vlan == Vlan(None, tuple(range(1, 4095)))
    assert len(nic(TAGS=" ".join(f"tag{number}" for number in range(4096))).tags) == 4096


@pytest.mark.parametrize("variable", ["IP", "INTERFACE_NAME", "NETWORK_NAME", "INSTANCE"])
def test_overlong_values_are_refused_for_their_length(variable: str) -> None:
    with pytest.raises(NicInvalid, match=f"^{variable}=.*at most 4096 characters$"):
        nic(**{variable: "1" * 4097})


def test_generated_uuid_is_uuid5() -> None:
    found = nic(INTERFACE_UUID="")
    assert found.uuid == str(uuid.uuid5(uuid.UUID(bytes=NAMESPACE), "web1.example/0/aa:00:00:12:34:56"))
    others = {
        nic(INTERFACE_UUID="", **change).uuid for change in ({"INSTANCE": "b"}, {"INTERFACE_INDEX": "1"}, {"MAC": "aa:00:00:00:00:01"})
    }
    assert len(others | {found.uuid}) == 4
    hint = down_hint(environment(INTERFACE_UUID=""))
    assert hint.generated == found.uuid
    assert down_hint(environment()).generated == ""
    assert (
        generated_uuid("", None, "aa:00:00:00:00:01")
        == nic(INTERFACE_UUID="", INSTANCE="", INTERFACE_INDEX="", MAC="AA:00:00:00:00:01").uuid
    )


def test_down_hint_takes_what_is_valid() -> None:
    hint = down_hint({"INTERFACE": "a/b", "INTERFACE_UUID": U1.upper(), "INSTANCE": "\n", "INTERFACE_INDEX": "-1", "MAC": "x"}, ["tap0"])
    assert hint[:5] == (U1, "tap0", "", None, "")
    assert len(hint.complaints) == 4
    assert all(line.isprintable() for line in hint.complaints)
    assert down_hint({}, ["b'tap0'", "shutdown"])[:5] == ("", "tap0", "", None, "")
    assert down_hint({"INSTANCE": "a", "INTERFACE_INDEX": "2"})[:4] == ("", "", "a", 2)


@pytest.mark.parametrize("more", [{}, {"MODE": "release"}, {"IP": "x", "TAGS": "a", "LINK": "br0", "INTERFACE_INDEX": "1"}])
def test_a_stray_interface_does_not_beat_the_argument_of_a_down(more: dict[str, str]) -> None:
    hint = down_hint({"INTERFACE": "tap1", **more}, ["tap0", "false"])
    assert (hint.device, hint.uuid, hint.contradiction, len(hint.complaints)) == ("tap0", "", "", 1)
    with pytest.raises(NicInvalid, match="INTERFACE='a/b'"):
        down_hint({"INTERFACE": "tap1", **more}, ["a/b"])


@pytest.mark.parametrize(
    "more", [{"INSTANCE": "a"}, {"MAC": "aa:00:00:00:00:01"}, {"INSTANCE": "a", "INTERFACE_INDEX": "0"}, {"INTERFACE_UUID": "x"}]
)
def test_a_down_that_names_two_devices_contradicts_itself(more: dict[str, str]) -> None:
    hint = down_hint({"INTERFACE": "tap1", **more}, ["tap0"])
    assert hint.contradiction.startswith("the argument 'tap0' is not INTERFACE='tap1'")
    assert hint[:5] == ("", "", "", None, ""), "so that nobody acts on it by mistake"
    agreed = down_hint({"INTERFACE": "tap0", **more}, ["b'tap0'"])
    assert (agreed.device, agreed.contradiction) == ("tap0", "")


def test_with_a_uuid_the_devices_may_differ() -> None:
    hint = down_hint({"INTERFACE": "tap1", "INTERFACE_UUID": U1}, ["tap0"])
    assert (hint.uuid, hint.device, hint.contradiction, len(hint.complaints)) == (U1, "tap1", "", 1)


@pytest.mark.parametrize(
    ("environ", "argv"),
    [
        ({}, []),
        ({"INSTANCE": "a"}, []),
        ({"INTERFACE_INDEX": "1"}, [""]),
        ({"INTERFACE": "\n"}, ["a/b"]),
        ({"MAC": "aa:00:00:00:00:01"}, []),
    ],
)
def test_down_hint_with_nothing_usable(environ: dict[str, str], argv: list[str]) -> None:
    with pytest.raises(NicInvalid) as caught:
        down_hint(environ, argv)
    assert caught.value.variable == "INTERFACE"


@given(valid_environments())
def test_valid_nics_round_trip(variables: dict[str, str]) -> None:
    found = nic_from_environment(variables)
    obeys(found)
    again = nic_from_environment(environment_of(found))
    assert again._replace(environment=variables) == found
    assert environment_of(again) == environment_of(found)


VARIABLES = [
    *environment(),
    "IP",
    "TAGS",
    "INTERFACE_NAME",
    "NETWORK_NAME",
    "NETWORK_SUBNET",
    "NETWORK_GATEWAY6",
    "NETWORK_TAGS",
    "NETWORK_UUID",
]
NASTY = st.sampled_from(
    [
        "../x",
        "a\nb",
        "$(id)",
        "`id`",
        ";reboot",
        "x" * 200000,
        "\x00",
        "tap0 ",
        "|",
        "'",
        '"',
        "\\",
        "%s",
        "a/../b",
        "\udc80",
        "br0",
        "routed",
    ]
)


@given(
    st.dictionaries(st.sampled_from(VARIABLES), st.one_of(raw, NASTY, st.text(max_size=30)), max_size=4),
    st.lists(st.one_of(raw, NASTY), max_size=2),
)
def test_random_values_are_refused_or_obey_the_rules(changes: dict[str, str], argv: list[str]) -> None:
    given_variables = environment() | changes
    try:
        obeys(nic_from_environment(given_variables, argv))
    except NicInvalid as error:
        assert error.status == 64
        assert str(error).isprintable()
        assert len(str(error)) < 600
    try:
        hint = down_hint(given_variables, argv)
        assert all(line.isprintable() for line in hint.complaints)
    except NicInvalid as error:
        assert str(error).isprintable()
