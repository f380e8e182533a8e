"""The events of the test that is running, and what the simulated node told in the same test."""

from __future__ import annotations

from collections.abc import Sequence

from tests.contract.heard import Ears, Recorder, Step

#: What the steps are: the methods of a world that change something, and of its host.
OF_WORLDS = ("tap", "let_go", "bridge", "veth", "vrf", "remove", "rename", "rule_with_source", "many_ports", "flush_nftables")
OF_SWITCHES = ("ovs_bridge", "ovs_port", "freeze_switch", "freeze_database", "settle")
OF_HOSTS = ("execute", "execute_each")


class Trace:
    """Record what happens in one test, in each of its worlds. ``expected``: of a real one, the steps of the simulated test's worlds."""

    def __init__(self) -> None:
        self._expected: list[Sequence[Step]] | None = None
        self.recorders: list[Recorder] = []
        self._at_work = False
        self._test = ""

    def start(self, test: str, expected: list[Sequence[Step]] | None) -> None:
        """A test begins: its file's name and its own."""
        self._test = test
        self._expected, self.recorders, self._at_work = expected, [], True

    def begin(self, world: object, ears: Ears) -> None:
        """A world is made."""
        if not self._at_work:
            ears.close()
            return
        number = len(self.recorders)
        expected = self._expected[number] if self._expected and number < len(self._expected) else None
        made = Recorder(ears, self._test, iter(expected) if expected is not None else None)
        made.watch(world, OF_WORLDS + OF_SWITCHES)
        made.watch(world.host, OF_HOSTS)  # type: ignore[attr-defined]
        self.recorders.append(made)

    def finish(self) -> list[str]:
        """The test has done what it does: the differences."""
        for each in self.recorders:
            each.end()
        return [difference for each in self.recorders for difference in each.differences]

    def stop(self) -> None:
        """The test is over."""
        for each in self.recorders:
            each.close()
        self.recorders, self._at_work = [], False


TRACE = Trace()
