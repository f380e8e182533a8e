"""Define a claim: who has a MAC or an address of one scope, who else wants it, and since when it is free."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from netregistry.model import kinds

Standing = Literal["held", "reserved", "quarantined", "free"]


class Claim(NamedTuple):
    """A MAC or an address that was ever used; what never was has none.

    A claim without holder that is not reserved was freed: it is in quarantine as long as it has an ``until``, which the leader takes away
    when that is over. ``last`` may have it again at any time. Of a held one ``last`` is there only where that is reported with it still.

    As long as a NIC is reported with what was freed the quarantine has no end: it is FOREVER, which a version that knew no such thing takes
    for one that began while the clock was fast.
    """

    holder: kinds.UuidOrNone = ""  #: a NIC
    contenders: Annotated[tuple[kinds.Uuid, ...], kinds.Hundred] = ()  #: other NICs that have it all the same, the first one first
    reserved: kinds.Note = ""  #: why it is not given out; "": it is
    cluster: kinds.Cluster = ""  #: with ``instance``: for whose NICs it is reserved
    instance: kinds.Instance = ""
    freed: kinds.Time = 0.0
    until: kinds.Time = 0.0
    last: kinds.UuidOrNone = ""  #: the NIC that had it before

    @property
    def standing(self) -> Standing:
        """Tell what may be done with it. A reserved one that a NIC has is held."""
        if self.holder:
            return "held"
        if self.reserved:
            return "reserved"
        return "quarantined" if self.until else "free"

    @property
    def used(self) -> bool:
        """Tell whether its quarantine has not begun to run: a NIC was reported with it, and does not want it."""
        return self.until >= kinds.FOREVER
