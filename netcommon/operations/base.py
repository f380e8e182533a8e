"""What an operation is: one change to the host, as a value.

An operation is a NamedTuple (its fields, and a class over them with what it does) of plain JSON values and tuples of them. Fields
named in ``CHOSEN`` are filled in by ``resolve`` from what the host is like before the first change; the others are the intent, which
the planner wrote. It never calls the host: it reads a View and returns requests.
"""

from __future__ import annotations

from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, ClassVar

    from netcommon.effects.base import Effect
    from netcommon.host.base import View
    from netcommon.host.requests import Request

#: What resolve found in the place of a thing that other NICs, or the administrator, may own.
ABSENT, OURS, FOREIGN = "absent", "ours", "foreign"

#: The key of a stored operation that waits: for what, in words.
WAITS = "waits_for"


class Owned(NamedTuple):
    """One thing on the host that bears our mark: its identity, for comparison with the records, and how to remove it."""

    identity: str
    text: str
    requests: tuple[Request, ...]
    owner: str = ""  #: the NIC's UUID where the mark says it
    device: str = ""  #: the NIC's device it belongs to, "" where that is gone or the mark does not say
    shared: tuple[str, ...] = ()  #: the keys by which NICs claim it, as of Operation.shared
    detached: bool = False  #: it is somebody's again as soon as ``device`` is there again


class Operation(Protocol):
    """One change to the host that can be applied, verified, reverted, and written to JSON and read back."""

    KIND: ClassVar[str]
    CHOSEN: ClassVar[frozenset[str]]
    BEFORE: ClassVar[frozenset[str]]  #: those of CHOSEN that say what was there before our first change

    def _asdict(self) -> dict[str, Any]: ...

    def shared(self) -> tuple[str, ...]:
        """The shared keys: what another NIC may claim too. Known before resolve, up to an "@"; none by default."""
        return ()

    def exclusive(self) -> bool:
        """Whether it may hold on one node only: on a migration's target it is owed until the guest is there. Not by default.

        Known before resolve. See docs/migration.md.
        """
        return False

    def common(self) -> bool:
        """Whether it is the same, but for the name of the device, whichever NIC has it: then one look at it is enough. Not by default."""
        return False

    def lets_in(self) -> bool:
        """Tell whether it lets the guest's frames in: not while something else of the NIC cannot be put back. Not by default."""
        return False

    def unmarked(self) -> bool:
        """Whether the records alone tell that what it makes is ours: it stays while one is in quarantine. Not by default."""
        return False

    def unbroken(self) -> bool:
        """Tell whether it decides where frames go, and so must stand whenever the device is up. Not by default.

        It is applied before the device comes up and undone after that has gone down; where another one comes in its stead while the
        device is up, that comes first.
        """
        return False

    def waits(self, view: View) -> bool:
        """Tell whether what it stands on, as it is on record, is only gone for now.

        Then it stays on record, and no up or repair looks for another place. Not by default.
        """
        return False

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        """The operation with what was found on the host: none (not wanted on this host), one, or one per uplink.

        ``Waiting`` where the host has nothing to do it on just now, such as a bridge without an uplink.

        Raises HostRefused where it cannot be done; nothing was changed.
        """
        ...

    def about(self) -> str:
        """The name of the NIC's device by which it was resolved, "" where it has none."""
        device: str = getattr(self, "device", "")
        return device

    def renamed(self, before: str, now: str) -> Operation:
        """It again, after the NIC's device, which was called ``before`` when it was resolved, has got the name ``now``."""
        return replaced(self, device=now) if self.about() == before else self

    def inherited(self) -> Operation:
        """It again, after it was told what an earlier one had found before our first change (BEFORE)."""
        return self

    def apply(self) -> Sequence[Request]:
        """What makes it hold. Idempotent."""
        ...

    def differs(self, view: View) -> str:
        """What does not hold of it now, in words; "" if all of it does."""
        ...

    def idle(self, view: View) -> str:
        """What of it has no effect on this host though it stands as it was made, in words; "", the default: all of it has."""
        return ""

    def revert(self, view: View) -> Sequence[Request]:
        """What undoes it: nothing where it was never applied, where it is not ours, or where its device is gone. Idempotent."""
        ...

    def identity(self) -> str:
        """Equal to the ``Owned.identity`` of what it makes; "", the default, where nothing of it can be found by a mark."""
        return ""

    def place(self) -> str:
        """What of the host it sets, by the host's own names: one of another intent for the same place takes its place over.

        Known after resolve; "", the default, where nothing else can set it.
        """
        return ""

    def describe(self) -> str:
        """What it does, as an administrator would type it."""
        ...

    def undo(self) -> str:
        """What undoes it, in the same way: for a plan, which has no host to ask."""
        ...

    def effects(self) -> Sequence[Effect]:
        """Who is told after it was applied or reverted, such as the daemon that reads a file. Nobody by default."""
        return ()

    def counters(self, view: View) -> Sequence[tuple[str, int]]:
        """What it has counted on the host, such as frames dropped by reason: name and number, for ``show``. Nothing by default."""
        return ()

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        """Everything of its kind on the host that bears our mark; nothing by default."""
        return ()


class WaitingFields(NamedTuple):
    """The fields of Waiting."""

    operation: Operation
    why: str  #: what it waits for: "an uplink of br0"


class Waiting(WaitingFields, Operation):
    """An operation that the host has nothing to do on just now: it stays on record as it was planned, until that is there.

    It stands in the place of an operation of any kind, and changes nothing on the host. When what it waits for comes, it differs, and a
    repair resolves it. An operation that was done before stays on record as it is instead, and does not differ for want of its object
    (netcommon.lifecycle.steps).
    """

    __slots__ = ()
    CHOSEN = frozenset({WAITS})
    BEFORE = frozenset[str]()

    @property
    def KIND(self) -> str:  # type: ignore[override]  # noqa: N802 - that of the operation, which a class of its own would hide
        return self.operation.KIND

    def _asdict(self) -> dict[str, Any]:
        chosen = self.operation.CHOSEN
        return {name: value for name, value in self.operation._asdict().items() if name not in chosen} | {WAITS: self.why}

    def shared(self) -> tuple[str, ...]:
        return self.operation.shared()

    def exclusive(self) -> bool:
        return self.operation.exclusive()

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        return self.operation.resolve(view, warnings)

    def apply(self) -> Sequence[Request]:
        return []

    def differs(self, view: View) -> str:
        try:
            found = self.operation.resolve(view, [])
        except HostRefused as error:
            return str(error)
        return "" if all(isinstance(one, Waiting) for one in found) else f"{self.why} is there now"

    def idle(self, view: View) -> str:
        return f"it waits for {self.why}"

    def revert(self, view: View) -> Sequence[Request]:
        return []

    def describe(self) -> str:
        return self.operation.describe()

    def undo(self) -> str:
        return self.operation.undo()


def before(ifindex: int, was: object) -> str:
    """What was there before our first change, for ``undo``; only a resolved operation knows, and its device's index."""
    return (str(was) or "''") if ifindex else "<as it was>"


def replaced(operation: Operation, **changes: Any) -> Operation:
    """``operation`` with some fields changed; every operation is a NamedTuple."""
    made: Operation = cast("Any", operation)._replace(**changes)
    return made


def intent(operation: Operation) -> tuple[object, ...]:
    """The operation's kind and what the planner wrote of it, for comparing plans."""
    fields = operation._asdict()
    return (operation.KIND, *(value for name, value in fields.items() if name not in operation.CHOSEN))


def inherit(operation: Operation, earlier: Operation) -> Operation:
    """``operation``, resolved anew, with what ``earlier``, its like in the NIC's record, had found before our first change."""
    before = earlier._asdict()
    kept = {name: before[name] for name in operation.BEFORE if name in before}  # one of another kind may have less to tell
    if kept.get("found") == FOREIGN:
        del kept["found"]  # it may have gone since: what we then make is ours
    if before.get("master") != operation._asdict().get("master"):
        kept.pop("found", None)  # on a bridge that was made anew nothing is ours yet
    return replaced(operation, **kept).inherited()


def orphan(operation: Operation) -> Operation:
    """``operation`` for a device that is certainly gone (an earlier boot): no interface index of its can match any more."""
    return replaced(operation, ifindex=-1) if "ifindex" in operation._asdict() else operation


def to_json(operation: Operation) -> dict[str, object]:
    """The operation as a JSON object; its kind first."""
    return {"kind": operation.KIND, **operation._asdict()}


class UnknownKind(NetcommonError):
    """A record holds an operation of a kind this version does not know."""


def frozen(value: object) -> object:
    """JSON lists as the tuples that operations are made of."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def fields_of(stored: Mapping[str, object]) -> dict[str, Any]:
    """The fields of a stored operation, lists as tuples."""
    return {name: frozen(value) if type(value) is list else value for name, value in stored.items() if name != "kind"}
