"""Nothing of a guest that runs is undone: gc on the kernel, after its tap was renamed, or its record lost, and no mark of ours is on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.netns import run
from tests.support.node import Node
from tests.support.routed import collect
from tests.support.rundoor import rundoor

NIC = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "IP": "10.0.0.5",
    "MAC": "aa:00:00:12:34:56",
    "INSTANCE": "web1",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "13264fb6-0667-415f-9a43-786dc01cbf24",
    "TAGS": "netcommon:*:spoof_guard",
}
SITE = Path("/etc/ganeti/network/bridged")
WAYS = ("came up while tap_alias was off", "its alias was taken away", "it got another's alias")


def up(way: str = "") -> None:
    """Bring the NIC up, so that its tap bears no mark of ours by now; the settings are the usual ones then."""
    if way == WAYS[0]:
        Path("/etc/netcommon/config.toml").write_text("[ganeti]\ntap_alias = false\n")
    assert rundoor("kvm-ifup", NIC).status == 0
    Path("/etc/netcommon/config.toml").unlink(missing_ok=True)
    if way in WAYS[1:]:
        run("ip", "link", "set", "dev", "tap0", "alias", "customer 7" if way == WAYS[2] else "")


def renamed() -> None:
    """Rename it as udev does."""
    for words in (("tap0", "down"), ("tap0", "name", "guest0"), ("guest0", "up")):
        run("ip", "link", "set", *words)


@pytest.mark.parametrize("way", WAYS)
def test_a_tap_that_was_renamed(node: Node, way: str) -> None:
    node.bridge("br0")
    tap = node.tap("tap0")
    up(way)
    renamed()
    before = run("nft", "list", "ruleset")
    assert "netcommon-guard" in before
    assert collect() == [] and run("nft", "list", "ruleset") == before
    tap.close()
    assert [line.split()[0] for line in collect()] == ["removed"] and "netcommon" not in run("nft", "list", "ruleset")


def test_one_that_the_site_s_script_sets_up(node: Node) -> None:
    """No operation is on record, and so no alias ever was: the script of down does not run while the guest does."""
    node.bridge("br0")
    tap = node.tap("tap0")
    SITE.mkdir(parents=True)
    for name in ("up", "down"):
        (SITE / name).write_text(f'#!/bin/sh\necho "{name} $INTERFACE" >>/run/said\n')
        (SITE / name).chmod(0o755)
    up()
    assert Path("/run/said").read_text() == "up tap0\n" and "alias" not in run("ip", "link", "show", "tap0")
    renamed()
    assert collect() == [] and Path("/run/said").read_text() == "up tap0\n"
    tap.close()
    assert [line.split()[0] for line in collect()] == ["removed"] and "down" in Path("/run/said").read_text()


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_record_is_lost(node: Node, way: str) -> None:
    node.bridge("br0")
    tap = node.tap("tap0")
    up(way)
    (record,) = Path("/run/netcommon/nics").glob("*.json")
    record.unlink()
    before = run("nft", "list", "ruleset")
    assert "netcommon-guard" in before
    assert {line.split()[0] for line in collect()} == {"kept"} and run("nft", "list", "ruleset") == before
    tap.close()
    collect()
    assert "netcommon" not in run("nft", "list", "ruleset")
