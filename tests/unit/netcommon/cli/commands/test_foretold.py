"""--dry-run of change and repair: what the host would refuse is said as the real call says it, with the same exit status, of each NIC."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from netcommon.host.api.facts import OvsPort
from netcommon.host.api.requests import SetLink
from runtime.record import APPLYING, CHANGING
from runtime.store import Store
from tests.support.cli import UUIDS, Cli, equipped, with_two

DHCP = (
    *("define", "--interface", "tap2", "--mode", "bridged", "--link", "br0", "--instance", "db", "--index", "0"),
    *("--mac", "aa:00:00:00:00:03", "--ip", "10.0.0.7", "--tag", "netcommon:*:dhcp:dnsmasq"),
)
FOLDER = "/var/lib/netcommon/dnsmasq"
RUNS = [
    ("change", "--all", "mcast_flood=no"),
    ("change", "tap2", "tap0", "mcast_flood=no"),
    ("repair", "--all"),
    ("repair", "tap2", "tap0"),
]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Three NICs: bridged, routed, and one of which dnsmasq is told."""
    cli = with_two(equipped(tmp_path))
    cli.host.files.folders.add(FOLDER)
    cli.host.add_tap("tap2", holder=77)
    cli(*DHCP)
    cli("up", "tap2")
    return cli


def no_bridge(cli: Cli) -> None:
    cli.host.remove_link("br0")


def other_kind(cli: Cli) -> None:
    cli.host.remove_link("br0")
    cli.host.add_tap("br0")


def no_folder(cli: Cli) -> None:
    cli.host.files.folders.clear()
    cli.host.files.contents.clear()


def foreign_file(cli: Cli) -> None:
    (name,) = {name for _folder, name in cli.host.files.contents}
    cli.host.files.put(FOLDER, name, "somebody's\n")


def table_gone(cli: Cli) -> None:
    cli.host.tables.clear()


def foreign_port(cli: Cli) -> None:
    """Open vSwitch takes the device, past its bridge and its guard."""
    cli.host.add_ovs_bridge("ovs0")
    cli.host.switch.put(OvsPort("tap0", "ovs0"))


def lowered(cli: Cli) -> None:
    """The bridge follows its lowest port, as that of the kernel does."""
    for name in ("tap0", "br0"):
        link = cli.host.view().link(name)
        assert link
        cli.host.execute([SetLink(link.index, mtu=1300)], stop=True)


def out_of_the_bridge(cli: Cli) -> None:
    link = cli.host.view().link("tap0")
    assert link
    cli.host.execute([SetLink(link.index, master=0)], stop=True)


def halfway(cli: Cli) -> None:
    _becomes(cli, APPLYING)


def _becomes(cli: Cli, state: str) -> None:
    store = Store(cli.paths, *_who(cli))
    record = store.read(UUIDS[1])
    assert record
    store.write(record._replace(state=state), record)
    store.close()


def _who(cli: Cli) -> tuple[int, str]:
    identity = cli.host.identity()
    return identity.netns, identity.boot


def refusals(done: Result) -> list[str]:
    """What stderr says of NICs."""
    return sorted(line for line in done.stderr.splitlines() if line.startswith("netcommon: ") and "warning" not in line)


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
@pytest.mark.parametrize(
    "meets", [no_bridge, other_kind, no_folder, foreign_file, table_gone, foreign_port, lowered, out_of_the_bridge, halfway]
)
def test_as_the_real_one(cli: Cli, words: tuple[str, ...], meets: Callable[[Cli], None]) -> None:
    """Each NIC on its own: those that can be are told what would be done."""
    meets(cli)
    cli.host.requests.clear()
    dry, told = cli(*words, "--dry-run", status=None), json.loads(cli(*words, "--dry-run", "--json", status=None).stdout)["nics"]
    again = cli(*words, "--dry-run", "--json", status=None).exit_code
    assert cli.host.requests == []
    done = cli(*words, status=None)
    assert (dry.exit_code, again, refusals(dry)) == (done.exit_code, done.exit_code, refusals(done))
    assert sorted(f"netcommon: {row['nic']}: {row['error']}" for row in told if row["error"]) == [
        line for line in refusals(done) if "next: " not in line
    ]


@pytest.mark.parametrize("meets", [no_bridge, no_folder])
def test_the_status_is_that_of_what_the_host_refuses(cli: Cli, meets: Callable[[Cli], None]) -> None:
    meets(cli)
    assert "does not exist" in cli("change", "tap2", "mcast_flood=no", "--dry-run", status=69).stderr
    assert "does not exist" in cli("repair", "tap2", "--dry-run", status=69).stderr
    assert "web1/1 on tap1" in cli("repair", "--all", "--dry-run", status=69).stdout, "the others are told"
    assert not Path(cli.paths.wanted).exists()


def test_an_up_into_no_folder_touches_nothing(cli: Cli) -> None:
    cli("down", "tap2", "--force")
    no_folder(cli)
    cli.host.requests.clear()
    assert f"folder {FOLDER} does not exist: make it" in cli("up", "tap2", status=69).stderr
    assert cli.host.requests == []


def test_a_tap_whose_mtu_was_lowered_by_hand(cli: Cli) -> None:
    """What the bridge carries by then is what the NIC has: nothing is done, and that is what is said."""
    lowered(cli)
    cli("check", "tap0", status=1)
    cli.host.requests.clear()
    said = cli("repair", "tap0", "--dry-run").stdout
    assert said == "web1/0 on tap0: its record would say what holds, and nothing else is to be done\n"
    assert cli.json("repair", "tap0", "--dry-run")[0]["would"] == []
    cli("repair", "tap0")
    assert cli.host.requests == []
    assert cli("repair", "tap0", "--dry-run").stdout == "web1/0 on tap0 is as it should be\n"
    cli("check", "tap0")


def test_a_device_that_was_renamed(cli: Cli) -> None:
    """It is called what it is called now, by both."""
    link = cli.host.view().link("tap0")
    assert link
    cli.host.kernel.links[link.index] = link._replace(name="tap9")
    for words in (("change", "web1/0", "mcast_flood=no"), ("repair", "web1/0")):
        assert cli(*words, "--dry-run").stdout.startswith("web1/0 on tap9: would ")
        assert cli.json(*words, "--dry-run")[0]["device"] == "tap9"
    (row,) = cli.json("repair", "web1/0", "--dry-run")
    assert row["would"][0] == {"does": "the device tap0", "differs": "it is called tap9 now"}
    assert cli("repair", "web1/0").stdout.startswith("web1/0 on tap9: it was tap0, ")


def test_a_change_that_was_cut_off(cli: Cli) -> None:
    store = Store(cli.paths, *_who(cli))
    record = store.read(UUIDS[1])
    assert record
    store.write(record._replace(state=CHANGING, before=record), record)
    store.close()
    assert "would be put back" in cli("repair", "tap1", "--dry-run").stdout


def said(cli: Cli, *words: str) -> dict[str, list[str]]:
    """What would become of operations, by the word for it; people are told the same."""
    (row,) = cli.json("change", *words, "--dry-run")
    found = {what: row[what] for what in ("undone", "released", "replaced", "done")}
    lines = cli("change", *words, "--dry-run").stdout.splitlines()
    for what, texts in found.items():
        assert [line.removeprefix(f"  {what}: ") for line in lines if line.startswith(f"  {what}: ")] == texts
    return found


def really(cli: Cli, *words: str) -> set[str]:
    """What the log says that was undone by it."""
    cli.log.lines.clear()
    cli("change", *words)
    return {line.partition(" undone: ")[2] for line in cli.log.lines} - {""}


def test_what_is_replaced_is_not_undone(cli: Cli) -> None:
    cli("change", "tap2", "rate_in=8mbit")
    would = said(cli, "tap2", "rate_in=6mbit", "addresses=10.0.0.9")
    assert would["undone"] == would["released"] == [] and len(would["replaced"]) == len(would["done"]) == 2
    assert any("8000000bit" in one for one in would["replaced"]) and any("6000000bit" in one for one in would["done"])
    assert really(cli, "tap2", "rate_in=6mbit", "addresses=10.0.0.9") == set()


def test_what_others_need_is_not_undone(cli: Cli) -> None:
    """The tables of the spoof guard are of all NICs on them: the last one takes them along."""
    would = said(cli, "tap2", "spoof_guard=no", "isolated=yes")
    assert would["released"] == ["nft: table bridge netcommon-delivery with the delivery rule of the spoof guard"]
    assert would["replaced"] == [] and would["undone"] and len(would["done"]) == 1
    assert really(cli, "tap2", "spoof_guard=no", "isolated=yes") == set(would["undone"])
    would = said(cli, "tap0", "spoof_guard=no")
    assert would["released"] == [] and set(would["undone"]) == really(cli, "tap0", "spoof_guard=no")


def test_flows_that_another_operation_deletes(cli: Cli) -> None:
    """They are deleted by what has waited for the port to go, and are not there any more."""
    cli.host.add_ovs_bridge("ovs0")
    cli.host.add_tap("tap3", holder=77)
    made = ("--instance", "ovs", "--index", "0", "--mac", "aa:00:00:00:00:04", "--ip", "10.0.0.8")
    cli("define", "--interface", "tap3", "--mode", "openvswitch", "--link", "ovs0", *made)
    cli("up", "tap3")
    assert cli.host.openflow.all
    would = said(cli, "tap3", "spoof_guard=no")
    assert would["released"] == would["replaced"] == would["done"] == [] and any("add-flows" in one for one in would["undone"])
    cli("change", "tap3", "spoof_guard=no")
    assert not cli.host.openflow.all
