"""Why a frame should not have arrived."""

from __future__ import annotations

from typing import NamedTuple

DECEIVES = "deceives"  #: some receiver can be deceived by it
PROMISE = "promise"  #: the pages say that it is dropped; no receiver that is known makes anything of it


class Reason(NamedTuple):
    """The broken rule, in a word that stays the same from frame to frame, and in words for a reader; ``way``: how it was hidden."""

    rule: str
    text: str
    level: str = DECEIVES
    way: str = ""

    @property
    def kind(self) -> tuple[str, str, str]:
        """What two frames have in common that came through the same hole."""
        return self.rule, self.level, self.way
