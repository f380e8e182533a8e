"""With NETCOMMON_TESTS_WARM=1 each test with a node has an agent on it that serves hooks and does as little else as it can.

So the tests of the doors are tests of the warm path too:

    NETCOMMON_TESTS_WARM=1 tests/run --lane kernel tests/kernel/test_doors_calls.py

A test fails if hooks were run and none came to the agent, or if one was handed back for another reason than what the test is about. What a
test expects of a node without an agent (a NIC whose device has gone stays on record until gc) fails with it, as it must.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from netagent.handover import COMMUNICATING, FOLDERS, GUARDED, SCRIPTS, SETTINGS
from netcommon.settings_agent import REPAIRED
from tests.support import agent, rundoor

WARM = os.environ.get("NETCOMMON_TESTS_WARM") == "1"

#: It repairs nothing, compares nothing after its start, and reaps nothing. Hooks read the file for themselves, when it is gone.
IDLE = "[agent]\nresync = 86400\nstart_delay = 86400\nreap_interval = 86400\n[repair]\n" + "".join(f'{kind} = "off"\n' for kind in REPAIRED)

#: What a test may have to do with, for which a hook does the work itself.
EXPECTED = frozenset({SCRIPTS, SETTINGS, GUARDED, COMMUNICATING, FOLDERS})


@contextlib.contextmanager
def agent_if_asked() -> Iterator[None]:
    """Around one test, inside its node."""
    if not WARM:
        yield
        return
    with agent.agent(settings=IDLE) as running:
        os.unlink("/etc/netcommon/config.toml")
        running.rested()
        rundoor.handed_over = 0
        yield
        if rundoor.handed_over and os.path.isdir("/run/netcommon/agent"):  # a test may have removed all of it
            said = running.status()["agent"]
            back = [word for word in str(said["calls handed back"]).replace(",", "").split() if not word.isdigit()]
            assert int(said["calls served"]) or back, f"{rundoor.handed_over} hooks, and none came to the agent"
            assert set(back) <= EXPECTED, said["calls handed back"]
            print(f"hooks: {rundoor.handed_over}, served: {said['calls served']}, handed back: {said['calls handed back']}")
