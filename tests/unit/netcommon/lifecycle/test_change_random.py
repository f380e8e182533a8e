"""Changes drawn by seed: several options at once, one change after the other, of one NIC or of two that share things, refused or killed.

After each the host is what a fresh up of the NICs with the options in force would make it, and nothing has drifted; at the end nothing is
left.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netcommon.host.api.host import Answer
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.changed_options import read
from netcommon.lifecycle.check import check, repair
from runtime.environment import nic_from_environment
from runtime.errors import NetcommonError
from runtime.nic import Nic
from tests.support.many import alike
from tests.support.options import every, text
from tests.support.sample import drawn
from tests.support.sim import UUIDS, Mortal, Sim
from tests.unit.netcommon.lifecycle.test_change import BASES

pytestmark = pytest.mark.sampled(2)

SEEDS = drawn(60, 120, 600)

#: mode -> option -> its values.
VALUES: dict[str, dict[str, list[Any]]] = {}
for each in (one for one in every() if one.mode in BASES):
    VALUES.setdefault(each.mode, {}).setdefault(each.name, []).append(each.value)

#: What two guests cannot both have.
OF_ONE = ("addresses", "prefixes")


def machine(folder: Path) -> Sim:
    sim = Sim(str(folder))
    sim.host.templates["ovs/site.j2"] = "priority=5 actions=drop"
    sim.tap("tap1")
    sim.before = sim.picture()
    return sim


def second(first: Nic) -> Nic:
    """Another NIC of the same mode, in the same network."""
    own = {"INTERFACE": "tap1", "INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}
    return nic_from_environment({**first.environment, **own, "IP": "fd00::6" if ":" in first.ip else "10.0.0.6"})


def looks(sim: Sim) -> dict[str, Any]:
    """The host; without the tags that a binding file repeats, and without who of its NICs has written a network's file."""
    picture = alike(sim.picture())
    files = (str(file._replace(owner="")).replace(file.owner or "?", "") if file.name == "told" else str(file) for file in picture["files"])
    return picture | {"files": [re.sub(r"TAGS=[^\\]*", "", file) for file in files]}


def fresh(folder: Path, nics: list[Nic], options: list[dict[str, Any]]) -> dict[str, Any]:
    sim = machine(folder)
    for one, given in zip(nics, options, strict=True):
        tags = [f"netcommon:*:{name}:{text(value)}" for name, values in given.items() for value in several(values)]
        sim.up(nic_from_environment({**one.environment, "TAGS": " ".join(tags)}))
    return looks(sim)


def several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def options_drawn(rng: random.Random, mode: str, has: Mapping[str, Any], alone: bool) -> tuple[dict[str, Any], list[str]]:
    """Which options are set, and which unset."""
    names = rng.sample(sorted(name for name in VALUES[mode] if alone or name not in OF_ONE), rng.randint(1, 4))
    unset = [name for name in names if name in has and rng.random() < 0.5]
    return {name: rng.choice(VALUES[mode][name]) for name in names if name not in unset}, unset


class Story:
    """NICs that are up, and the options that they have by now."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.mode = rng.choice(sorted(VALUES))
        first = nic_from_environment({**BASES[self.mode].environment, "NETWORK_NAME": "told"})  # of which dnsmasq tells its guests
        self.nics = [first, *([second(first)] if rng.random() < 0.5 else [])]
        self.options: list[dict[str, Any]] = [{} for _ in self.nics]
        self.sim = machine(folder / "sim")
        for one in self.nics:
            self.sim.up(one)
        self.turn = 0

    def change(self) -> str:
        """One change, undisturbed, refused or killed; returns what it was."""
        number = self.rng.randrange(len(self.nics))
        sets, unset = options_drawn(self.rng, self.mode, self.options[number], len(self.nics) == 1)
        after = {**{name: value for name, value in self.options[number].items() if name not in unset}, **sets}
        what = self.rng.choice(["nothing", "nothing", "refused", "killed"])
        at = self.rng.randint(1, 14)
        if getattr(self, what)(number, sets, unset, at):
            self.options[number] = after
        return f"NIC {number}, {what} at {at}: {sets}, unset {unset}"

    def fresh(self) -> dict[str, Any]:
        """The host of the same NICs, come up with the options that they have by now."""
        self.turn += 1
        return fresh(self.folder / str(self.turn), self.nics, self.options)

    def nothing(self, number: int, sets: Mapping[str, Any], unset: list[str], _at: int = 0) -> bool:
        edit = setting(self.sim.node, {name: text(value) for name, value in sets.items()}, unset)
        change(self.sim.node, self.nics[number].uuid, self.sim.call(), edit)
        return True

    def refused(self, number: int, sets: Mapping[str, Any], unset: list[str], at: int) -> bool:
        try:
            with self.sim.failing(at, Answer(errno.EIO, "refused by the test"), 1):
                return self.nothing(number, sets, unset)
        except NetcommonError:
            return False

    def killed(self, number: int, sets: Mapping[str, Any], unset: list[str], at: int) -> bool:
        """It is one or the other, and what is kept of its options says which."""
        before = {name: text(value) for name, value in self.options[number].items()}
        with Mortal(self.sim, at):
            return self.nothing(number, sets, unset)
        uuid = self.nics[number].uuid
        repair(self.sim.node, uuid, self.sim.call())
        return {one.option: one.value for one in read(self.sim.node, uuid, []).local} != before


@pytest.mark.parametrize("seed", range(SEEDS))
def test_changes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    story, said = Story(rng, tmp_path), list[str]()
    sim = story.sim
    for _step in range(rng.randint(1, 5)):
        said.append(story.change())
        assert looks(sim) == story.fresh(), said
        assert [check(sim.node, sim.host.view(), record).drift for record in sim.records()] == [()] * len(story.nics), said
    for one in story.nics:
        sim.down(one)
    assert sim.picture() == sim.before, said
    assert sim.records() == [], said
