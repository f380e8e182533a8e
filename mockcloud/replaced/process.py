"""Stand for the process around an agent: nobody asks, starts or ends it, it has no logs but the cluster's, and no script is run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from netcommon.log import NAMES, NOTHING, Log
from netcommon.process.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netagent.state import State
    from netcommon.lifecycle.context import Node
    from netcommon.settings.model import Settings


class Unattended:
    """The process of an agent whom nobody asks, starts or ends: a netagent.agent.Process, and its server of hooks."""

    folders: tuple[str, ...] = ()

    def __init__(self, state: State) -> None:
        self._state = state
        self.open_node: Callable[[Settings], Node]

    def hooks(self, open_node: Callable[[Settings], Node]) -> Unattended:
        self.open_node = open_node
        return self

    def begin(self, loop: object) -> None: ...
    def ready(self, text: str) -> None:
        self._state.standing.state, self._state.standing.text = "running", text

    def tick(self) -> float:
        return math.inf

    def configure(self, settings: Settings) -> None: ...
    def again(self, settings: Settings | None = None) -> None: ...
    def close(self, seconds: float) -> None: ...
    def status(self) -> Mapping[str, object]:
        return {}

    def hanging(self) -> str:
        return ""


class Lines:
    """Logs whose lines are noted: a netagent.state.MakeLogs, and the sender of each."""

    dropped = 0

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def make(self) -> Log:
        return Log(self)

    def use(self, settings: Settings) -> None: ...
    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        self._note(f"{NAMES[severity]}: {text}")

    def close(self) -> None: ...


def no_scripts(argv: Sequence[str], environment: Mapping[bytes, bytes], seconds: float, limit: int, clock: Callable[[], float]) -> Outcome:
    """Run none of the site's scripts."""
    return Outcome(error="no scripts run on a simulated node")
