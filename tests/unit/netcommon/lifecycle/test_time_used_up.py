"""A site's script that uses up the hook's time: what was begun is ended all the same, also where others hold a lock for a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.lifecycle.context import HOT_REMOVE, START, Call, Node
from netcommon.lifecycle.down import down
from netcommon.lifecycle.execute import decode, locks_of
from netcommon.lifecycle.site_scripts import Scripts
from netcommon.lifecycle.up import up
from runtime.environment import DownHint
from runtime.errors import HostRefused
from runtime.locks import Locks
from runtime.nic import Nic
from runtime.record import UP
from tests.support.sim import Sim, nic

ROUTED = nic("routed, table")

#: Seconds that a call has, and those for which others hold the locks when its scripts have used them up.
LIMIT, HELD = 5.0, 0.3


class Busy:
    """A node whose time goes by only in scripts and in waiting, and where others work on what the NIC shares once a script has run."""

    def __init__(self, folder: Path) -> None:
        self.sim = Sim(str(folder))
        self.sim.up(ROUTED)
        self.up = self.sim.picture()
        self._keys = locks_of(decode(self.sim.record())[0])
        self._time, self._end, self._others = 1000.0, 0.0, list[Locks]()
        assert self._keys

    def _sleep(self, seconds: float) -> None:
        self._time += seconds
        if self._others and self._time >= self._end:
            self._others.pop().release()

    @property
    def node(self) -> Node:
        node = self.sim.node
        return node._replace(clock=node.clock._replace(now=lambda: self._time, sleep=self._sleep))

    def call(self, context: str = START) -> Call:
        return self.sim.call(context)._replace(deadline=self._time + LIMIT)

    def slow(self, then: Callable[[], None]) -> Callable[[Scripts], None]:
        """Give what takes the place of the site's scripts: all the time is over, others come, and ``then`` follows."""

        def run(scripts: Scripts) -> None:
            self._time += LIMIT
            held = scripts._node.store.locks(self._time, lambda: self._time, self._sleep)
            held.keys(self._keys)
            self._others, self._end = [held], self._time + HELD
            then()

        return run

    def down(self, nic: Nic) -> bool:
        hint = DownHint(nic.uuid, nic.interface, nic.instance, nic.index, nic.mac)
        return down(self.node, hint, self.call(HOT_REMOVE)).changed


def fails() -> None:
    raise HostRefused("the site's script failed")


@pytest.fixture
def busy(tmp_path: Path) -> Busy:
    return Busy(tmp_path)


def test_a_down(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    busy.sim.node.store.write(busy.sim.record()._replace(scripts=True))
    monkeypatch.setattr(Scripts, "down", busy.slow(lambda: None))
    assert busy.down(ROUTED)
    assert busy.sim.records() == [] and busy.sim.picture() == busy.sim.before


def test_a_rollback(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy.down(ROUTED)
    monkeypatch.setattr(Scripts, "up", busy.slow(fails))
    with pytest.raises(HostRefused):
        up(busy.node, ROUTED, busy.call())
    assert busy.sim.records() == [] and busy.sim.picture() == busy.sim.before


def test_a_way_back(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripts, "up", busy.slow(fails))
    with pytest.raises(HostRefused):
        up(busy.node, nic("routed, table", IP="10.0.0.6"), busy.call())
    assert busy.sim.record().state == UP and busy.sim.picture() == busy.up
