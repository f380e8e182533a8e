"""Any environment at all through the doors' own code on a simulated node: only our own errors, and an invalid one touches nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.doors import call, kvm
from netcommon.log import Log, Recorder
from runtime.errors import USAGE, NetcommonError, NicInvalid
from tests.support.nics import environment, raw, valid_environments
from tests.support.sim import MODES, Sim

WORDS = st.sampled_from(
    ["", "tap0", "br0", "brv", "ovs0", "../x", "a\nb", "$(reboot)", "x" * 300, "\udcff", "10.0.0.5", ".10", "0", "routed", "down", "up"]
)
VARIABLES = st.sampled_from([*environment(IP="x", TAGS="x", BRIDGE="x", NETWORK_SUBNET="x"), "ACTION", "MIGRATION_PHASE"])
ANY = st.dictionaries(VARIABLES, st.one_of(WORDS, raw, st.text(st.characters(exclude_characters="\0"), max_size=30)), max_size=12)
ARGUMENTS = st.lists(st.one_of(WORDS, raw), max_size=3)


class Door(call.Door):
    """A door of a simulated node."""

    def __init__(self, sim: Sim) -> None:
        super().__init__("test", sim.paths)
        self.sim = sim
        self.opened = False
        self.log = Log(Recorder())

    def node(self, strict: bool) -> Any:
        self.opened = True
        return self.sim.node


def passed(sim: Sim, enter: Any, variables: Mapping[str, str], arguments: list[str]) -> None:
    """The door ends well, or with an error of ours, which in case of 64 has asked nothing of the node.

    It may have looked: that a routed NIC has no address at all shows only when its options are known.
    """
    door = Door(sim)
    before, files = sim.picture(), sim.files()
    sim.requests()
    try:
        assert enter(door, variables, arguments) == 0
    except NicInvalid as error:
        assert error.status == USAGE and (not door.opened or (variables.get("MODE"), error.variable) == ("routed", "IP"))
        text = str(error)
        assert text.isascii() and text.isprintable() and len(text) < 500
        assert text.startswith(error.variable)
        assert sim.picture() == before and sim.requests() == [] and sim.files() == files
    except NetcommonError as error:
        assert error.status in (69, 75)
        assert sim.picture() == before and sim.files() == files
    for name in sim.files():
        assert ".." not in name.split("/")


@pytest.mark.parametrize("enter", [kvm.ifup, kvm.ifdown, kvm.nic_setup])
def test_any_environment(enter: Any) -> None:
    @given(ANY, ARGUMENTS)
    def check(variables: dict[str, str], arguments: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sim = Sim(folder)
            passed(sim, enter, variables, arguments)
            sim.node.store.close()

    check()


@given(valid_environments(), st.sampled_from(list(MODES)), VARIABLES, st.one_of(WORDS, raw))
def test_one_wrong_word_in_a_good_environment(variables: dict[str, str], mode: str, variable: str, word: str) -> None:
    """The rest is as Ganeti would give it, so that far more than the first check is reached."""
    with tempfile.TemporaryDirectory() as folder:
        sim = Sim(folder)
        given = {**variables, "INTERFACE": "tap0", **MODES[mode], variable: word}
        for enter in (kvm.ifup, kvm.ifdown):
            passed(sim, enter, given, ["b'tap0'"])
        sim.node.store.close()
