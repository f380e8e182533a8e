"""The sample scripts of examples/ run as the site's scripts do."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from netcommon.log import recording
from netcommon.scripts.site import Call, order, run_each
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.support.bootstrap import ROOT

EXAMPLES = ROOT / "examples"
NIC = {"INSTANCE": "web1", "INTERFACE_INDEX": "0", "MODE": "bridged", "LINK": "br0", "TAGS": "a announce:yes b"}


@pytest.mark.parametrize(
    ("folder", "context", "environment", "said"),
    [
        ("ifup.d", "start", NIC, ["NIC 0 of web1 is on tap0 (bridged br0)"]),
        ("ifup.d", "start", {**NIC, "TAGS": "announce:no"}, []),
        ("ifup.d", "start", {}, []),
        ("ifdown.d", "shutdown", NIC, ["NIC 0 of web1 leaves tap0 (shutdown)"]),
        ("ifdown.d", "hot-remove", NIC, ["NIC 0 of web1 is gone for good"]),
        ("ifdown.d", "hot-remove", {}, ["NIC ? of ? is gone for good"]),
    ],
)
def test_a_sample(tmp_path: Path, folder: str, context: str, environment: dict[str, str], said: list[str]) -> None:
    paths = Paths.under(str(tmp_path))
    shutil.copytree(EXAMPLES / folder, f"{paths.etc}/{folder}")
    plan = order(paths, Settings())
    log, _ = recording()
    (result,) = run_each(plan.up + plan.down, Call("tap0", context, environment), Settings(), time.monotonic() + 5, log, stop=True)
    assert (result.ok, result.output.decode().splitlines()) == (True, said)
