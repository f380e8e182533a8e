"""The way of one frame through the node, as a list of what it meets: what trace shows. Plain values."""

from __future__ import annotations

from typing import NamedTuple

#: What a step does with the frame: it goes on; it ends there for good; it has arrived, or leaves the node; nobody here can tell.
PASSES, DROPS, ENDS, UNTOLD = "passes", "drops", "ends", "untold"
VERDICTS = (PASSES, DROPS, ENDS, UNTOLD)

#: Whose what it meets is: ours by its mark, somebody else's, or the kernel's own behaviour.
OURS, FOREIGN, KERNEL = "ours", "not ours", "kernel"
OWNERS = (OURS, FOREIGN, KERNEL)

#: Who has a frame in the end: the guest behind a device, what is outside by a device, the node's own stack, the asker whom it answers.
GUEST, OUTSIDE, NODE, ANSWERED = "guest", "outside", "node", "answered"
RECEIVERS = (GUEST, OUTSIDE, NODE, ANSWERED)


class Step(NamedTuple):
    """One thing that the frame meets."""

    at: str  #: the device at which, or "node" for the node's own stack
    meets: str  #: the object, as its tool names it
    does: str  #: with the frame, in words
    whose: str  #: one of OWNERS
    verdict: str  #: one of VERDICTS


class Arrival(NamedTuple):
    """Name one place where it arrives."""

    device: str  #: by which it leaves the node, or at which the node takes it
    who: str  #: one of RECEIVERS


class Path(NamedTuple):
    """All of it."""

    label: str  #: the NIC's, "web1/0"
    device: str
    mode: str
    way: str  #: "from": the guest sends it; "to": it comes to the node for the guest
    frame: str  #: in words
    bytes: str  #: the frame itself, hexadecimal
    steps: tuple[Step, ...]
    ends: tuple[str, ...]  #: where it arrives, leaves the node, or is dropped
    untold: tuple[str, ...]  #: what could not be told on the way: the rest holds if that lets it pass
    arrivals: tuple[Arrival, ...]  #: where it arrives, of ``ends`` what is not the end of it


class Trail:
    """A path that is being walked."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.ends: list[str] = []
        self.untold: list[str] = []
        self.arrivals: list[Arrival] = []

    def passes(self, at: str, meets: str, does: str, whose: str = KERNEL) -> None:
        self.steps.append(Step(at, meets, does, whose, PASSES))

    def drops(self, at: str, meets: str, does: str, whose: str = KERNEL) -> None:
        """It ends here, and nobody gets it."""
        self.steps.append(Step(at, meets, does, whose, DROPS))
        self.ends.append(f"dropped at {at}: {does}")

    def arrives(self, at: str, meets: str, does: str, end: str, whose: str = KERNEL) -> None:
        """It ends here, and somebody has it: ``end`` says who."""
        self.steps.append(Step(at, meets, does, whose, ENDS))
        self.ends.append(end)

    def taken(self, at: str, meets: str, does: str, device: str, whose: str = KERNEL) -> None:
        """Note that the node itself takes it from ``device``."""
        self.arrives(at, meets, does, f"the node itself, at {device}", whose)
        self.arrivals.append(Arrival(device, NODE))

    def answered(self, at: str, meets: str, asked: str, device: str, whose: str = KERNEL) -> None:
        """Note that the node answers for the address ``asked``."""
        self.arrives(at, meets, "the node answers", f"the node answers for {asked}, at {device}", whose)
        self.arrivals.append(Arrival(device, ANSWERED))

    def doubt(self, at: str, meets: str, does: str, whose: str = FOREIGN) -> None:
        """Nobody here can tell; the walk goes on as if it let the frame pass."""
        self.steps.append(Step(at, meets, does, whose, UNTOLD))
        self.untold.append(f"{meets}: {does}")

    def lost(self, at: str, meets: str, does: str, whose: str = FOREIGN) -> None:
        """Nobody here can tell, and how it goes on depends on it."""
        self.doubt(at, meets, does, whose)
        self.ends.append(f"not known beyond {at}")
