"""Options and instance communication: of all that a site gives its guests, such a NIC has the spoof guard and its access to the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.operations.access import NodeAccess
from netcommon.operations.base import Operation
from netcommon.options.model import DEFAULTS
from netcommon.options.schema import OPTIONS
from netcommon.options.sources import options_of
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from netcommon.views.explain.model import origins
from runtime.environment import environment_of, nic_from_environment
from runtime.errors import NicInvalid
from runtime.nic import Nic
from tests.support.cli import equipped
from tests.support.options import asked
from tests.support.sim import BASE

NAME = "ganeti:communication:web1"


def nic(**changes: str) -> Nic:
    """The communication NIC of an instance."""
    mine = {"INTERFACE": "gnt.com.0", "MODE": "routed", "LINK": "x", "IP": "169.254.0.1", "INTERFACE_NAME": NAME, "INTERFACE_INDEX": "1"}
    return nic_from_environment({**BASE, **mine, **changes})


def named(operations: list[Operation]) -> list[str]:
    return [operation.describe() for operation in operations]


@pytest.mark.parametrize("name", [option.name for option in OPTIONS if option.name not in ("spoof_guard", "node_access")])
def test_options_for_guests_do_nothing(name: str) -> None:
    """Not those of all NICs, and not those of its network."""
    plain = named(plan(nic(NETWORK_NAME="comm"), Settings()))
    for values in asked(name):
        for settings in (Settings(nic=values), Settings(networks={"comm": values})):
            assert named(plan(nic(NETWORK_NAME="comm"), settings)) == plain
            assert options_of(nic(NETWORK_NAME="comm"), settings) == DEFAULTS


def test_the_guard_can_be_switched_off() -> None:
    off = {"spoof_guard": False}
    guarded = named(plan(nic(), Settings()))
    for one, settings in (
        (nic(), Settings(nic=off)),
        (nic(NETWORK_NAME="comm"), Settings(networks={"comm": off})),
        (nic(TAGS=f"netcommon:{NAME}:spoof_guard:no"), Settings()),
    ):
        free = named(plan(one, settings))
        assert free.pop(0).endswith("/disable_ipv6")  # nothing of IPv6 is forwarded for it, with the guard or without
        assert [line for line in guarded if "guard" not in line] == free != guarded


@pytest.mark.parametrize(
    ("given", "services"),
    [(("none",), ("udp/67",)), (("tcp/80",), ("tcp/80", "udp/67")), (("udp/67", "udp/69"), ("udp/67", "udp/69")), (("all",), None)],
)
def test_its_access_to_the_node(given: tuple[str, ...], services: tuple[str, ...] | None) -> None:
    """What gives it its address is always reached."""
    made = [each for each in plan(nic(), Settings(nic={"node_access": given})) if isinstance(each, NodeAccess)]
    assert [each.services for each in made] == ([] if services is None else [services])


def test_tags_for_all_nics_do_nothing_and_wrong_ones_are_refused() -> None:
    found = options_of(nic(TAGS="netcommon:*:rate_in:8mbit netcommon:1:allow_mac_spoofing netcommon:*:addresses:10.0.0.9"), Settings())
    assert found == DEFAULTS
    with pytest.raises(NicInvalid, match="rate_in"):
        options_of(nic(TAGS="netcommon:*:rate_in:fast"), Settings())


def test_explain_says_it() -> None:
    """As plan does: what counts has no note."""
    said = {one.name: one.note for one in origins(nic(), Settings(nic={"rate_in": 8_000_000, "node_access": ("tcp/80",)}), "a door")}
    assert said["rate_in"] == "instance communication does without"
    assert (said["node_access"], said["spoof_guard"]) == ("", "")


def test_plan_says_it(tmp_path: Path) -> None:
    cli = equipped(tmp_path)
    Path(cli.paths.etc).mkdir(parents=True, exist_ok=True)
    Path(cli.paths.config).write_text('[nic]\nrate_in = "8mbit"\nspoof_guard = true\nnode_access = ["tcp/80"]\n')
    (tmp_path / "environ").write_text("".join(f"{key}={value}\n" for key, value in environment_of(nic()).items()))
    said = cli("plan", "--env-file", str(tmp_path / "environ")).stdout.splitlines()
    assert "  rate_in = 8mbit, from [nic]; nothing for instance communication" in said
    assert "  spoof_guard = true, from [nic]" in said and "  node_access = tcp/80, from [nic]" in said
