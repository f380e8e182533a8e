"""Hold what trace says of a frame against where it arrived."""

from __future__ import annotations

from netcommon.views.trace.trail import ANSWERED, NODE, Path
from tests.support.datapath.frames import Shot
from tests.support.datapath.stage import ANSWER
from tests.support.datapath.stage import NODE as AT_NODE

PLACES = {NODE: AT_NODE, ANSWERED: ANSWER}


def predicted(path: Path) -> frozenset[str]:
    """Where trace says that it arrives, in the oracle's words."""
    return frozenset(PLACES.get(each.who, each.device) for each in path.arrivals)


def comparable(places: frozenset[str], shot: Shot) -> frozenset[str]:
    """``places`` without what the oracle does not see: who on the node listens for a question, or for another protocol than IP."""
    return places - {AT_NODE} if shot.asks or not shot.inner else places
