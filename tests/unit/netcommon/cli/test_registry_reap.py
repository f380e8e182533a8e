"""netcommon registry node reap: what of a node's NICs is gone is said, and removed, by the agent's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime import membership
from tests.support.cli import BRIDGED, ROUTED, Cli, equipped
from tests.support.service import Served, served

INCARNATION = "0193b3c0-0000-7000-8000-000000000001"


class Joined:
    """A node that has joined, with two NICs of its own that the registry knows and that are stopped."""

    def __init__(self, cli: Cli, service: Served) -> None:
        self.cli, self.service = cli, service
        cli("registry", "node", "join", "node0")
        me = membership.read(cli.paths)
        assert me is not None
        self.node = service.client(f"node:{me.uuid}")
        self.node.change("POST", f"nodes/{me.uuid}/heartbeat", {"incarnation": INCARNATION})
        for arguments in (BRIDGED, ROUTED):
            cli(*arguments)
        for tap in ("tap0", "tap1"):  # their guests are off
            cli.host.remove_link(tap)
        self.files = sorted(Path(cli.paths.definitions).glob("*.toml"))
        for number, file in enumerate(self.files):
            self.node.change("POST", "nics", {"uuid": file.stem, "instance": "web1", "index": number, "found": True})
        reports = [{"nic": file.stem, "state": "stopped"} for file in self.files]
        self.node.change("POST", f"nodes/{me.uuid}/reports", {"after": f"{service.store.epoch}:0", "nics": reports})

    def wanted(self) -> list[str]:
        return sorted(item["nic"]["uuid"] for item in self.service.client().all("nics"))


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    folder = tmp_path / "run/netregistry"
    folder.mkdir(parents=True)
    with served(folder) as service:
        yield Joined(equipped(tmp_path), service)


def test_what_is_gone_is_said_and_then_goes(joined: Joined) -> None:
    cli, (kept, gone) = joined.cli, [file.stem for file in joined.files]
    assert cli("registry", "node", "reap", "--dry-run").stdout == "nothing is gone\n"
    joined.files[1].unlink()
    before = joined.service.everything()
    said = cli("registry", "node", "reap", "--dry-run").stdout
    assert gone in said and kept not in said and "WOULD GO" in said
    assert joined.service.everything() == before, "a rehearsal changes nothing"
    assert [item["nic"]["uuid"] for item in cli.json("registry", "node", "reap")["items"]] == [gone]
    assert joined.wanted() == [kept]
    assert cli("registry", "node", "reap").stdout == "nothing is gone\n"


def _is_back(joined: Joined, text: bytes) -> None:
    joined.files[1].write_bytes(text)


def _is_up(joined: Joined, text: bytes) -> None:
    joined.files[1].write_bytes(text)
    joined.cli.host.add_tap("tap1", holder=77)
    joined.cli("up", "tap1")
    joined.files[1].unlink()


def _is_another(joined: Joined, text: bytes) -> None:
    joined.service.client().change("PATCH", f"nics/{joined.files[1].stem}", {"options": [{"name": "isolated", "value": "yes"}]})


@pytest.mark.parametrize("meanwhile", [_is_back, _is_up, _is_another])
def test_what_changes_between_two_looks_stays(joined: Joined, meanwhile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = joined.files[1].read_bytes()
    joined.files[1].unlink()
    monkeypatch.setattr(joined.cli, "sleep", lambda _seconds: meanwhile(joined, text))
    joined.cli("registry", "node", "reap")
    assert joined.wanted() == [file.stem for file in joined.files]


def test_nothing_goes_by_half_a_picture(joined: Joined) -> None:
    joined.files[1].unlink()
    damaged = joined.files[0].with_name("00000000-0000-4000-8000-00000000000f.toml")
    damaged.write_text("no definition")
    assert "not complete" in joined.cli("registry", "node", "reap", status=69).stderr
    damaged.unlink()
    joined.files[0].unlink()
    assert "no NIC is defined" in joined.cli("registry", "node", "reap", status=69).stderr
    assert joined.wanted() == [file.stem for file in joined.files]


def test_whose_tap_is_held_still_stays(joined: Joined) -> None:
    """Its record may be lost: it bears no mark where it came up while tap_alias was off."""
    joined.cli.host.add_tap("tap1", holder=77)
    joined.files[1].unlink()
    assert "tap1 may be theirs" in joined.cli("registry", "node", "reap", status=69).stderr
    assert joined.wanted() == [file.stem for file in joined.files]


def test_a_node_that_has_not_joined(tmp_path: Path) -> None:
    assert "node join" in Cli(tmp_path)("registry", "node", "reap", status=69).stderr
