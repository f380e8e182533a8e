"""Every error of the command line says what to do next: in itself, by what was expected, or on a line of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.cli.results import Results
from runtime.errors import HostRefused, NicInvalid, RecordTooNew, SettingsInvalid, TryAgain
from runtime.record import SCHEMA
from tests.support.cli import BRIDGED, UUIDS, Cli, equipped


def broken_settings(two: Cli) -> None:
    Path(two.paths.etc).mkdir(parents=True, exist_ok=True)
    Path(two.paths.config).write_text("[hook]\ntimeot = 3\n")


def nobody(two: Cli) -> None:
    two.uid = 1000


def newer(two: Cli) -> None:
    path = Path(two.paths.state, "nics", f"{UUIDS[0]}.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": SCHEMA + 1}))


def bridge_gone(two: Cli) -> None:
    two.host.remove_link("br0")


def device_gone(two: Cli) -> None:
    two("down", "--all", "--force")
    two.host.remove_link("tap0")


def closing(two: Cli) -> None:
    two("down", "tap0")


def nothing(_cli: Cli) -> None:
    pass


ERRORS: tuple[tuple[Callable[[Cli], None], tuple[str, ...], int, str], ...] = (
    (nothing, ("up", "tap9"), 64, "netcommon define"),
    (nothing, ("show", "tap9"), 64, "netcommon list shows them"),
    (nothing, ("explain", "tap9"), 64, "netcommon list shows them"),
    (nothing, ("check", "tap9"), 64, "netcommon list shows them"),
    (nothing, ("define", "--interface", "tap0", "--mode", "bridge"), 64, "expected one of bridged, routed"),
    (nothing, ("define", "--remove"), 64, "expected --uuid or --interface beside it"),
    (nothing, ("plan", "--env-file", "/nowhere"), 64, "expected a file that can be read"),
    (nothing, ("plan",), 2, "name one source of the NIC"),
    (nothing, ("up",), 2, "name NICs that are defined, or give"),
    (nothing, ("nonsense",), 2, "Try 'netcommon --help' for help"),
    (nothing, ("up", "--nonsense"), 2, "Try 'netcommon up --help' for help"),
    (nothing, ("install",), 2, "name what to install for"),
    (nothing, ("graph", "-o", "/nowhere/x.svg"), 69, "name another file"),
    (nothing, ("agent", "status"), 69, "systemctl start netcommon-agent"),
    (nothing, ("dns", "sync"), 78, "give [dns] zones and servers"),
    (broken_settings, ("up", "--all"), 78, "did you mean timeout?\nnetcommon: next: correct it; netcommon config"),
    (broken_settings, ("config",), 78, "did you mean timeout?"),
    (nobody, ("up", "--all"), 69, "run it as root"),
    (nobody, ("gc",), 69, "run it as root"),
    (nobody, ("upgrade",), 69, "run it as root"),
    (nobody, ("install", "--qemu"), 69, "run it as root"),
    (nobody, ("dns", "list"), 69, "run it as root"),
    (newer, ("up", UUIDS[0]), 69, "install the version that wrote it"),
    (newer, ("upgrade",), 69, "install the version that wrote it"),
    (bridge_gone, ("plan", "tap0", "--resolve"), 69, "create it, or correct the NIC's LINK"),
    (device_gone, ("up", "tap0"), 69, "its hypervisor makes it when the guest starts"),
)


@pytest.mark.parametrize(("change", "command", "status", "said"), ERRORS, ids=[" ".join((one[0].__name__, *one[1])) for one in ERRORS])
def test_an_error_says_what_to_do(two: Cli, change: Callable[[Cli], None], command: tuple[str, ...], status: int, said: str) -> None:
    change(two)
    assert said in two(*command, status=status).stderr


def test_what_the_message_does_not_say_is_on_a_line_of_its_own(two: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each kind of error; of several NICs with the same one, once."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for kind in (HostRefused, TryAgain, SettingsInvalid):
        assert kind.advice
        monkeypatch.setattr(two.host, "snapshot", lambda kind=kind: (_ for _ in ()).throw(kind("it is so")))
        assert two("gc", status=kind.status).stderr.endswith(f"netcommon: it is so\nnetcommon: next: {kind.advice}\n")
        said = json.loads(two("gc", "--json", status=kind.status).stdout)
        assert (said["error"], said["advice"]) == ("it is so", kind.advice)
    assert NicInvalid("A", "b", "c").advice == RecordTooNew("x").advice == ""  # they say it themselves


def test_a_remedy_in_the_message_is_all_that_is_said(two: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """No examination of the host is advised beside it, in words or in JSON."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    error = HostRefused("it is so", "do that")
    monkeypatch.setattr(two.host, "snapshot", lambda: (_ for _ in ()).throw(error))
    assert two("gc", status=69).stderr.endswith("netcommon: it is so: do that\n")
    said = json.loads(two("gc", "--json", status=69).stdout)
    assert (said["error"], said["advice"]) == ("it is so: do that", "")


def test_several_nics_with_the_same_trouble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each one's is said; what to do next, where that is not said there, once."""
    cli = equipped(tmp_path)
    cli(*BRIDGED)
    cli("define", "--interface", "tap1", "--mode", "bridged", "--link", "br0", "--instance", "web2", "--mac", "aa:00:00:00:00:09")
    cli.host.remove_link("br0")
    said = cli("up", "--all", status=69).stderr
    assert said.count("bridge br0 does not exist: create it") == 2 and "netcommon: next: " not in said
    results = Results()
    for name in ("tap0", "tap1"):
        with results.of(None, name):
            raise HostRefused("it is so")
    assert results.show(as_json=False) == 69
    assert capsys.readouterr().err.endswith(f"tap1: it is so\nnetcommon: next: {HostRefused.advice}\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("change", "--json"), "name NICs, or give --all"),
        (("change", "tap0", "--json"), "name what is to change"),
        (("repair", "--all", "tap0", "--json"), "one of the two"),
        (("show", "--json"), "Missing argument"),
        (("up", "--nonsense", "--json"), "No such option"),
        (("check", "--json", "--nonsense"), "No such option"),
        (("dns", "sync", "--frob", "--json"), "No such option"),
        (("frob", "--json"), "No such command"),
        (("--frob", "list", "--json"), "No such option"),
    ],
)
def test_wrong_usage_in_json_too(two: Cli, command: tuple[str, ...], said: str) -> None:
    """The document of every command that fails as a whole; on stderr it stands all the same, and without --json there alone."""
    done = two(*command, status=2)
    error = json.loads(done.stdout)
    assert (error["schema"], error["version"], error["status"]) == ("netcommon-error", 1, 2)
    assert said in error["error"] and error["error"].split(".")[0] in done.stderr
    assert two(*(word for word in command if word != "--json"), status=2).stdout == ""


def test_a_name_that_is_called_so_asks_for_no_json(two: Cli) -> None:
    assert two("up", "--", "--json", status=64).stdout == ""
