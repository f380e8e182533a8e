"""The command line on a simulated node: defining NICs, joining them to the network and taking them out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netcommon import __version__
from netcommon.host.api.facts import AF_INET
from tests.support.cli import BRIDGED, ROUTED, UUIDS, Cli

#: A NIC of Open vSwitch, which has neither firewall profiles nor node_access.
SWITCHED = ("--interface", "tap0", "--mode", "openvswitch", "--link", "ovs0")


def test_define_writes_a_definition_that_list_and_show_know(cli: Cli) -> None:
    made = cli.json(*BRIDGED, "--tag", "a", "--tag", "b:c", "--network-subnet", "10.0.0.0/24")
    assert made["uuid"] == UUIDS[0]
    assert made["tags"] == ["a", "b:c"]
    assert made["network"] == {"subnet": "10.0.0.0/24"}
    assert Path(made["path"]).is_file()
    assert cli.json("list") == [
        {
            "nic": "web1/0",
            "mode": "bridged",
            "link": "br0",
            "device": "tap0",
            "ip": "",
            "mac": "",
            "vlan": "",
            "state": "defined",
            "uuid": UUIDS[0],
        }
    ]
    (shown,) = cli.json("show", "web1/0")
    assert shown["nic"]["TAGS"] == "a b:c"
    assert shown["state"] == "defined"


def test_a_guest_that_is_on_its_way_is_here_when_somebody_says_so(cli: Cli) -> None:
    """Leave a guest that has arrived as one that has."""
    cli(*BRIDGED)

    def incoming(*words: str) -> bool:
        cli("up", "tap0", *words)
        return bool(json.loads(Path(cli.paths.state, "nics", f"{UUIDS[0]}.json").read_text())["incoming"])

    assert [incoming("--incoming"), incoming("--incoming"), incoming("--arrived"), incoming("--incoming")] == [True, True, False, False]


def test_define_again_replaces_and_remove_removes(cli: Cli) -> None:
    cli(*BRIDGED)
    again = cli.json("define", "--interface", "tap0", "--mode", "ext")
    assert again["uuid"] == UUIDS[0]
    assert [row["mode"] for row in cli.json("list")] == ["ext"]
    assert cli.json("define", "--remove", "--interface", "tap0") == {"uuid": UUIDS[0], "removed": True}
    assert cli.json("list") == []
    assert cli.json("define", "--remove", "--interface", "tap0")["removed"] is False


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--interface", "a/b", "--mode", "ext"), "INTERFACE='a/b'"),
        (("--interface", "tap0", "--mode", "bridge", "--link", "br0"), "MODE='bridge'"),
        (("--interface", "tap0", "--mode", "bridged", "--link", "br0", "--vlan", "4095"), "VLAN='4095'"),
        (("--interface", "tap0", "--mode", "bridged", "--link", "br0", "--index", "-1"), "INTERFACE_INDEX='-1'"),
        (("--interface", "tap0", "--mode", "ext", "--tag", "a b"), "TAGS='a b'"),
        (("--interface", "tap0", "--mode", "ext", "--uuid", "x"), "INTERFACE_UUID='x'"),
        (("--interface", "tap0", "--mode", "ext", "--tag", "netcommon:0:rate_inn:5mbit"), "TAGS='netcommon:0:rate_inn:5mbit'"),
        (("--interface", "tap0", "--mode", "ext", "--index", "0", "--tag", "netcommon:0:rate_in:x"), "TAGS='netcommon:0:rate_in:x'"),
        (("--interface", "tap0", "--mode", "ext", "--network-tag", "netcommon:isolate"), "NETWORK_TAGS='netcommon:isolate'"),
        ((*SWITCHED, "--tag", "netcommon:*:node_access:none"), "MODE='openvswitch'"),
        ((*SWITCHED, "--tag", "netcommon:*:firewall:protected"), "MODE='openvswitch'"),
        (("--interface", "tap0", "--mode", "routed"), "IP=''"),
    ],
)
def test_define_names_what_is_wrong_and_writes_nothing(cli: Cli, arguments: tuple[str, ...], named: str) -> None:
    said = cli("define", *arguments, status=64)
    assert said.stderr.startswith(f"netcommon: {named}: expected ")
    assert said.stdout == ""
    assert not Path(cli.paths.definitions).exists()


def test_define_knows_tags_by_the_prefix_of_the_settings(cli: Cli) -> None:
    """And does without settings that are broken: it changes nothing by them."""
    wrong = ("define", "--interface", "tap0", "--mode", "ext", "--tag", "site:0:nonsense")
    cli(*wrong)
    config = Path(cli.paths.config)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[tags]\nprefix = "site"\n')
    assert "TAGS='site:0:nonsense'" in cli(*wrong, status=64).stderr
    config.write_text("[")
    assert "the settings are broken" in cli(*wrong).stderr


def test_up_and_down_of_a_defined_nic(cli: Cli) -> None:
    cli(*BRIDGED)
    assert cli("up", "tap0").stdout == "web1/0 is up on tap0\n"
    link, bridge = cli.host.view().link("tap0"), cli.host.view().link("br0")
    assert link and bridge
    assert (link.master, link.mtu, link.up, link.alias) == (bridge.index, 1400, True, f"{UUIDS[0]} web1/0")
    (again,) = cli.json("up", UUIDS[0])
    assert (again["changed"], again["text"]) == (False, "web1/0 is up on tap0 already")
    assert [row["state"] for row in cli.json("list")] == ["up"]

    assert "still held" in cli("down", "web1/0").stdout
    assert [row["state"] for row in cli.json("list")] == ["closing"]
    assert cli("down", "--force", "web1/0").stdout == "web1/0 is down on tap0\n"
    link = cli.host.view().link("tap0")
    assert link and (link.master, link.mtu, link.up, link.alias) == (0, 1500, False, "")
    assert [row["state"] for row in cli.json("list")] == ["defined"]
    assert "nothing to undo" in cli("down", "web1/0").stdout


def test_up_from_an_environment(cli: Cli, tmp_path: Path) -> None:
    variables = {"INTERFACE": "tap0", "MODE": "ext", "INTERFACE_UUID": UUIDS[3], "SITE": "x=y z"}
    cli.environ = variables
    cli("up", "--from-environment")
    (shown,) = cli.json("show", "tap0")
    assert shown["environment"] == variables
    cli("down", "--force", "tap0")
    lines, dump = tmp_path / "lines", tmp_path / "environ"
    lines.write_text("# a comment\n\n" + "".join(f"{name}={value}\n" for name, value in variables.items()))
    dump.write_text("".join(f"{name}={value}\0" for name, value in variables.items()))
    for file in (lines, dump, tmp_path):
        cli("up", "--env-file", str(file))
        assert cli.json("show", "tap0")[0]["environment"] == variables
        cli("down", "--force", UUIDS[3])
    cli("up", "--env-file", "-", stdin=lines.read_text())
    assert cli.json("show", "tap0")[0]["environment"] == variables


def test_an_environment_file_must_hold_assignments(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("INTERFACE=tap0\nrm -rf\n")
    assert "--env-file='rm -rf': expected lines of NAME=VALUE" in cli("up", "--env-file", str(tmp_path / "bad"), status=64).stderr
    assert "No such file" in cli("up", "--env-file", str(tmp_path / "none"), status=64).stderr


def test_one_failure_does_not_stop_the_others(cli: Cli) -> None:
    cli("define", "--interface", "tap0", "--mode", "bridged", "--link", "nowhere", "--instance", "a")
    cli(*ROUTED)
    said = cli("up", "--all", status=69)
    assert "bridge nowhere does not exist" in said.stderr
    assert said.stdout == "web1/1 is up on tap1\n"
    failed, done = cli.json("up", "--all", status=69)
    assert "nowhere" in failed["error"]
    assert done["error"] == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("up",),
        ("up", "tap0", "--all"),
        ("down",),
        ("down", "tap0", "--all"),
        ("repair",),
        ("plan",),
        ("check", "tap0", "--all"),
        ("nothing",),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert "Usage: netcommon" in cli(*arguments, status=2).stderr
    assert cli.host.requests == []


def test_down_of_what_was_never_seen(cli: Cli) -> None:
    assert "nothing is known of tap7" in cli("down", "tap7").stdout
    assert "NIC='a b'" in cli("down", "a b", status=64).stderr


def test_down_never_chooses_among_several(two: Cli) -> None:
    two.environ = {"INTERFACE": "tap2", "MODE": "ext", "INTERFACE_UUID": UUIDS[7], "INSTANCE": "web1", "INTERFACE_INDEX": "0"}
    two.host.add_tap("tap2", holder=78)
    two("up", "--from-environment")
    said = two("down", "--force", "web1/0", status=64)
    assert UUIDS[0] in said.stderr and UUIDS[7] in said.stderr
    assert f"{UUIDS[7]} on tap2" in two("check", "web1/0", status=64).stderr
    two("down", "--force", UUIDS[7])
    assert "web1/0 is down on tap0" in two("down", "--force", "web1/0").stdout


def test_a_nic_whose_device_is_gone_keeps_no_other_from_its_name(two: Cli) -> None:
    """It is said which record is passed over; of those whose devices are there none is chosen."""
    two.environ = {"INTERFACE": "tap2", "MODE": "ext", "INTERFACE_UUID": UUIDS[7], "INSTANCE": "web1", "INTERFACE_INDEX": "0"}
    two.host.add_tap("tap2", holder=78)
    two("up", "--from-environment")
    two.host.remove_link("tap0")
    checked = two("check", "web1/0")
    assert f"web1/0 on tap2 ({UUIDS[7]}): good" in checked.stdout
    assert f"web1/0: {UUIDS[0]} on tap0, whose device is gone, is on record so too and is passed over" in checked.stderr
    assert two.json("show", "web1/0")[0]["nic"]["INTERFACE_UUID"] == UUIDS[7]
    planned = two("plan", "web1/0")
    assert f"web1/0 ({UUIDS[7]}) on tap2: ext" in planned.stdout and "tap0, whose device is gone" in planned.stderr
    assert "web1/0 is down on tap2" in two("down", "--force", "web1/0").stdout
    assert two.host.view().link("tap2").up is False  # type: ignore[union-attr]
    assert "the device is gone" in two("check", "web1/0", status=1).stdout


def test_down_all(two: Cli) -> None:
    assert two("down", "--all", "--force").stdout == "web1/0 is down on tap0\nweb1/1 is down on tap1\n"
    assert two.host.view().rules(AF_INET, "tap1") == []
    assert two.json("down", "--all") == []


def test_labels_that_name_two_definitions(cli: Cli) -> None:
    """The second one is refused, and one that somebody has written is named beside the first."""
    cli(*BRIDGED)
    second = ("define", "--interface", "tap1", "--mode", "ext", "--instance", "web1", "--index")
    refused = cli(*second, "0", status=64).stderr
    assert f"NIC='web1/0': expected an INSTANCE/INDEX that no other definition has; {UUIDS[0]} on tap0 has it" in refused
    cli(*BRIDGED)
    written = Path(cli.paths.definitions, f"{cli.json(*second, '1')['uuid']}.toml")
    written.write_text(written.read_text().replace("index = 1", "index = 0"))
    for command in ("up", "plan", "show"):
        said = cli(command, "web1/0", status=64).stderr
        assert "NIC='web1/0': expected one NIC, not several: " in said
        assert f"{UUIDS[0]} on tap0" in said
        assert f"{written.stem} on tap1" in said
    assert cli.host.requests == []


def test_down_takes_no_instance_for_its_nics(two: Cli) -> None:
    """Nor does it say that there is nothing: it names the NICs, whether they are up or only defined."""
    expected = "NIC='web1': expected one NIC; those of this instance are web1/0, web1/1"
    assert expected in two("down", "--force", "web1", status=64).stderr
    assert [row["state"] for row in two.json("list")] == ["up", "up"]
    assert len(two.json("check", "web1")) == 2
    for command in ("trace", "plan", "up"):
        assert expected in two(command, "web1", status=64).stderr
    two("down", "--all", "--force")
    assert expected in two("down", "web1", status=64).stderr


def test_down_of_an_instance_whose_name_is_longer_than_a_devices(cli: Cli) -> None:
    name = "web7.example.com"
    assert "expected the UUID, device or INSTANCE/INDEX" in cli("down", name, status=64).stderr
    cli("define", "--interface", "tap0", "--mode", "ext", "--instance", name)
    cli("up", "tap0")
    said = cli("down", name, status=64).stderr
    assert f"NIC='{name}': expected one NIC; those of this instance are {UUIDS[0]}" in said
    assert "is down on tap0" in cli("down", "--force", UUIDS[0]).stdout
    assert "nothing is known of" in cli("down", "--force", UUIDS[0]).stdout


def test_the_sites_scripts_are_told_the_context(cli: Cli) -> None:
    folder, told = Path(cli.paths.etc, "ifdown.d"), cli.root / "told"
    folder.mkdir(parents=True)
    (folder / "10-site").write_text(f'#!/bin/sh\necho "$NETCOMMON_CONTEXT" >{told}\n')
    (folder / "10-site").chmod(0o755)
    cli(*BRIDGED)
    cli("up", "tap0")
    cli("down", "--context", "hot-remove", "tap0")
    assert told.read_text() == "hot-remove\n"
    assert "migrate-failed" in cli("down", "--context", "x", "tap0", status=2).stderr


def test_a_broken_definition_does_not_stop_the_others(cli: Cli) -> None:
    cli(*BRIDGED)
    Path(cli.paths.definitions, f"{UUIDS[5]}.toml").write_text('device = "tap1"\nmode = "none"\n')
    said = cli("up", "--all", status=64)
    assert said.stdout == "web1/0 is up on tap0\n"
    assert f"{UUIDS[5]}.toml, line 2: MODE='none'" in said.stderr
    assert "MODE='none'" in cli("list").stderr
    assert "MODE='none'" in cli("up", UUIDS[5], status=64).stderr


def test_it_says_its_version(cli: Cli) -> None:
    """Of a checkout too, which nothing has installed."""
    assert cli("--version").stdout == f"netcommon {__version__}\n"
