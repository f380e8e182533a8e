"""With NETCOMMON_TESTS_WARM=1 each test with a node has an agent on it that serves hooks and does as little else as it can.

So the tests of the doors are tests of the warm path too. ``tests/run --lane warm`` sets the variable:

    tests/run --lane warm                                        # all tests of the lanes kernel and fault
    tests/run --lane warm tests/kernel/test_doors_calls.py

A test fails if hooks were run and none came to the agent, or if one was handed back for another reason than what the test is about.

What a test expects of a node without an agent (a NIC whose device has gone stays on record until gc) fails with one, as it must. So such
a test, class, module or case bears ``pytest.mark.no_agent("why")``: it has none, and runs as it always does. The end of the run's output
says how many tests and hooks had an agent, and how many tests had none for which reason.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from netagent.hooks.protocol import BUSY, COMMUNICATING, FOLDERS, GUARDED, SCRIPTS, SETTINGS
from netagent.hooks.server import MOST
from netcommon.operations.kinds import KINDS
from tests.support import agent, rundoor

WARM = os.environ.get("NETCOMMON_TESTS_WARM") == "1"

STATE = "/run/netcommon"

#: It repairs nothing, compares nothing after its start, and reaps nothing. Hooks read the file for themselves, when it is gone.
IDLE = "[agent]\nresync = 86400\nstart_delay = 86400\nreap_interval = 86400\n[repair]\n" + "".join(f'{kind} = "off"\n' for kind in KINDS)

#: What a test may have to do with, for which a hook does the work itself.
EXPECTED = frozenset({SCRIPTS, SETTINGS, GUARDED, COMMUNICATING, FOLDERS})


class Tally:
    """What a run with agents has come to."""

    def __init__(self) -> None:
        self.agents = 0  #: tests that had one
        self.called = 0  #: those of them whose hooks came to it
        self.served = 0  #: calls of hooks
        self.handed_back: Counter[str] = Counter()  #: calls, by the agent's reason
        self.untold = 0  #: tests that took the agent's socket away: nobody can ask it
        self.without: Counter[str] = Counter()  #: tests that had none, by their reason

    def add(self, served: int, handed_back: Counter[str]) -> None:
        """One test's calls."""
        self.called += bool(served or handed_back)
        self.served += served
        self.handed_back += handed_back

    def lines(self) -> list[str]:
        """For people."""
        back = ", ".join(f"{number} {why}" for why, number in self.handed_back.most_common())
        back = f"{self.handed_back.total()} handed back{f' ({back})' if back else ''}"
        found = [
            f"{self.agents} tests had an agent on their node; {self.called} of them ran hooks",
            f"{self.served + self.handed_back.total()} calls of hooks were handed over: {self.served} served, {back}",
            f"{self.without.total()} tests had a node without one{':' if self.without else ''}",
            *(f"{number:6}  {why}" for why, number in self.without.most_common()),
        ]
        if self.untold:
            found.insert(2, f"of {self.untold} tests they are not counted: they took the agent's socket away")
        return found


TALLY = Tally()

#: What the agent of the running test had made below STATE, and STATE itself, before the test began.
_own: frozenset[str] = frozenset()


def reason(mark: pytest.Mark) -> str:
    """Why a test has no agent. Raises pytest.UsageError where the mark does not say."""
    given = mark.args[0] if len(mark.args) == 1 and not mark.kwargs else None
    if not isinstance(given, str) or not given.strip():
        raise pytest.UsageError('no_agent takes one reason: pytest.mark.no_agent("why")')
    return given


def there() -> list[str]:
    """STATE and all that is below it, but for what the agent of this test had made before it began. Nothing where no test has an agent
    and no hook has come as far as to make the folder."""
    return [path for path in _found() if path not in _own]


def agents_own(path: str) -> bool:
    """Whether the agent of this test had made it before the test began."""
    return path in _own


def _found() -> list[str]:
    below = [f"{where}/{name}" for where, folders, names in os.walk(STATE) for name in folders + names]
    return [STATE, *below] if os.path.lexists(STATE) else []


@contextlib.contextmanager
def agent_if_asked(test: pytest.Item) -> Iterator[None]:
    """Around one test, inside its node."""
    mark = test.get_closest_marker("no_agent")
    if not WARM or mark is not None:
        TALLY.without.update([reason(mark)] if mark is not None else [])
        yield
        return
    TALLY.agents += 1
    with agent.agent(settings=IDLE) as running:
        os.unlink("/etc/netcommon/config.toml")
        running.rested()
        rundoor.handed_over = 0
        with _owning():
            yield
        _asked(running)


@contextlib.contextmanager
def _owning() -> Iterator[None]:
    global _own  # noqa: PLW0603
    _own = frozenset(_found())
    try:
        yield
    finally:
        _own = frozenset()


def _asked(running: agent.Agent) -> None:
    """Asks the agent what came to it. Raises AssertionError where nothing has, or what should not be handed back was."""
    if not os.path.isdir(f"{STATE}/agent"):
        TALLY.untold += 1
        return
    said = running.status()["agent"]
    served, back = int(said["calls served"]), _counted(said["calls handed back"])
    TALLY.add(served, back)
    if rundoor.handed_over:
        assert served or back, f"{rundoor.handed_over} hooks, and none came to the agent"
    more = {BUSY} if served + back.total() > MOST else set()  # it takes so many at once
    assert set(back) <= EXPECTED | more, said["calls handed back"]


def _counted(told: object) -> Counter[str]:
    """What the status says of the calls that were handed back: "2 scripts, 1 settings", or 0."""
    pairs = [each.partition(" ") for each in str(told).split(", ")] if told else []
    return Counter({why: int(number) for number, _space, why in pairs})
