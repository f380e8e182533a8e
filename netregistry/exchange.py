"""Write a registry as lines of JSON, and say by which requests it is made of such lines again: pure, without a store or a socket.

The first line says what it is; each other one is a network, a node, a NIC, a reservation or the settings, as they are wanted. What is
worked out of these (who has which address) or is of the past (history, quarantine, what nodes have seen) is in a backup alone.

Nothing gets round the rules: what a Ganeti cluster or a node decides is asked for as that one, and everything else as the operator.
What is changed later is not held against NICs that are there already, so NICs come before it: what their networks reserve, and whose NICs
these are for. In place of a node that was forgotten, or has NICs of clusters that it was in before, one joins for as long as they are made.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from netregistry.model.claim import Claim
from netregistry.model.codec import Invalid, read, write
from netregistry.model.history import Settings
from netregistry.model.kinds import REGISTRY
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from netregistry.request import ANY
from netregistry.rules import masters
from netregistry.rules.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from netregistry.view import View

VERSION = 1  #: of the lines
LARGEST = 100  #: things that one batch may change, by ``Step.size``
MOST_PARTS = 50  #: of one batch
#: What the registry says of an object by itself.
OWN = frozenset(("made", "joined", "epoch", "master", "imported"))
KINDS: dict[str, Any] = {"settings": Settings, "network": Network, "node": Node, "nic": Nic, "reservation": Reservation}
OF_OPERATOR = ""  #: in place of a role
FORGOTTEN = "forgotten-"  #: before its UUID, the name of a node as long as its NICs are made
#: Fields of a network that are not held against NICs which it has: its operator's, and its Ganeti cluster's.
LATE = frozenset(("owners", "reserved"))
LATE_GANETI = frozenset(("reserved", "barred", "gateway", "gateway6"))


class Line(NamedTuple):
    """One line. ``key``: of a reservation, which claim it is of; ``value``: of the first line, the version and the revision."""

    kind: Literal["registry", "settings", "network", "node", "nic", "reservation"]
    value: Any
    key: str = ""

    @property
    def name(self) -> tuple[str, str]:
        """What the line is about."""
        return self.kind, self.key or (self.value.uuid if hasattr(self.value, "uuid") else "")


class Step(NamedTuple):
    """One request. ``turn``: those of a lower one come first; ``role``: as whom; ``size``: how many things change at most."""

    turn: float
    role: str
    action: str
    target: str
    body: dict[str, Any]
    size: int
    line: int  #: its number, from 1 on

    @property
    def part(self) -> dict[str, Any]:
        """Give it as a part of a batch."""
        return {"action": self.action, "target": self.target, "body": self.body, "match": ANY}


# -- to lines


def lines(view: View) -> list[Line]:
    """Give all lines. The objects are the view's: they do not change."""
    found = [Line("registry", {"version": VERSION, "revision": f"{view.epoch}:{view.revision}"}), Line("settings", view.settings)]
    found += [Line("network", view.get(key)) for key in sorted(view.all("networks"))]
    found += [Line("node", view.get(key)) for key in sorted(view.all("nodes"))]
    nics: list[Nic] = sorted(view.all("nics").values(), key=lambda nic: (nic.made, nic.uuid))
    found += [Line("nic", nic) for nic in nics]
    for kind in ("addresses", "macs"):
        claims: list[tuple[str, Claim]] = sorted((key, claim) for key, claim in view.all(kind).items() if claim.reserved)
        found += [Line("reservation", Reservation(claim.reserved, claim.cluster, claim.instance), key) for key, claim in claims]
    return found


def encoded(line: Line) -> bytes:
    """Give a line as it is written."""
    said = {"kind": line.kind, **({"key": line.key} if line.key else {}), "value": write(line.value)}
    return json.dumps(said, separators=(",", ":")).encode("ascii") + b"\n"


# -- from lines


def decoded(data: Iterable[bytes]) -> Iterator[tuple[int, Line]]:
    """Read lines, all but the first, with their numbers. Raises Invalid, which names the line."""
    number = 0
    for number, text in enumerate(data, 1):
        where = f"line {number}"
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            raise Invalid(where, text[:80].decode("latin-1"), "one document of JSON") from None
        if not isinstance(said, dict) or not {"kind", "value"} <= set(said) <= {"kind", "value", "key"}:
            raise Invalid(where, said, 'an object with "kind", "value" and, of a reservation, "key"')
        kind, value, key = said["kind"], said["value"], said.get("key", "")
        if number == 1:
            if kind != "registry" or not isinstance(value, dict) or value.get("version") != VERSION:
                raise Invalid(where, said, f'what netcommon registry export writes first: "registry", of version {VERSION}')
            continue
        if kind not in KINDS or not isinstance(key, str) or bool(key) != (kind == "reservation"):
            raise Invalid(where, kind, f"one of {', '.join(KINDS)}; with a key where it is a reservation")
        yield number, Line(kind, read(KINDS[kind], value, where), key)
    if not number:
        raise Invalid("line 1", "", "what netcommon registry export writes first")


def wanted(line: Line) -> dict[str, Any]:
    """Give what a line wants: all of its value but what the registry says by itself."""
    return {name: value for name, value in write(line.value).items() if name not in OWN}


def asked(wanted_lines: Sequence[tuple[int, Line]], there: Mapping[tuple[str, str], Line]) -> list[Step]:
    """Give all requests by which what lines want is made, in no order. ``there``: what there is, by its name."""
    found = [step for number, line in wanted_lines for step in steps(number, line, there.get(line.name))]
    nodes = {line.value.uuid: line.value for line in there.values() if line.kind == "node"}
    wanted_nodes = {line.value.uuid: (number, line.value) for number, line in wanted_lines if line.kind == "node"}
    of_nodes = {uuid: number for number, line in wanted_lines if (uuid := _node(line))}
    for uuid, number in of_nodes.items():
        now, want = nodes.get(uuid), wanted_nodes.get(uuid)
        adds = [step for step in found if step.role == f"node:{uuid}" and step.action == "nic.add"]
        clusters = list(dict.fromkeys(step.body["cluster"] for step in adds))
        if now is not None and now.name != FORGOTTEN + uuid:
            continue
        if now is None and (not clusters or (want is not None and clusters == [want[1].cluster])):
            continue
        found = [step for step in found if step not in adds and (step.action, step.body.get("uuid")) != ("node.join", uuid)]
        found += _in_place(uuid, number, now, adds, clusters)
        if want is None:
            found.append(Step(11, OF_OPERATOR, "node.forget", uuid, {}, 1, number))
        else:
            found.append(Step(11, OF_OPERATOR, "node.set", uuid, _itself(want[1]), 1, want[0]))
    return found


def _in_place(uuid: str, number: int, now: Node | None, adds: list[Step], clusters: list[str]) -> list[Step]:
    """Give the steps in which one joins in a node's place, unless an import that was cut off has let it (``now``), and makes its NICs.

    A node's NIC is of the cluster that the node is in, so it goes from one to the next.
    """
    found = []
    if now is None:
        body = {"uuid": uuid, "name": FORGOTTEN + uuid, "cluster": clusters[0]}
        found.append(Step(3, OF_OPERATOR, "node.join", "", body, 1, number))
    if clusters in ([], [now.cluster if now is not None else clusters[0]]):
        return found + adds
    parts = 2 * len(clusters)
    for turn in sorted({step.turn for step in adds}):
        for place, cluster in enumerate(clusters):
            here = [step for step in adds if step.turn == turn and step.body["cluster"] == cluster]
            for step in here[:1]:
                found.append(Step(turn + 2 * place / parts, OF_OPERATOR, "node.set", uuid, {"cluster": cluster}, 1, step.line))
            found += [step._replace(turn=turn + (2 * place + 1) / parts) for step in here]
    return found


def _itself(node: Node) -> dict[str, Any]:
    return {name: value for name, value in write(node).items() if name not in OWN and name != "uuid"}


def _node(line: Line) -> str:
    """Give the node that is the master of a line's NIC; "" where none is."""
    who, _, uuid = _role(line.value).partition(":") if line.kind == "nic" else ("", "", "")
    return uuid if who == "node" else ""


def steps(number: int, line: Line, there: Line | None) -> list[Step]:
    """Give the requests by which what a line wants is made. ``there``: the same thing as it is; what is so already is not asked for."""
    now = wanted(there) if there is not None else None
    if now == wanted(line):
        return []
    value, whole = line.value, write(line.value)
    if line.kind == "network":
        return _network(number, value, now)
    if line.kind == "nic":
        return _nic(number, value, now)
    if line.kind == "node":
        return [Step(3, OF_OPERATOR, "node.join", "", _said(value, frozenset(Node._fields) - OWN), 1, number)]
    if line.kind == "settings":
        return [Step(0, OF_OPERATOR, "settings.set", "", whole, 1, number)]
    return [Step(10, OF_OPERATOR, "claim.reserve", line.key, whole, 1, number)]


def batches(todo: Iterable[Step]) -> Iterator[list[Step]]:
    """Give steps in their order, as many together as one request may have; those of one batch have one role."""
    batch: list[Step] = []
    for step in sorted(todo, key=lambda step: (step.turn, step.role, step.line)):
        if batch and (step.role != batch[0].role or len(batch) == MOST_PARTS or sum(each.size for each in batch) + step.size > LARGEST):
            yield batch
            batch = []
        batch.append(step)
    if batch:
        yield batch


def _network(number: int, network: Network, now: dict[str, Any] | None) -> list[Step]:
    fields = frozenset(Network._fields) - OWN
    ganeti = frozenset(("uuid", "cluster", *masters.ALWAYS_GANETI, *network.imported)) & fields
    own = network.master == REGISTRY
    first, late = (fields, LATE) if own else (ganeti, (LATE_GANETI & ganeti) | (LATE - ganeti))
    if now is not None:  # what is said there already is not changed
        late = frozenset(name for name in late if now[name] == write(Network._field_defaults[name]))
    found = _in_two(number, network, now, first - late, fields - first - late, 1, (1, 2, 3))
    if now is not None and any(step.action == "network.add" for step in found):
        return found  # it is another one, which is refused
    for role, names in ((_role(network), late & first), (OF_OPERATOR, late - first)):
        if said := _said(network, names):
            found.append(Step(9, role, "network.set", network.uuid, said, 1, number))
    return found


def _nic(number: int, nic: Nic, now: dict[str, Any] | None) -> list[Step]:
    fields = frozenset(Nic._fields) - OWN
    kind = nic.master.partition(":")[0]
    first = frozenset(("uuid", "cluster", *masters.OF_MASTER[kind])) if kind in masters.OF_MASTER else fields
    if kind == "node":
        first |= masters.ASKED_BY_NODE
    # what the operator has given nobody contended for then: those that contend come behind it
    turns = (4, 5, 6) if "addresses" not in first and nic.addresses else (4, 7, 8)
    return _in_two(number, nic, now, first, fields - first, 2 + len(nic.all_addresses) + nic.primary, turns)


def _in_two(
    number: int,
    value: Network | Nic,
    now: dict[str, Any] | None,
    first: AbstractSet[str],
    rest: AbstractSet[str],
    size: int,
    turns: tuple[int, int, int],
) -> list[Step]:
    """Give the step in which the master makes an object, and the one in which the operator says the rest. ``now``: what there is.

    ``turns``: of the first where the operator is the master, of the first where he is not, and of the second.
    """
    kind, role, found = "network" if isinstance(value, Network) else "nic", _role(value), []
    if now is None or _other(value, now, first):
        body = _said(value, first) | ({"found": True, "cluster": value.cluster} if role and kind == "nic" else {})
        found.append(Step(turns[1 if role else 0], role, f"{kind}.add", "", body, size, number))
    if others := _other(value, now, rest) if now is not None else _said(value, rest):
        found.append(Step(turns[2], OF_OPERATOR, f"{kind}.set", value.uuid, others, size, number))
    return found


def _role(value: Network | Nic) -> str:
    """Give as whom an object's master asks."""
    who, _, name = value.master.partition(":")
    return {"ganeti": f"importer:{name}", "node": f"node:{name}"}.get(who, OF_OPERATOR)


def _said(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Give those fields of an object that do not have their default."""
    often: Mapping[str, Any] = type(value)._field_defaults
    return {name: write(getattr(value, name)) for name in sorted(names) if name not in often or getattr(value, name) != often[name]}


def _other(value: Any, now: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Give those fields of an object that are otherwise now."""
    return {name: said for name in sorted(names) if (said := write(getattr(value, name))) != now[name]}
