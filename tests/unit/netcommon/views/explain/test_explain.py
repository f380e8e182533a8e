"""netcommon explain: where settings came from, what was done, whether it holds, and what to do."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from netcommon.host.api.requests import SetLink
from netcommon.lifecycle.check import check
from netcommon.operations import kind
from netcommon.operations.base import Operation
from netcommon.operations.kinds import KINDS
from netcommon.operations.port import SENTENCES
from netcommon.settings.model import Settings
from netcommon.views.explain.model import DEFINED, DIFFERS, HOLDS, UNKNOWN, Explanation, Origin, explained, foreseen
from netcommon.views.explain.text import WIDTH, text
from netcommon.views.topology.text import ASCII, UNICODE
from runtime.record import APPLYING, CLOSING, REVERTING
from tests.support.cli import BRIDGED, UUIDS, Cli, with_two
from tests.support.sim import MODES, Sim, nic


def of(sim: Sim) -> Explanation:
    """The one NIC on record."""
    return explained(sim.node, sim.host.snapshot(), sim.record())


def option(one: Explanation, name: str) -> Origin:
    return next(each for each in one.origins if each.name == name)


def test_each_kind_has_its_sentence() -> None:
    assert [name for name in KINDS if kind(name).sentence is Operation.sentence] == []


@pytest.mark.parametrize("mode", MODES)
def test_whatever_is_done_is_said(sim: Sim, mode: str) -> None:
    """In every mode each operation has a sentence of its own words; all of it holds, and nothing is to be done.

    But for mode ext, where the site has nothing for it.
    """
    sim.host.switch.bridges["ovs0"] = True  # of the kernel's datapath, which enforces limits
    sim.up(nic(mode))
    one = of(sim)
    assert one.good and len(one.steps) == len(sim.record().operations)
    for step in one.steps:
        assert step.means[0].isupper() and step.means.endswith(".") and "{" not in step.means, step.means
        assert (step.holds, step.differs) == (HOLDS, "")
    nobody = ("nobody has set it up: the site has no script and no extension for mode ext (docs/custom-scripts.md)",)
    assert (one.today, one.advice) == ((), nobody if mode == "ext" else ())
    said = text(one, UNICODE, UTC)
    assert "all that was done holds" in said and ("What to do next" in said) == (mode == "ext")


def test_each_flag_of_a_port_has_both_words() -> None:
    assert all(on.endswith(".") and off.endswith(".") and on != off for on, off in SENTENCES.values())


def test_what_the_guard_lets_pass(sim: Sim) -> None:
    sim.up(nic("bridged", IP="10.0.0.5"))
    (said,) = [step.means for step in of(sim).steps if step.kind == "guard"]
    assert said == "The guest may send from the MAC aa:00:00:00:00:01 and from 10.0.0.5, any IPv6 address; what else it sends is dropped."


def test_settings_and_where_they_came_from(tmp_path: Path) -> None:
    settings = Settings(nic={"rate_in": 8_000_000, "blackhole": True}, networks={"lan": {"rate_in": 16_000_000}}, hook_timeout=5)
    sim = Sim(str(tmp_path), settings)
    sim.up(nic("bridged", NETWORK_NAME="lan", TAGS="netcommon:0:rate_in:24mbit"))
    one = of(sim)
    assert option(one, "rate_in") == Origin(
        "rate_in", "24mbit", "TAGS: netcommon:0:rate_in:24mbit", True, ("[nic] (8mbit)", "[networks.lan] (16mbit)"), ""
    )
    assert option(one, "blackhole").note == "nothing in mode bridged"
    assert option(one, "MODE") == Origin("MODE", "bridged", "the caller of test", True)
    assert option(one, "spoof_guard") == Origin("spoof_guard", "true", "the default", False)
    said = " ".join(text(one, UNICODE, UTC).split())
    assert "rate_in = 24mbit from TAGS: netcommon:0:rate_in:24mbit; it overrules [nic] (8mbit), [networks.lan] (16mbit)" in said
    assert "it does nothing: nothing in mode bridged" in said


def test_what_does_not_hold_and_what_to_do(sim: Sim) -> None:
    sim.up(nic("bridged"))
    sim.host.kernel.set_link(SetLink(sim.index("tap0"), master=0))
    one = of(sim)
    expected = [("bridge-port", "it is a port of no bridge"), ("port-flag", "it is no port of br0")]
    assert [(step.kind, step.differs) for step in one.steps if step.holds == DIFFERS] == expected
    assert "netcommon repair tap0" in one.advice[0]
    assert "2 of 9 things that were done do not hold" in text(one, UNICODE, UTC)
    sim.host.remove_link("br0")
    assert "create the bridge br0" in of(sim).advice[0]


def test_the_device_is_gone(sim: Sim) -> None:
    sim.up(nic("bridged"))
    sim.host.remove_link("tap0")
    one = of(sim)
    assert {step.holds for step in one.steps} == {UNKNOWN} and "netcommon gc" in one.advice[0] and len(one.advice) == 1
    assert "its device is gone" in text(one, UNICODE, UTC)


@pytest.mark.parametrize(("state", "advice"), [(APPLYING, "killed at it"), (CLOSING, "shutting down"), (REVERTING, "tries again")])
def test_a_record_that_is_not_up(sim: Sim, state: str, advice: str) -> None:
    sim.up(nic("bridged"))
    sim.node.store.write(sim.record()._replace(state=state))
    one = of(sim)
    assert advice in one.advice[0] and f"It is {state}, not up." in text(one, UNICODE, UTC)


def test_an_operation_of_another_version(sim: Sim) -> None:
    sim.up(nic("bridged"))
    record = sim.record()
    sim.node.store.write(record._replace(operations=(*record.operations, {"kind": "teleport"})))
    one = of(sim)
    assert (one.steps[-1].kind, one.steps[-1].holds) == ("teleport", UNKNOWN)
    assert "another version" in one.advice[0]


def test_an_operation_of_an_extension_that_is_gone(sim: Sim) -> None:
    sim.up(nic("bridged"))
    record = sim.record()
    sim.node.store.write(record._replace(operations=(*record.operations, {"kind": "storage/longframes"})))
    assert of(sim).advice[0] == "put the site's extension storage back (docs/extending.md)"


def test_settings_that_have_changed_since(sim: Sim) -> None:
    sim.up(nic("bridged"))
    sim.settings = sim.settings._replace(nic={"spoof_guard": False, "rate_in": 8_000_000})
    one = of(sim)
    assert "also: The guest receives at most 8mbit." in one.today
    assert any(each.startswith("no more: The guest may send") for each in one.today)
    assert "next start" in one.advice[0] and "With today's settings" in text(one, UNICODE, UTC)


@pytest.mark.parametrize(("system", "tags"), [(False, "netcommon:0:rate_in:8mbit"), (True, "netcommon:0:rate_out:8mbit")])
def test_a_limit_that_is_enforced(sim: Sim, system: bool, tags: str) -> None:
    sim.host.switch.bridges["ovs0"] = system
    sim.up(nic("openvswitch", TAGS=tags))
    assert "all that was done holds" in text(of(sim), ASCII) and not [line for line in sim.lines if "rate_out" in line]


def test_a_limit_that_is_not_enforced(sim: Sim) -> None:
    """Open vSwitch in user space polices nothing (docs/openvswitch.md): that is no drift, since a repair could not help."""
    assert sim.host.switch.bridges["ovs0"] is False
    sim.up(nic("openvswitch", TAGS="netcommon:0:rate_out:8mbit"))
    said = "tap0 sends without a limit, rate_out is not enforced: the datapath of ovs0 is in user space (datapath_type netdev)"
    assert [line for line in sim.lines if said in line]
    shown = " ".join(text(of(sim), ASCII).split())
    assert f"stands, without effect: {said}" in shown and "It is up; without effect on this host: 1 of 7 things that were done." in shown
    assert check(sim.node, sim.host.view(), sim.record()).good


def test_settings_that_refuse_it_today(sim: Sim) -> None:
    """A tag that meant nothing while the prefix was another."""
    sim.up(nic("bridged", TAGS="site:0:whatever"))
    sim.settings = sim.settings._replace(tag_prefix="site")
    one = of(sim)
    assert "it would be refused" in one.today[0] and option(one, "options").note == "the tags or settings are wrong today"


def test_open_vswitch_does_not_answer(sim: Sim) -> None:
    sim.up(nic("openvswitch"))
    sim.host.switch.condition = sim.host.switch.condition._replace(database=False)
    one = of(sim)
    assert any(step.differs.startswith("cannot be told") for step in one.steps) and "netcommon doctor" in one.advice[0] and not one.good
    assert "nobody can tell whether they hold" in text(one, UNICODE, UTC)


def test_defined_and_not_up() -> None:
    one = foreseen(nic("bridged"), Settings())
    assert (one.state, one.good, {step.holds for step in one.steps}) == (DEFINED, False, {UNKNOWN})
    said = text(one, UNICODE, UTC)
    assert "It is defined, and not up." in said and "What an up will do" in said and "netcommon up" in said and "holds" not in said


def test_lines_are_short_and_plain(sim: Sim) -> None:
    sim.up(nic("routed, all options"))
    said = text(of(sim), ASCII, UTC)
    assert said.isascii() and "\x1b" not in said
    assert max(map(len, said.splitlines())) <= WIDTH
    assert "\x1b[" in text(of(sim), UNICODE._replace(colour=True), UTC)


def test_the_command_takes_every_name(cli: Cli) -> None:
    with_two(cli)
    for name, found in (("tap0", 1), (UUIDS[1], 1), ("web1/0", 1), ("web1", 2)):
        document = cli.json("explain", name)
        assert (document["schema"], document["version"], len(document["nics"])) == ("netcommon-explain", 1, found)
    both = cli("explain", "web1", "tap0").stdout
    assert both.count("It is up, and all that was done holds.") == 2
    (one,) = cli.json("explain", "tap0")["nics"]
    assert one["door"] == "cli" and {each["origin"] for each in one["origins"] if each["given"]} == {"the command line"}
    assert "What was done, by the command line, at 20" in both


def test_what_is_shared_goes_by_the_names_of_nics(cli: Cli) -> None:
    cli.host.add_tap("tap2", holder=78)
    for tap, guest in (("tap1", "web1"), ("tap2", "db1")):
        named = ("--instance", guest, "--index", "0", "--mac", f"aa:00:00:00:00:0{tap[-1]}")
        cli("define", "--interface", tap, "--mode", "bridged", "--link", "br0", *named)
    cli("up", "--all")
    assert "shared with db1/0" in cli("explain", "web1/0").stdout


def test_the_command_for_one_that_is_only_defined(cli: Cli) -> None:
    cli(*BRIDGED)
    (one,) = cli.json("explain", "web1/0")["nics"]
    assert (one["state"], one["alive"]) == ("defined", False) and "netcommon up" in one["advice"][0]


def test_nobody_of_that_name(cli: Cli) -> None:
    assert "NIC='nobody'" in cli("explain", "nobody", status=64).stderr
    assert cli.json("explain", "nobody", status=64)["status"] == 64
    assert "Usage" in cli("explain", status=2).stderr


def test_where_a_script_does_it_instead_nothing_else_will_be_done(sim: Sim) -> None:
    script = Path(sim.paths.ganeti_etc, "kvm-vif-bridge")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    sim.up(nic("bridged"))
    one = of(sim)
    assert sim.record().scripts and sim.record().operations == () and (one.today, one.advice) == ((), ())
