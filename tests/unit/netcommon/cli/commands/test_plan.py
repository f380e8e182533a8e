"""The command line: plan, and what has to do with no NIC."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netcommon.cli.output import say, table
from tests import golden
from tests.support.cli import BRIDGED, ROOT, UUIDS, Cli


def test_broken_settings_stop_up_but_not_down(two: Cli) -> None:
    Path(two.paths.config).write_text("[hook]\ntimeout = 0\n")
    assert "config.toml:2" in two("up", "tap0", status=78).stderr
    assert "config.toml:2" in two("config", status=78).stderr
    said = two("down", "--force", "tap0")
    assert said.stdout == "web1/0 is down on tap0\n"
    assert "the settings are broken" in said.stderr


def test_config_says_where_each_setting_comes_from(cli: Cli) -> None:
    Path(cli.paths.etc).mkdir(parents=True)
    Path(cli.paths.config).write_text("[hook]\n\ntimeout = 12\n")
    found = {one["key"]: one for one in cli.json("config")}
    assert found["hook.timeout"] == {"key": "hook.timeout", "value": 12.0, "source": "config.toml:3"}
    assert found["rules.preference"]["source"] == "default"
    assert "hook.timeout" in cli("config").stdout


def test_verbose_shows_each_step_as_it_is_done(cli: Cli) -> None:
    cli(*BRIDGED)
    assert "ip link set dev tap0 master br0" in cli("-v", "up", "tap0").stderr
    assert cli("up", "tap0").stderr == ""


def test_help_is_quick() -> None:
    """Help imports neither the lifecycle nor any host."""
    code = (
        "import sys; from netcommon.cli import main; sys.argv = ['netcommon', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('netcommon.', 'runtime.')) or name in ('json', 'ipaddress')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "Exit status" in done.stdout
    few = ["netcommon.cli", "runtime.errors", "netcommon.cli.signals", "netcommon.cli.streams", "netcommon.cli.group"]
    assert done.stdout.splitlines()[-1] == str(few)


def test_help_has_every_command_once_below_its_heading(cli: Cli) -> None:
    from netcommon.cli.group import COMMANDS, GROUPS

    sections = [section.splitlines() for section in cli("--help").stdout.split("\n\n") if section.partition(":\n")[0] in GROUPS]
    named = {lines[0].rstrip(":"): [line.split()[0] for line in lines[1:] if not line.startswith("   ")] for lines in sections}
    assert named == {heading: list(commands) for heading, commands in GROUPS.items()}
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))


def test_every_command_has_help(cli: Cli) -> None:
    from netcommon.cli.group import COMMANDS

    def tried(*words: str) -> None:
        said = cli(*words, "--help").stdout
        assert "..." not in said.partition("\nCommands:\n")[2], said  # a list in which a sentence is cut off
        assert said.startswith(f"Usage: netcommon {' '.join(words)}")
        within = [line.split()[0] for line in said.partition("\nCommands:\n")[2].splitlines() if line.strip()]
        for one in within:
            tried(*words, one)
        assert within or ("--json" in said) == (words not in OTHERWISE), words

    for command in COMMANDS:
        tried(command)


#: What serves until it is told to end, or prints something of its own.
OTHERWISE = (("agent", "run"), ("registry", "serve"), ("registry", "watch"), ("registry", "export"), ("completion",))


def test_names_are_completed(two: Cli) -> None:
    """From the definitions, and from the records as far as they can be read."""
    variables = {"_NETCOMMON_COMPLETE": "bash_complete", "COMP_WORDS": f"netcommon --root {two.root} show web", "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-m", "netcommon.cli"], capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **variables}
    )
    assert done.stdout.split() == ["plain,web1/0", "plain,web1/1"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(cli: Cli, shell: str) -> None:
    assert "_NETCOMMON_COMPLETE" in cli("completion", shell).stdout


GUARDED = (
    "nft: tap0 is guarded in netdev netcommon-guard-16: MAC unknown, not checked, VLAN 20, no IPv4 address known, MAC checks only, "
    "no IPv6 address known, MAC checks only, free mac, any link local, 64 new addresses a minute"
)


def test_plan_shows_what_is_done_and_undone(cli: Cli) -> None:
    cli(*BRIDGED, "--vlan", ".10:20")
    assert cli("plan", "tap0").stdout.splitlines() == [
        f"web1/0 ({UUIDS[0]}) on tap0: bridged, link br0",
        "up:",
        f"  1. ip link set dev tap0 alias {UUIDS[0]} web1/0",
        "  2. nft: table netdev netcommon-guard-16 with the rules of the spoof guard",
        "  3. nft: table bridge netcommon-delivery with the delivery rule of the spoof guard",
        f"  4. {GUARDED}",
        "  5. ip link set dev tap0 address <its own, first octet fe>",
        "  6. ip link set dev tap0 mtu <that of br0>",
        "  7. ip link set dev tap0 master br0",
        "  8. bridge vlan on tap0: 10 pvid untagged, 20",
        "  9. bridge vlan add dev <uplinks of br0> vid 10",
        "  10. bridge vlan add dev <uplinks of br0> vid 20",
        "  11. bridge link set dev tap0 mcast_router 0",
        "  12. ip link set dev tap0 up",
        "down:",
        "  1. ip link set dev tap0 down",
        "  2. bridge link set dev tap0 mcast_router <as it was>",
        "  3. bridge vlan del dev <uplinks of br0> vid 20, with the last NIC that needs it",
        "  4. bridge vlan del dev <uplinks of br0> vid 10, with the last NIC that needs it",
        "  5. bridge vlan on tap0: <as they were>",
        "  6. ip link set dev tap0 nomaster",
        "  7. ip link set dev tap0 mtu <as it was>",
        "  8. ip link set dev tap0 address <as it was>",
        "  9. nft: tap0 is not guarded any more in netdev netcommon-guard-16",
        "  10. nft delete table bridge netcommon-delivery, with the last NIC that needs it",
        "  11. nft delete table netdev netcommon-guard-16, with the last NIC that needs it",
        "  12. ip link set dev tap0 alias <as it was>",
    ]
    assert cli.host.requests == []
    assert cli.host.reads == 0


def test_plan_resolved_says_what_this_host_would_get(cli: Cli) -> None:
    cli(*BRIDGED)
    text = cli("plan", "--resolve", "web1/0").stdout
    assert "mtu 1400\n" in text
    assert "mtu 1500\n" in text
    made = cli.json("plan", "tap0", "--resolve")
    assert [one["value"] for one in made["up"] if one["kind"] == "link" and one["setting"] == "mtu"] == [1400]
    assert "value" not in cli.json("plan", "tap0")["up"][0]
    assert cli.host.requests == []
    cli.host.remove_link("br0")
    assert "bridge br0 does not exist" in cli("plan", "tap0", "--resolve", status=69).stderr


def test_plan_of_flags_and_environments_is_the_same(cli: Cli, tmp_path: Path) -> None:
    flags = ("--interface", "tap1", "--mode", "routed", "--link", "guests", "--ip", "10.0.0.5")
    first = cli.json("plan", *flags)
    assert first == cli.json("plan", *flags)
    (tmp_path / "environ").write_text("".join(f"{name}={value}\n" for name, value in first["nic"].items()))
    assert cli.json("plan", "--env-file", str(tmp_path)) == first
    cli.environ = first["nic"]
    assert cli.json("plan", "--from-environment") == first
    assert first["down"][0] == "ip -4 route del 10.0.0.5/32 dev tap1 table guests protocol 174"
    rule = "ip -4 rule del iif tap1 lookup guests preference 500 protocol 174"
    assert first["down"][1:4] == ["ip link set dev tap1 down", "nothing: it was no port", rule]
    assert "IP='10.0.0.555'" in cli("plan", *flags[:-1], "10.0.0.555", status=64).stderr
    assert "NIC='tap9'" in cli("plan", "tap9", status=64).stderr


@pytest.mark.parametrize("case", golden.cases(), ids=[case.name for case in golden.cases()])
def test_plan_of_a_golden_folder_is_the_folders(cli: Cli, case: Path) -> None:
    """Also without root, and people read the same as programs."""
    cli.uid = 1000
    made = cli.json("plan", "--env-file", str(case))
    does = [one.pop("does") for one in made["up"]]
    assert "\n".join([*(does or ["nothing of ours"]), "", *map(json.dumps, made["up"])]).rstrip("\n") + "\n" == (case / "plan").read_text()
    text = cli("plan", "--env-file", str(case / "environ")).stdout.splitlines()
    assert [line.partition(". ")[2] for line in text if line.partition(". ")[0].strip().isdigit()] == does + made["down"]
    assert len(made["down"]) == len(does)
    assert cli.host.reads == 0


def test_every_kind_of_operation_says_how_it_is_undone() -> None:
    from netcommon.operations import kind
    from netcommon.operations.base import Operation
    from netcommon.operations.kinds import KINDS

    methods = {"undo", "describe", "differs"}
    own = {name: {method for made in kind(name).__mro__ if made is not Operation for method in vars(made)} for name in KINDS}
    assert [name for name in KINDS if not methods <= own[name]] == []


def test_install_and_uninstall(cli: Cli) -> None:
    (cli.root / "etc").mkdir()
    would = cli.json("install", "--qemu", "--dry-run")
    assert {action["path"] for action in would if action["what"] == "write"} >= {"/etc/qemu-ifup", "/etc/qemu-ifdown"}
    assert not (cli.root / "etc/qemu-ifup").exists()
    assert "/etc/qemu-ifup" in cli("install", "--qemu").stdout
    assert (cli.root / "etc/qemu-ifup").exists()
    cli("install", "--qemu", "--uninstall")
    assert not (cli.root / "etc/qemu-ifup").exists()
    assert cli("install", "--qemu", "--uninstall").stdout == "nothing to do: nothing is installed\n"


def test_install_of_one_kind_does_not_wait_for_another(cli: Cli) -> None:
    (cli.root / "etc").mkdir()
    said = cli("install", "--xen", "--qemu", status=69)
    assert "netcommon: xen: " in said.stderr
    assert (cli.root / "etc/qemu-ifup").exists()
    assert "Usage" in cli("install", status=2).stderr
    cli.uid = 1000
    assert "only root" in cli("install", "--qemu", "--uninstall", status=69).stderr
    assert (cli.root / "etc/qemu-ifup").exists()


def test_doctor(cli: Cli) -> None:
    cli.features = {"bridge": ""}
    found = json.loads(cli("doctor", "--json", status=None).stdout)["findings"]
    assert {"level", "topic", "text", "remedy"} == set(found[0])
    Path(cli.paths.etc).mkdir(parents=True, exist_ok=True)
    Path(cli.paths.config).write_text("nonsense\n")
    said = cli("doctor", status=1)
    assert "ERROR" in said.stdout and "config.toml" in said.stdout and "remedy: " in said.stdout


def test_nothing_that_others_wrote_reaches_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    say("red \x1b[31m\nnext")
    assert capsys.readouterr().out == "red \\x1b[31m\nnext\n"
    assert table(("A", "B"), [("\r", ""), ("long", 1)]) == "A     B\n\\r    -\nlong  1"


def test_plan_of_a_nic_that_is_up_says_where_its_options_come_from(cli: Cli) -> None:
    """By each of its names; its description, tags too, is on record."""
    cli(*BRIDGED, "--tag", "netcommon:0:isolated")
    cli("up", "tap0")
    Path(cli.paths.etc, "nics.d", f"{UUIDS[0]}.toml").unlink()
    said = {cli("plan", name).stdout for name in ("tap0", UUIDS[0], "web1/0")}
    assert len(said) == 1 and "isolated = true, from TAGS: netcommon:0:isolated" in said.pop()


def test_what_is_said_of_the_network(cli: Cli) -> None:
    """It says what counts, from where, and what the hypervisor's word is stronger than; nothing where the settings say nothing."""
    Path(cli.paths.etc).mkdir(parents=True)
    words = (*BRIDGED[1:], "--network-name", "blue", "--network-gateway", "10.0.0.1")
    assert "network:" not in cli("plan", *words).stdout and cli.json("plan", *words)["network"] == []
    text = '[networks.blue]\ngateway = "10.0.0.9"\nroutes = { "10.1.0.0/16" = "10.0.0.254" }\nmtu = 1400\n'
    Path(cli.paths.config).write_text(text)
    said = cli("plan", *words).stdout
    expected = """network:
  gateway = 10.0.0.1, from NETWORK_GATEWAY
  routes = 10.1.0.0/16 by 10.0.0.254, from [networks.blue]
  mtu = 1400, from [networks.blue]
  (gateway = 10.0.0.9, from [networks.blue], is overruled)
"""
    assert expected in said
    assert {"name": "mtu", "value": 1400, "origin": "[networks.blue]"} in cli.json("plan", *words)["network"]
