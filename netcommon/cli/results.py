"""What became of each of several NICs, and the exit status of it all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from netcommon.cli import signals
from netcommon.cli.output import answer, say
from netcommon.lifecycle.context import Outcome
from runtime.errors import OK, NetcommonError
from runtime.nic import Nic


class Results:
    """Gathers outcomes and failures; one NIC's failure does not stop the next."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.status = OK
        self._advice: dict[str, None] = {}

    @contextmanager
    def of(self, nic: Nic | None, name: str = "") -> Iterator[None]:
        """Work for one NIC, or for one that is only a ``name``; its failure is kept, and the first one's exit status.

        Raises Interrupted where the command was told to end meanwhile.
        """
        signals.between()
        known = {"nic": nic.label, "uuid": nic.uuid, "device": nic.interface} if nic else {"nic": name}
        self.rows.append(known | {"changed": False, "text": "", "error": ""})
        try:
            yield
        except NetcommonError as error:
            self.rows[-1]["error"] = str(error)
            self._advice[error.advice] = None
            self.status = self.status or error.status

    def done(self, outcome: Outcome) -> None:
        """The NIC's outcome."""
        self.rows[-1] |= {"changed": outcome.changed, "text": outcome.text}

    def became(self, result: Outcome | NetcommonError) -> None:
        """The NIC's outcome; or its failure, which is raised."""
        if isinstance(result, NetcommonError):
            raise result
        self.done(result)

    def show(self, as_json: bool) -> int:
        """Prints them, failures on stderr, and what to do about them; returns the exit status."""
        if as_json:
            answer("outcomes", nics=self.rows)
            return self.status
        for row in self.rows:
            if row["error"]:
                say(f"netcommon: {row['nic']}: {row['error']}", err=True)
            else:
                say(str(row["text"]))
        for advice in filter(None, self._advice):
            say(f"netcommon: next: {advice}", err=True)
        if not self.rows:
            say("no NICs: nothing to do")
        return self.status
