"""What an operation is: one change to the host, as a value.

An operation is a NamedTuple (its fields, and a class over them with what it does) of plain JSON values and tuples of them. Fields
named in ``CHOSEN`` are filled in by ``resolve`` from what the host is like before the first change; the others are the intent, which
the planner wrote. It never calls the host: it reads a View and returns requests.
"""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from runtime.errors import HostRefused, NetcommonError
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, ClassVar

    from netcommon.effects.base import Effect
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: What resolve found in the place of a thing that other NICs, or the administrator, may own.
ABSENT, OURS, FOREIGN = "absent", "ours", "foreign"

#: Values that fields of several kinds are limited to (Operation.VALUES).
FINDINGS: frozenset[object] = frozenset({ABSENT, OURS, FOREIGN})
IP_FAMILIES: frozenset[object] = frozenset({AF_INET, AF_INET6})

WAITS = "waits_for"  #: the key of a stored operation that waits: for what, in words


class Owned(NamedTuple):
    """One thing on the host that bears our mark: its identity, for comparison with the records, and how to remove it."""

    identity: str
    text: str
    requests: tuple[Request, ...]
    owner: str = ""  #: the NIC's UUID where the mark says it
    device: str = ""  #: the NIC's device it belongs to, "" where that is gone or the mark does not say
    shared: tuple[str, ...] = ()  #: the keys by which NICs claim it, as of Operation.shared
    detached: bool = False  #: it is somebody's again as soon as ``device`` is there again
    of_node: bool = False  #: it is the node's own, and of no NIC
    named: bool = False  #: it is for whichever device is called ``device``, which may be another one than it was made for


class Operation(Protocol):
    """One change to the host that can be applied, verified, reverted, and written to JSON and read back.

    KIND        its name, in records and wherever people meet it; it stays readable for ever
    REPAIRED    what of a NIC it is, in words: [repair] of the settings has a row for each kind. Not of an extension's
    MIGRATION   why it is done when it is on the target of a migration (docs/migration.md): at once, or after, where ``exclusive`` says
                that it may hold on one node only. Not of an extension's
    CHOSEN      fields that ``resolve`` fills in
    BEFORE      those of CHOSEN that say what was there before our first change
    VALUES      fields that take few values only, with these: a record with another one is not believed
    """

    KIND: ClassVar[str]
    REPAIRED: ClassVar[str] = ""
    MIGRATION: ClassVar[str] = ""
    CHOSEN: ClassVar[frozenset[str]]
    BEFORE: ClassVar[frozenset[str]]
    VALUES: ClassVar[tuple[tuple[str, frozenset[object]], ...]] = ()

    def _asdict(self) -> dict[str, Any]: ...

    def shared(self) -> tuple[str, ...]:
        """The shared keys: what another NIC may claim too. Known before resolve, up to an "@"; none by default.

        Two NICs share what has a key in common and the same ``identity``.
        """
        return ()

    def locked(self) -> tuple[str, ...]:
        """Name what no two NICs may look for and take at a time: the shared keys by default, and what the last one to come has."""
        return self.shared()

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

    def marks(self) -> bool:
        """Tell whether it is our mark on the device, which a site may not want there (the setting tap_alias)."""
        return False

    def confines(self) -> str:
        """Name what it keeps the guest to, such as its addresses; "", the default, where it keeps the guest to nothing.

        While it cannot be put back the NIC's device is not put where its frames go, nor taken up. Two operations of one name decide alike,
        each for other frames, or in another place that the same frames pass.
        """
        return ""

    def firmer(self, before: Operation) -> bool:
        """Tell whether it refuses all that ``before`` refuses, in whose place it comes, and perhaps more. Not by default."""
        return False

    def effective(self, view: View) -> Operation:
        """Give it as it counts here, for ``confines`` and ``firmer``: a setting of all devices may outdo it. By default as it is."""
        return self

    def anywhere(self) -> Operation:
        """It again, without what it says of the network that the NIC's device is in, such as VLANs. By default as it is."""
        return self

    def joins(self) -> bool:
        """Tell whether it puts the NIC's device where its frames go: into a bridge or a switch. Not by default."""
        return False

    def unbroken(self) -> bool:
        """Tell whether it decides where frames go, and so must stand whenever the device is up. Not by default.

        It is applied before the device comes up and undone after that has gone down; where another one comes in its stead while the
        device is up, that comes first.
        """
        return False

    def delivers(self) -> bool:
        """Tell whether it leads to a port that gets no other frames: it comes before what keeps those off. Not by default."""
        return False

    def opens(self) -> bool:
        """Tell whether it takes the NIC's device up. Not by default."""
        return False

    def put_back(self, view: View, made: Sequence[Operation]) -> Operation:
        """Give what is made again where a change that did not hold has ``made`` something else in its place: itself, by default."""
        return self

    def replugs(self) -> bool:
        """Tell whether the device is down while it comes in another's stead: between, frames go where neither says. Not by default."""
        return False

    def of_port(self) -> bool:
        """Tell whether it ends when the device leaves its bridge, and so is made anew when that comes back. Not by default."""
        return False

    def one_of_device(self) -> bool:
        """Tell whether a device has one at most: what is left under an earlier name of the device goes before it comes. Not by default."""
        return False

    def network(self) -> tuple[object, ...]:
        """In which network the NIC's device is by it: a bridge, VLANs, a routing table. By default nothing. Known after resolve."""
        return ()

    def of_guest(self) -> bool:
        """Tell whether it is where the guest is: of a device that the NIC has left it is not kept. By default what is ``exclusive``."""
        return self.exclusive()

    def leads_to(self) -> tuple[object, ...]:
        """Family, routing table and destination of what leads to the guest; by default nothing. Known after resolve."""
        return ()

    def of_neighbours(self) -> bool:
        """Tell whether the guest knows it by its neighbour cache: changed while it runs, the guest must be told. Not by default."""
        return False

    def running(self, view: View) -> Operation:
        """Give it with what stands of it for a guest that runs already, which adopt takes over and a roll-back leaves as it was."""
        return self

    def taken_over(self, view: View) -> Operation:
        """It again, as if it had been ours from the start, where Ganeti's script has done it on a new device. By default as it is."""
        return self

    def taking_over(self, view: View, before: Operation) -> Sequence[Request]:
        """Mark what Ganeti's script has made as ours. ``before``: it, before ``taken_over``, or the same again. Nothing by default."""
        return ()

    def unplugged(self) -> Operation | None:
        """Give what takes the device out of its network before it is made fit for another; None, the default: nothing has to."""
        return None

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

    def retained(self, like: Operation, earlier: Iterable[Operation]) -> Operation:
        """Give it, just resolved, with what a guest that runs is not to lose of ``like``, which asked for the same; itself, by default.

        ``earlier``: all that is on record.
        """
        return self

    def of_running(self) -> Operation:
        """Give it, just resolved, with what a guest is not to lose that runs before anything of it is on record; itself, by default."""
        return self

    def inherited(self) -> Operation:
        """It again, after it was told what an earlier one had found before our first change (BEFORE)."""
        return self

    def apply(self) -> Sequence[Request]:
        """What makes it hold. Idempotent."""
        ...

    def differs(self, view: View) -> str:
        """What does not hold of it now, in words; "" if all of it does."""
        ...

    def outgrown(self, view: View, ours: Callable[[], Collection[str]]) -> Operation:
        """Give it as a mend makes it where its network takes more by now than it gives the guest; itself, by default.

        It costs a look at the others in that network, so hooks do not ask. ``ours``: gives the names of the devices that are on record.
        """
        return self

    def idle(self, view: View) -> str:
        """What of it has no effect on this host though it stands as it was made, in words; "", the default: all of it has."""
        return ""

    def hindered(self, view: View) -> str:
        """Tell what of somebody else's is in its place, and what helps, where all else of it is there; "", the default: nothing is."""
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

    def sentence(self) -> str:
        """Return what it does as a sentence for people who do not know the commands, for ``explain``; by default the command."""
        return f"The site's extension {self.KIND.partition('/')[0]} does: {self.describe()}"

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
    (netcommon.lifecycle.execute).
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

    def about(self) -> str:
        return self.operation.about()

    def renamed(self, before: str, now: str) -> Operation:
        return self._replace(operation=self.operation.renamed(before, now))

    def shared(self) -> tuple[str, ...]:
        return self.operation.shared()

    def locked(self) -> tuple[str, ...]:
        return self.operation.locked()

    def exclusive(self) -> bool:
        return self.operation.exclusive()

    def one_of_device(self) -> bool:
        return self.operation.one_of_device()

    def of_guest(self) -> bool:
        return self.operation.of_guest()

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

    def sentence(self) -> str:
        return self.operation.sentence()

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


def _text(value: object) -> bool:
    return type(value) is str


def _number(value: object) -> bool:
    """Rates in bits a second are the largest."""
    return type(value) is int and -1 <= value < 1 << 63


def _truth(value: object) -> bool:
    return type(value) is bool


def _each(one: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and all(map(one, value))


def _row(*of: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and len(value) == len(of) and all(kind(one) for kind, one in zip(of, value, strict=True))


def _nothing(value: object) -> bool:
    """Refuse every value of a type that no record holds: an extension may declare one (``unstorable``)."""
    return False


#: What a field of each declared type may hold. A new type in an operation needs a line here (a test says so).
TYPES: dict[str, Callable[[object], bool]] = {
    "str": _text,
    "int": _number,
    "bool": _truth,
    "int | None": lambda value: value is None or _number(value),
    "str | int | bool": lambda value: _text(value) or _number(value) or _truth(value),
    "tuple[int, ...]": _each(_number),
    "tuple[str, ...]": _each(_text),
    "tuple[tuple[str, str], ...]": _each(_row(_text, _text)),
    "tuple[tuple[str, tuple[str, ...]], ...]": _each(_row(_text, _each(_text))),
    "tuple[tuple[int, bool, bool], ...]": _each(_row(_number, _truth, _truth)),
}


def declared(made: type[Operation]) -> dict[str, str]:
    """The operation's fields and their types, as written in its source."""
    if made not in _DECLARED:
        _DECLARED[made] = _declared(made)
    return _DECLARED[made]


#: What ``declared`` has found: records of thousands of NICs have a dozen kinds between them.
_DECLARED: dict[type[Operation], dict[str, str]] = {}


def _declared(made: type[Operation]) -> dict[str, str]:
    fields: dict[str, Any] = {}
    for each in reversed(made.__mro__):
        if "_fields" in vars(each):
            fields = vars(each).get("__annotations__", {})
    # as text, also where the module of an extension evaluates its annotations
    texts = {name: getattr(kind, "__forward_arg__", kind) for name, kind in fields.items()}
    return {name: kind.__name__ if kind.__class__ is type else str(kind) for name, kind in texts.items()}


def unstorable(made: type[Operation]) -> str:
    """The first field of an operation whose declared type no record can hold, and its type; "" if all can be held."""
    return next((f"{name}: {kind}" for name, kind in declared(made).items() if kind not in TYPES), "")


def wrong(made: type[Operation], values: Mapping[str, object]) -> str:
    """The first of ``values`` that no operation of the kind ``made`` can hold, or that it has no field for; "" if all are good."""
    rules = _RULES.get(made)
    if rules is None:
        few_of = dict(made.VALUES)
        rules = _RULES[made] = {name: (TYPES.get(kind, _nothing), few_of.get(name)) for name, kind in declared(made).items()}
    for name, value in values.items():
        if name not in rules:
            return name
        good, few = rules[name]
        if not good(value) or (few is not None and value not in few):
            return name
    return ""


#: What ``wrong`` goes by: for each field what is good for its type, and the few values that it takes, if they are few.
_RULES: dict[type[Operation], dict[str, tuple[Callable[[object], bool], frozenset[object] | None]]] = {}
