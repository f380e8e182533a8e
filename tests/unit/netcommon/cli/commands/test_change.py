"""netcommon change: words, refusals, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import UUIDS, Cli, equipped, with_two


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return with_two(equipped(tmp_path))


def test_one_option_of_one_nic(cli: Cli) -> None:
    assert cli("change", "web1/0", "rate_in=8mbit").stdout == "web1/0 on tap0: rate_in is 8mbit, was none\n"
    assert cli("change", "web1/0", "rate_in=8mbit").stdout == "web1/0 on tap0: is so already\n"
    assert "rate_in = 8mbit, set by change" in cli("plan", "tap0").stdout
    assert "set by change" in cli("explain", "tap0").stdout
    assert "  rate_in = 8mbit, set by change\n" in cli("show", "tap0").stdout
    assert "good" in cli("check", "tap0").stdout
    kept = json.loads(Path(cli.paths.wanted, f"{UUIDS[0]}.json").read_text())
    assert kept["local"] == {"rate_in": {"value": "8mbit", "end": None, "then": None}} and kept["pending"] is None
    assert "rate_in is none, was 8mbit" in cli("change", "web1/0", "--unset", "rate_in").stdout
    assert not Path(cli.paths.wanted, f"{UUIDS[0]}.json").exists()


def test_of_several_and_for_a_while(cli: Cli) -> None:
    said = cli.json("change", "tap0", "tap1", "addresses=10.0.0.8,10.0.0.9", "--for", "30m")
    assert [(row["device"], row["changed"], row["error"]) for row in said] == [("tap0", True, ""), ("tap1", True, "")]
    assert "addresses = 10.0.0.8 10.0.0.9, set by change, until 20" in cli("plan", "tap1").stdout
    assert "  addresses = 10.0.0.8 10.0.0.9, set by change, until 20" in cli("show", "tap1").stdout
    (changed,) = cli.json("show", "tap1")[0]["changed"]
    assert (changed["name"], changed["value"]) == ("addresses", "10.0.0.8 10.0.0.9")
    assert changed["origin"].startswith("set by change, until 20")
    cli.time += 1799
    assert cli("gc").stdout == "nothing to collect\n"
    cli.time += 2
    assert cli("gc").stdout.count("their time is over") == 2
    assert "set by change" not in cli("plan", "tap1").stdout and "good" in cli("check", "tap1").stdout


def everything(cli: Cli) -> dict[Path, bytes]:
    """Read all files of a node."""
    return {path: path.read_bytes() for path in cli.root.rglob("*") if path.is_file()}


def test_ends_are_foreseen(cli: Cli) -> None:
    """gc and repair say beforehand which options end, as they do then; plan says what the NIC is without. Nothing is touched by that."""
    cli("change", "tap0", "rate_in=4mbit")
    cli("change", "tap0", "rate_in=8mbit", "--for", "30m")
    cli("change", "tap1", "rate_in=8mbit", "--for", "30m")
    cli.time += 1801
    before, requests = everything(cli), list(cli.host.requests)
    ahead = cli("gc", "--dry-run").stdout
    assert ahead.count("their time is over") == ahead.count("would be removed") == 2 and UUIDS[0] in ahead and UUIDS[1] in ahead
    assert cli("repair", "--dry-run", "tap0").stdout == (
        "web1/0 on tap0: would repair\n  rate_in is 4mbit, was 8mbit  # their time is over\n"
    )
    (row,) = cli.json("repair", "--dry-run", "tap1")
    assert row["would"] == [{"does": "rate_in is none, was 8mbit", "differs": "their time is over"}]
    assert "rate_in = 4mbit, set by change\n" in cli("plan", "tap0").stdout and "rate_in" not in cli("plan", "tap1").stdout
    assert (everything(cli), list(cli.host.requests)) == (before, requests)
    assert not any("has ended" in line for line in cli.log.lines)
    assert cli("gc").stdout == ahead.replace("would be removed", "removed")
    assert cli("gc", "--dry-run").stdout == "nothing to collect\n"
    assert "is as it should be" in cli("repair", "--dry-run", "tap0").stdout


def test_gc_says_why_an_option_goes(cli: Cli) -> None:
    """One that was set for good goes because its file is damaged, and not because of any time."""
    cli("change", "tap0", "rate_in=8mbit")
    Path(cli.paths.wanted, f"{UUIDS[0]}.json").write_text("{")
    ahead, done = cli("gc", "--dry-run").stdout, cli("gc").stdout
    for said in (ahead, done):
        assert UUIDS[0] in said and "not those that are kept" in said and "while" not in said and "time" not in said
    assert cli("gc").stdout.count(UUIDS[0]) == 0


def test_dry_run_touches_nothing(cli: Cli) -> None:
    before = Path(cli.paths.state, "nics", f"{UUIDS[0]}.json").read_bytes()
    said = cli("change", "--all", "isolated=yes", "rate_in=8mbit", "--dry-run").stdout
    assert "web1/0 on tap0: would change" in said and "  isolated = true, is false" in said
    assert "  done: bridge link set dev tap0 isolated on" in said
    assert not Path(cli.paths.wanted).exists() and "good" in cli("check", "tap0").stdout
    assert Path(cli.paths.state, "nics", f"{UUIDS[0]}.json").read_bytes() == before
    assert cli("change", "tap0", "isolated=no", "--dry-run").stdout == "web1/0 on tap0: is so already\n"


def test_what_changes_its_record_alone_is_foretold(cli: Cli) -> None:
    """Tags that are overruled, an option that only holds for another time, or of which the NIC has the same without."""
    tags = cli.root / "tags"
    tags.write_text("netcommon:0:rate_in:4mbit")
    cli("change", "tap0", "rate_in=8mbit")
    tagged = ("change", "tap0", "--tags-from", str(tags))
    for words in (
        tagged,
        ("change", "tap0", "rate_in=8mbit", "--for", "1h"),
        ("change", "tap0", "isolated=no"),
        ("change", "tap0", "rate_in=8mbit"),
    ):
        said = cli(*words, "--dry-run").stdout
        (ahead,) = cli.json(*words, "--dry-run")
        assert ahead["changed"] == ("is so already" not in said) and not ahead["options"] and not ahead["done"]
        (row,) = cli.json(*words)
        assert row["changed"] == ahead["changed"], words
        assert ahead["kept"] in row["text"]
        (again,) = cli.json(*words, "--dry-run")
        assert not again["changed"]


def test_dry_run_says_what_would_become_of_the_others(cli: Cli) -> None:
    """One that cannot have the option (the first has no MAC for an entry) hides no other, and the exit status is that of the change."""
    done = cli("change", "--all", "static_fdb=yes", "--dry-run", status=64)
    assert "web1/1 on tap1: would be on record, and change nothing\n  static_fdb = true, is false" in done.stdout
    assert "web1/0" in done.stderr and "web1/0" not in done.stdout
    first, second = cli.json("change", "--all", "static_fdb=yes", "--dry-run", status=64)
    assert (first["device"], first["options"], first["undone"], first["done"]) == ("tap0", [], [], []) and "MAC" in first["error"]
    assert (second["device"], second["error"]) == ("tap1", "")
    assert second["options"] == [{"name": "static_fdb", "before": "false", "after": "true"}]
    assert not Path(cli.paths.wanted).exists()


def test_dry_run_of_several_of_which_one_cannot_have_it(cli: Cli) -> None:
    """None of those that were named would be touched, so only what keeps them from it is said, in the same document."""
    done = cli("change", "tap1", "tap0", "static_fdb=yes", "--dry-run", status=64)
    assert "web1/0" in done.stderr and done.stdout == ""
    said = json.loads(cli("change", "tap1", "tap0", "static_fdb=yes", "--dry-run", "--json", status=64).stdout)
    assert said["schema"] == "netcommon-change"
    assert [(row["device"], row["error"] != "", row["done"]) for row in said["nics"]] == [("tap0", True, [])]


def test_dry_run_of_no_nics(tmp_path: Path) -> None:
    empty = equipped(tmp_path)
    assert empty("change", "--all", "--dry-run").stdout == "no NICs: nothing to do\n"
    assert empty.json("change", "--all", "--dry-run") == []


def test_settings_that_have_changed(cli: Cli) -> None:
    Path(cli.paths.config).write_text("[nic]\nrate_in = 8000000\n")
    assert cli("change", "--all", "--dry-run").stdout.count("would change") == 2
    assert cli("change", "--all").stdout.count("rate_in is 8mbit, was none") == 2
    assert cli("change", "--all").stdout.splitlines() == ["web1/0 on tap0: is so already", "web1/1 on tap1: is so already"]


def test_of_several_none_is_touched_if_one_cannot_have_it(cli: Cli) -> None:
    """The second has no MAC for an entry; with --all the other has the option all the same."""
    before = [Path(cli.paths.state, "nics", f"{uuid}.json").read_bytes() for uuid in UUIDS[:2]]
    done = cli("change", "tap1", "tap0", "static_fdb=yes", status=64)
    assert "web1/0" in done.stderr + done.stdout and "web1/1" not in done.stderr + done.stdout
    assert not Path(cli.paths.wanted).exists()
    assert [Path(cli.paths.state, "nics", f"{uuid}.json").read_bytes() for uuid in UUIDS[:2]] == before
    cli("change", "--all", "static_fdb=yes", status=64)
    assert "static_fdb = true, set by change" in cli("plan", "tap1").stdout


def called(cli: Cli, name: str) -> str:
    """A third NIC is up on a device of this name; its UUID."""
    cli.host.add_tap(name, holder=77)
    cli("define", "--interface", name, "--mode", "bridged", "--link", "br0", "--instance", "db=1", "--index", "0")
    cli("up", name)
    return UUIDS[2]


def test_a_device_with_an_equals_sign(cli: Cli) -> None:
    """What stands before it is no option: the whole word names the NIC. So does a label, and an instance."""
    called(cli, "vm=3")
    assert "rate_in is 8mbit" in cli("change", "vm=3", "rate_in=8mbit").stdout
    assert "rate_in is none" in cli("change", "db=1/0", "--unset", "rate_in").stdout
    assert "rate_in is 8mbit" in cli("change", "db=1", "rate_in=8mbit").stdout


def test_an_option_before_the_equals_sign(cli: Cli) -> None:
    """Also where a NIC's device begins as an option's word does."""
    called(cli, "isolated=ye")
    assert "isolated is true" in cli("change", "tap0", "isolated=yes").stdout


def test_a_word_that_may_be_both(cli: Cli) -> None:
    """Where it is all that could name a NIC it is refused, with the UUID by which that one is to be named."""
    uuid = called(cli, "isolated=yes")
    for words in (("isolated=yes",), ("isolated=yes", "rate_in=8mbit"), ("isolated=yes", "--unset", "rate_in")):
        assert uuid in cli("change", *words, status=64).stderr
    assert not Path(cli.paths.wanted).exists()
    done = cli("change", uuid.upper(), "isolated=yes")
    assert "on isolated=yes: isolated is true" in done.stdout and done.stderr == ""
    assert [each.name for each in Path(cli.paths.wanted).glob("*.json")] == [f"{uuid}.json"]


@pytest.mark.parametrize("words", [("tap0", "isolated=yes"), ("isolated=yes", "web1/0"), ("--all", "isolated=yes")])
def test_the_name_of_a_nic_keeps_nobody_from_an_option(cli: Cli, words: tuple[str, ...]) -> None:
    """Who has named it so is told how it is named."""
    uuid = called(cli, "isolated=yes")
    done = cli("change", *words)
    assert "web1/0 on tap0: isolated is true" in done.stdout and uuid in done.stderr
    kept = {UUIDS[0], *((UUIDS[1], uuid) if "--all" in words else ())}
    assert {each.stem for each in Path(cli.paths.wanted).glob("*.json")} == kept


@pytest.mark.parametrize(("instance", "word"), [("rate_in=8mbit", "rate_in=8mbit"), ("addresses=10.0.0.9", "addresses=10.0.0.9/7")])
def test_nor_does_an_instances_or_a_label_that_several_have(cli: Cli, instance: str, word: str) -> None:
    """Two NICs with one INSTANCE/INDEX: a name that is refused for itself."""
    records = Path(cli.paths.state, "nics")
    called(cli, "vm=3")
    stored = json.loads((records / f"{UUIDS[2]}.json").read_bytes())
    for number in (2, 3):
        stored["nic"] |= {"INSTANCE": instance, "INTERFACE_INDEX": "7", "INTERFACE_UUID": UUIDS[number]}
        (records / f"{UUIDS[number]}.json").write_text(json.dumps(stored))
    status = 0 if word == instance else 64  # that is no address
    said = cli("change", "tap0", word, status=status).stderr
    assert f"{UUIDS[2]}, {UUIDS[3]}" in said
    assert ("expected" in said) is bool(status) and "several" not in said


def test_a_nic_that_is_only_defined_is_called_so_too(cli: Cli) -> None:
    """Take back by its name what is kept of it. One that is called as the word of an option is named by its UUID."""
    uuid = called(cli, "vm=3")
    cli("change", "vm=3", "rate_in=8mbit")
    cli("down", "--force", "vm=3")
    assert "rate_in" in cli("change", "vm=3", "--unset", "rate_in").stdout and not Path(cli.paths.wanted, f"{uuid}.json").exists()
    for name in ("vm=3", "db=1/0"):
        assert "not only defined" in cli("change", name, "rate_in=8mbit", status=64).stderr
    cli("define", "--interface", "isolated=yes", "--mode", "bridged", "--link", "br0")
    assert UUIDS[3] in cli("change", "isolated=yes", status=64).stderr
    done = cli("change", "tap0", "isolated=yes")
    assert UUIDS[3] in done.stderr and "web1/0 on tap0: isolated is true" in done.stdout


def test_neither_an_option_nor_a_nic(cli: Cli) -> None:
    called(cli, "vm=3")
    for word in ("vm=4", "vm=", "=3", "VM=3"):
        assert "option" in cli("change", "tap0", word, status=64).stderr
    assert not Path(cli.paths.wanted).exists()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_all_passes_over_a_nic_whose_device_is_gone(cli: Cli, dry: tuple[str, ...]) -> None:
    """As repair does; one that is named is refused."""
    cli.host.remove_link("tap0")
    done = cli("change", "--all", "rate_in=8mbit", *dry)
    assert "web1/0: its device tap0 is gone, which gc cleans up after" in done.stdout
    assert "web1/1 on tap1: " in done.stdout and done.stderr == ""
    assert not Path(cli.paths.wanted, f"{UUIDS[0]}.json").exists()
    assert Path(cli.paths.wanted, f"{UUIDS[1]}.json").exists() is not bool(dry)
    assert [row["error"] for row in cli.json("change", "--all", "rate_in=8mbit", *dry)] == ["", ""]
    assert "a NIC that is up" in cli("change", "tap0", "rate_in=8mbit", *dry, status=64).stderr


def test_new_tags(cli: Cli) -> None:
    assert cli("change", "web1", "--tags-from", "-", stdin="netcommon:0:isolated\nrole:web\n").exit_code == 0
    assert "isolated = true, from TAGS: netcommon:0:isolated" in cli("plan", "tap0").stdout


@pytest.mark.parametrize("names", [("--all",), ("tap0", "tap1")])
def test_tags_are_those_of_one_instance(cli: Cli, names: tuple[str, ...]) -> None:
    """Those of two would have the tags of one of them."""
    file = Path(cli.paths.state, "nics", f"{UUIDS[1]}.json")
    stored = json.loads(file.read_bytes())
    stored["nic"]["INSTANCE"] = "web2"
    file.write_text(json.dumps(stored))
    refused = cli("change", *names, "--tags-from", "-", stdin="netcommon:*:isolated", status=64)
    assert "NICs of one instance, whose tags these are, not of web1, web2" in refused.stderr
    assert "isolated" not in cli("plan", "tap0").stdout


def test_a_pipe_that_gave_nothing(cli: Cli) -> None:
    """The command in front of it may have failed: that takes no tag away. An empty file does."""
    cli("change", "web1", "--tags-from", "-", stdin="netcommon:*:isolated\n")
    assert "--tags-from='-'" in cli("change", "web1", "--tags-from", "-", stdin=" \n", status=64).stderr
    assert "isolated = true" in cli("plan", "tap0").stdout
    cli("change", "web1", "--tags-from", "/dev/null")
    assert "isolated = true" not in cli("plan", "tap0").stdout


def test_it_goes_with_the_definition(cli: Cli) -> None:
    cli("change", "tap0", "rate_in=8mbit")
    cli("define", "--remove", "--interface", "tap0")
    assert not Path(cli.paths.wanted, f"{UUIDS[0]}.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tap9", "rate_in=8mbit"), "tap9"),
        (("tap0", "rate_in=fast"), "rate_in='fast': expected bits a second"),
        (("tap0", "no_such=1"), "option='no_such'"),
        (("tap0", "--unset", "no_such"), "--unset='no_such'"),
        (("tap0", "rate_in=8mbit", "--for", "soon"), "--for='soon'"),
        (("tap0", "rate_in=8mbit", "--for", "0s"), "--for='0s'"),
        (("tap0", "rate_in=8mbit", "rate_in=9mbit"), "once"),
        (("tap0", "--tags-from", "/no/such"), "--tags-from"),
        (("tap0", "--tags-from", "-"), "TAGS"),
    ],
)
def test_refused(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    """One line, exit 64, nothing touched."""
    result = cli("change", *arguments, status=64, stdin="netcommon:0:isolatd\n")
    assert said in result.stderr and len(result.stderr.strip().splitlines()) <= 2
    assert not Path(cli.paths.wanted).exists()


@pytest.mark.parametrize("arguments", [(), ("tap0",), ("rate_in=8mbit",), ("--all", "tap0", "rate_in=8mbit"), ("tap0", "--for", "2h")])
def test_not_said_what(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert "Usage: netcommon change" in cli("change", *arguments, status=2).stderr


def test_not_root(cli: Cli) -> None:
    cli.uid = 1000
    assert "only root" in cli("change", "tap0", "rate_in=8mbit", status=69).stderr


def test_what_means_nothing_is_said(two: Cli) -> None:
    """It is kept, as a site's [nic] is for all of its NICs; and an option is not set and unset at once."""
    two("up", "--all")
    done = two("change", "tap0", "gateway_arp=yes")
    assert "gateway_arp means nothing in mode bridged, only in routed" in done.stderr
    assert "gateway_arp = true, set by change; nothing in mode bridged" in two("plan", "tap0").stdout
    refused = two("change", "tap0", "rate_in=8mbit", "--unset", "rate_in", status=64)
    assert "--unset='rate_in': expected an option that is not set by the same command" in refused.stderr


def test_a_definition_that_is_removed_takes_the_options_from_a_nic_that_is_up(cli: Cli) -> None:
    cli("define", "--uuid", UUIDS[0], "--interface", "tap0", "--mode", "bridged", "--link", "br0")
    cli("change", "tap0", "rate_in=8mbit")
    cli("define", "--remove", "--interface", "tap0")
    assert "set by change" not in cli("explain", "tap0").stdout and "good" in cli("check", "tap0").stdout
    assert not Path(cli.paths.wanted, f"{UUIDS[0]}.json").exists()


def test_an_empty_duration_is_none(cli: Cli) -> None:
    """A variable of a script that is empty would else set it for good, or take the tags on record."""
    assert "--for=''" in cli("change", "tap0", "isolated=yes", "--for", "", status=64).stderr
    assert "--tags-from=''" in cli("change", "--all", "--tags-from", "", status=64).stderr
    assert "set by change" not in cli("plan", "tap0").stdout


def test_how_long_it_holds_is_said_where_nothing_else_changes(cli: Cli) -> None:
    cli("change", "tap0", "isolated=yes", "--for", "1h")
    assert cli("change", "tap0", "isolated=yes").stdout == "web1/0 on tap0: isolated holds until it is unset\n"
    assert cli("change", "tap0", "isolated=yes", "--for", "1h").stdout == "web1/0 on tap0: isolated holds for a while\n"
    assert cli("change", "tap0", "rate_in=8mbit").stdout == "web1/0 on tap0: rate_in is 8mbit, was none\n"


def test_a_definition_that_there_is_not_takes_no_options_along(cli: Cli) -> None:
    """The NIC is Ganeti's, or its definition cannot be removed: it goes on, with what was changed of it."""
    cli("change", "tap0", "isolated=yes")
    Path(cli.paths.definitions, f"{UUIDS[0]}.toml").unlink()
    assert "no such definition" in cli("define", "--remove", "--uuid", UUIDS[0]).stdout
    assert "isolated" in Path(cli.paths.wanted, f"{UUIDS[0]}.json").read_text()
    assert "isolated = true, set by change" in cli("show", "tap0").stdout


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_template_that_there_is_not_refuses_all(cli: Cli, dry: tuple[str, ...]) -> None:
    """One of several NICs needs it: the others are not touched either, and what is said to do next is about the template."""
    cli.host.add_ovs_bridge("ovs0")
    cli.host.add_tap("tap2", holder=77)
    cli("define", "--interface", "tap2", "--mode", "openvswitch", "--link", "ovs0", "--instance", "web1", "--index", "2")
    cli("up", "tap2")
    before = cli("show", "tap0", "tap1", "tap2").stdout
    done = cli("change", "tap0", "tap1", "tap2", "flows=none", "rate_in=8mbit", *dry, status=78)
    assert "ovs/none.j2" in done.stderr and "plan NIC --resolve" in done.stderr and "netcommon config" not in done.stderr
    assert "tap0" not in done.stdout and cli("show", "tap0", "tap1", "tap2").stdout == before
    assert not Path(cli.paths.wanted).exists()
    cli.host.templates["firewall/limited.j2"] = "no; rule"
    assert "plan NIC --resolve" in cli("change", "tap0", "firewall=limited", *dry, status=78).stderr


def test_a_damaged_file_is_named_when_a_change_puts_it_aside(cli: Cli) -> None:
    """With it go the options that it held, which the NIC has until then: whoever sees that is told why. Before, nothing is touched."""
    cli("change", "tap0", "rate_in=8mbit")
    kept, text = Path(cli.paths.wanted, f"{UUIDS[0]}.json"), "{"
    kept.write_text(text)
    for words in (["tap0", "isolated=yes", "--dry-run"], ["tap0", "none", "isolated=yes"]):
        cli("change", *words, status=0 if "--dry-run" in words else 64)
        assert kept.read_text() == text
    done = cli("change", "tap0", "isolated=yes")
    assert "rate_in is none, was 8mbit; isolated is true" in done.stdout
    assert f"error: web1/0: {kept}" in done.stderr and "quarantine" in done.stderr
    assert [file.read_text() for file in (kept.parent / "quarantine").iterdir()] == [text]


def test_an_option_of_a_newer_version_is_taken_back_by_name(cli: Cli) -> None:
    """Only where one of the NICs has it; until then each change of that NIC is refused, in one line."""
    cli("change", "tap0", "tap1", "rate_in=8mbit")
    kept = Path(cli.paths.wanted, f"{UUIDS[0]}.json")
    stored = json.loads(kept.read_text())
    stored["local"]["no_such"] = {"value": "1", "end": None, "then": None}
    kept.write_text(json.dumps(stored))
    for words in (["isolated=yes"], ["isolated=yes", "--dry-run"], ["--unset", "rate_in"]):
        (line,) = cli("change", "tap0", *words, status=69).stderr.splitlines()
        assert "no_such" in line and f"netcommon change {UUIDS[0]} --unset no_such" in line
        assert json.loads(kept.read_text()) == stored
    cli("change", "tap1", "--unset", "no_such", status=64)
    cli("change", "tap0", "--unset", "nor_such", status=64)
    cli("change", UUIDS[0], "--unset", "no_such")
    assert list(json.loads(kept.read_text())["local"]) == ["rate_in"] and "rate_in = 8mbit" in cli("show", "tap0").stdout


def test_a_damaged_record_keeps_no_other_nic_from_its_change(cli: Cli) -> None:
    """It is that of an emulated twin of Xen's, which does not tell its NIC: it is said of it alone."""
    path = Path(cli.paths.state, "nics", f"{UUIDS[1]}.json")
    stored = json.loads(path.read_text())
    del stored["nic"]["INTERFACE_INDEX"]
    path.write_text(json.dumps({**stored, "environment": {"XENBUS_PATH": "backend/vif/1/0"}}))
    done = cli("change", "tap0", "tap1", "rate_in=8mbit", status=69)
    assert "web1/0 on tap0: rate_in is 8mbit, was none" in done.stdout
    assert "tap1, an emulated twin, is damaged" in done.stderr and "tap0" not in done.stderr
    assert "rate_in is 4mbit" in cli("change", "--all", "rate_in=4mbit", status=69).stdout
    assert "good" in cli("check", "tap1").stdout


def test_unset_of_a_nic_that_is_not_up(cli: Cli) -> None:
    """By its UUID, by its definition, and by its record where only its device has gone; nothing else is changed of it."""
    cli("change", "--all", "node_access=none", "rate_in=8mbit", "isolated=yes")
    cli("down", "tap0", "--force")
    file = Path(cli.paths.wanted, f"{UUIDS[0]}.json")
    (row,) = cli.json("change", "web1/0", "--unset", "isolated", "--dry-run")
    assert (row["uuid"], row["device"], row["error"]) == (UUIDS[0], "tap0", "") and "isolated" in json.loads(file.read_text())["local"]
    assert "without isolated" in cli("change", UUIDS[0].upper(), "--unset", "isolated").stdout
    assert "without rate_in" in cli("change", "web1/0", "--unset", "rate_in").stdout
    assert list(json.loads(file.read_text())["local"]) == ["node_access"]
    assert "not up" in cli("change", "tap0", "--unset", "rate_in").stdout
    for words in (("rate_in=8mbit",), ("isolated=yes", "--unset", "node_access")):
        assert "NIC" in cli("change", "tap0", *words, status=64).stderr
    cli("define", "--remove", "--uuid", UUIDS[0])
    assert "NIC" in cli("change", UUIDS[0], "--unset", "node_access", status=64).stderr, "nothing is kept of it"
    cli.host.remove_link("tap1")
    both = cli("change", "web1/1", "--unset", "node_access")
    assert "without node_access" in both.stdout
    assert "rate_in" in Path(cli.paths.wanted, f"{UUIDS[1]}.json").read_text()


def test_unset_of_one_that_is_not_up_beside_one_that_is(cli: Cli) -> None:
    cli("change", "--all", "rate_in=8mbit")
    cli("down", "tap0", "--force")
    said = cli("change", "tap0", "tap1", "--unset", "rate_in").stdout
    assert "without rate_in" in said and "web1/1 on tap1: rate_in is none" in said
    assert list(Path(cli.paths.wanted).glob("*.json")) == []


def test_repair_says_what_it_has_ended(two: Cli) -> None:
    two("change", "tap0", "spoof_guard=no", "--for", "60s")
    two.time += 61
    foretold = two("repair", "--all", "--dry-run").stdout
    assert "spoof_guard is true, was false  # their time is over" in foretold
    said = two("repair", "--all").stdout.splitlines()
    assert said == ["web1/0 on tap0: spoof_guard is true, was false (their time is over)", "web1/1 on tap1 is as it should be"]
    assert two("repair", "--all").stdout.splitlines()[0] == "web1/0 on tap0 is as it should be"
