"""The faults by name: what each takes, how it begins on a node or at the registry, and how it ends."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.etcd import MOST
from mockcloud.node import POINTS
from mockcloud.registry import Commands
from mockcloud.replaced.sources import Harm, Sources
from mockcloud.sysinfo import TREE
from mockcloud.underlay import MOST_SERVERS, Struck, fenced, forgotten, replaced
from runtime.errors import HostRefused, NetcommonError, NicInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.node import MockNode

LONGEST = 3600.0  #: seconds of a delay
BACKUP = "backup.sqlite"  #: in the cloud's folder


class Parameter(NamedTuple):
    """One parameter. ``choices``: of a text, any where there are none; of a number the least and the most."""

    default: Any
    help: str
    least: float = 0.0
    most: float = 1.0
    choices: tuple[str, ...] = ()


class Fault(NamedTuple):
    """One fault. ``of_node``: it strikes nodes, not the registry; ``ends``: None for one that is over at once; ``stays``: over a boot.

    ``own``: it is done to a registry in this process.
    ``rest``: gives what is left of one that stays when a node has crashed, None for nothing.
    """

    help: str
    takes: Mapping[str, Parameter]
    begins: Callable[[MockCloud, str, Mapping[str, Any]], None]
    ends: Callable[[MockCloud, str], None] | None = None
    of_node: bool = True
    stays: bool = False
    rest: Callable[[MockNode, Mapping[str, Any]], Mapping[str, Any] | None] = lambda _machine, given: given
    own: bool = False


# -- the way to the registry


def _cut(cloud: MockCloud, node: str, given: Mapping[str, Any]) -> None:
    cloud.registry.wire.cut[node] = given["way"]


def _joined(cloud: MockCloud, node: str) -> None:
    cloud.registry.wire.cut.pop(node, None)


def _slow(cloud: MockCloud, _node: str, given: Mapping[str, Any]) -> None:
    cloud.own.wire.slow = given["seconds"]


def _quick(cloud: MockCloud, _node: str) -> None:
    cloud.own.wire.slow = 0.0


def _copied(cloud: MockCloud, _node: str, given: Mapping[str, Any]) -> None:
    cloud.own.wire.copies = given["share"]


def _once(cloud: MockCloud, _node: str) -> None:
    cloud.own.wire.copies = 0.0


# -- a node


def _disturbed(cloud: MockCloud, node: str, given: Mapping[str, Any]) -> None:
    sources = cloud.nodes[node].sources
    if not isinstance(sources, Sources):
        raise HostRefused(f"{cloud.nodes[node].name} hears the running kernel, which loses no event", f"a node of depth {TREE}")
    sources.harm = Harm(given["lost"], given["repeated"], given["late"])


def _undisturbed(cloud: MockCloud, node: str) -> None:
    if node in cloud.nodes and isinstance(sources := cloud.nodes[node].sources, Sources):
        sources.harm = None


def _hook_ends(cloud: MockCloud, node: str, given: Mapping[str, Any]) -> None:
    cloud.nodes[node].end_hook(given["request"])


def _hooks_live(cloud: MockCloud, node: str) -> None:
    if node in cloud.nodes:
        cloud.nodes[node].end_hook(0)


def _agent_killed(cloud: MockCloud, node: str, given: Mapping[str, Any]) -> None:
    cloud.nodes[node].crash_at(given["point"], given["number"])


def _agent_starts(cloud: MockCloud, node: str) -> None:
    if node in cloud.nodes:
        cloud.nodes[node].revive()


def _boots(cloud: MockCloud, node: str) -> None:
    if node in cloud.off:
        cloud.boot(node)


def _replaced(cloud: MockCloud, node: str) -> None:
    if node in cloud.off:
        replaced(cloud, node)


def _jumps(cloud: MockCloud, node: str, given: Mapping[str, Any]) -> None:
    cloud.nodes[node].loop.ahead = given["seconds"]


def _is_right(cloud: MockCloud, node: str) -> None:
    if node in cloud.nodes:
        cloud.nodes[node].loop.ahead = 0.0


def _is_full(cloud: MockCloud, node: str, _given: Mapping[str, Any]) -> None:
    cloud.nodes[node].full = True


def _has_room(cloud: MockCloud, node: str) -> None:
    if node in cloud.nodes:
        cloud.nodes[node].full = False


def _older(cloud: MockCloud, node: str, given: Mapping[str, Any]) -> None:
    cloud.own.wire.lacks[node] = frozenset([given["lacks"]])
    _another(cloud, node)


def _newer(cloud: MockCloud, node: str) -> None:
    cloud.own.wire.lacks.pop(node, None)
    _another(cloud, node)


def _another(cloud: MockCloud, node: str) -> None:
    """Let another agent run where one does; one that was killed stays so."""
    if node in cloud.nodes and cloud.nodes[node].alive:
        cloud.nodes[node].kill()
        cloud.nodes[node].revive()


# -- the registry


def _stops(cloud: MockCloud, _node: str, _given: Mapping[str, Any]) -> None:
    cloud.registry.halt()


def _starts(cloud: MockCloud, _node: str) -> None:
    cloud.registry.again()


def commands(given: Mapping[str, Any]) -> Commands:
    """Give the commands that a fault of an etcd has. Raises NicInvalid where one of the two is missing or cannot be split."""
    made = {}
    for name, other in (("lose", "back"), ("back", "lose")):
        said = given.get(name, "")
        try:
            made[name] = tuple(shlex.split(said))
        except ValueError:
            raise NicInvalid(name, said, "a program and its arguments, with quotes that end") from None
        if given.get(other) and not made[name]:
            raise NicInvalid(name, said, f"a program and its arguments, as {other} has")
    return Commands(**made)


def _lose(cloud: MockCloud, _node: str, given: Mapping[str, Any]) -> None:
    """Lose members of the registry's etcd. Raises NicInvalid, HostRefused."""
    cloud.registry.lose(given["members"], given["how"] == "frozen", commands(given))


def _come_back(cloud: MockCloud, _node: str) -> None:
    cloud.registry.back()


def _copy(cloud: MockCloud, _node: str, _given: Mapping[str, Any]) -> None:
    cloud.own.backup(f"{cloud.root}/{BACKUP}")


def _restored(cloud: MockCloud, _node: str, _given: Mapping[str, Any]) -> None:
    own = cloud.own  # of a registry that is another process no copy can be made either
    if not os.path.exists(f"{cloud.root}/{BACKUP}"):
        raise HostRefused("there is no copy", "backup makes one")
    own.again()
    wanted = {each["nic"]["uuid"]: each["nic"] for each in cloud.registry.client().all("nics", belongs="instance")}
    networks = {each["network"]["uuid"]: each["network"] for each in cloud.registry.client().all("networks")}
    cloud.own.restore(f"{cloud.root}/{BACKUP}")
    cloud.restored, cloud.lost, cloud.networks_lost = True, {**cloud.lost, **wanted}, {**cloud.networks_lost, **networks}


# -- name servers


def _away(cloud: MockCloud, _node: str, given: Mapping[str, Any]) -> None:
    if cloud.own.names is None:
        raise HostRefused("there is no name server", "one is there with an underlay")
    servers = list(cloud.own.names.servers.values())
    for each in servers[: given["servers"]]:
        each.away = True
    for each in servers:
        each.lost += given["lost"]


def _reached(cloud: MockCloud, _node: str) -> None:
    for each in cloud.own.names.servers.values() if cloud.own.names is not None else ():
        each.away, each.lost = False, 0


WAYS, ABILITIES = ("both", "answers", "requests"), ("watch", "nic.add", "nic.set", "nic.delete")
FAULTS: dict[str, Fault] = {
    "partition": Fault(
        "Cut the way between nodes and the registry.",
        {"way": Parameter("both", "What does not arrive: the registry's answers, or the nodes' requests.", choices=WAYS)},
        _cut,
        _joined,
    ),
    "slow": Fault(
        "Let the registry be slow.",
        {"seconds": Parameter(5.0, "By how much each way takes longer, at most.", 0.0, LONGEST)},
        _slow,
        _quick,
        False,
        own=True,
    ),
    "copies": Fault(
        "Let copies of requests come to the registry late.",
        {"share": Parameter(0.5, "Of how many requests one comes.")},
        _copied,
        _once,
        False,
        own=True,
    ),
    "events": Fault(
        "Let events of the kernel get lost on their way to the agent, come twice, or late.",
        {
            "lost": Parameter(0.2, "The share of those that are lost."),
            "repeated": Parameter(0.2, "The share of those that come twice."),
            "late": Parameter(0.2, "The share of those that others overtake."),
        },
        _disturbed,
        _undisturbed,
        stays=True,
    ),
    "hook": Fault(
        "Kill a hook.",
        {"request": Parameter(3, "Before which request of hooks to the host, from now on.", 1, 10_000)},
        _hook_ends,
        _hooks_live,
        stays=True,
        rest=lambda machine, _given: {"request": machine.hook_ends} if machine.hook_ends else None,
    ),
    "agent": Fault(
        "Kill the agent, and start it anew.",
        {
            "point": Parameter("now", "Where it is killed.", choices=POINTS),
            "number": Parameter(1, "When it gets there for which time from now on.", 1, 10_000),
        },
        _agent_killed,
        _agent_starts,
    ),
    "node": Fault("Let nodes crash, and boot.", {}, lambda cloud, node, _given: cloud.crash(node), _boots),
    "fence": Fault(
        "Let nodes crash, which an operator says to be off, and boot.", {}, lambda cloud, node, _given: fenced(cloud, node), _boots
    ),
    "forget": Fault(
        "Let nodes be lost for good and be forgotten, and others be in their place.",
        {},
        lambda cloud, node, _given: forgotten(cloud, node),
        _replaced,
    ),
    "clock": Fault(
        "Let the date of nodes be wrong.",
        {"seconds": Parameter(3600.0, "By how much; negative: in the past.", -86400.0 * 365, 86400.0 * 365)},
        _jumps,
        _is_right,
        stays=True,
    ),
    "disk": Fault("Let the disks of nodes be full.", {}, _is_full, _has_room, stays=True),
    "older": Fault(
        "Let nodes be of an older version, which cannot do something.",
        {"lacks": Parameter("watch", "What it cannot do, by the registry's name of that.", choices=ABILITIES)},
        _older,
        _newer,
        own=True,
    ),
    "registry": Fault("Stop the registry, and start it again.", {}, _stops, _starts, False),
    "etcd": Fault(
        "Let members of the registry's etcd be lost, and come back.",
        {
            "members": Parameter(1, "How many, the one that leads first.", 1, MOST),
            "how": Parameter("killed", "They are killed, or stand still.", choices=("killed", "frozen")),
            "lose": Parameter("", "The program, with its arguments, that ends a member of an etcd that is not the mock cloud's."),
            "back": Parameter("", "The program, with its arguments, that starts that member again."),
        },
        _lose,
        _come_back,
        False,
    ),
    "names": Fault(
        "Let name servers of the underlay's zone be out of reach.",
        {
            "servers": Parameter(1, "How many.", 0, MOST_SERVERS),
            "lost": Parameter(0, "How many of the next answers are lost, though what was asked for is done.", 0, 100),
        },
        _away,
        _reached,
        False,
        own=True,
    ),
    "backup": Fault("Copy the registry.", {}, _copy, None, False, own=True),
    "restore": Fault("Put the latest copy in the place of the registry.", {}, _restored, None, False, own=True),
}


class Faults:
    """The faults that there are at the moment. ``note`` is told of each that begins or ends."""

    def __init__(self, cloud: MockCloud, note: Callable[[str], None]) -> None:
        self._cloud, self._note = cloud, note
        self._loop = cloud.scheduler.loop()
        #: By fault and node: which of them is the latest, and its parameters.
        self._now: dict[tuple[str, str], tuple[int, Mapping[str, Any]]] = {}
        self._count = 0
        self.impossible: list[NetcommonError] = []  #: why faults could not begin
        self.half: list[NetcommonError] = []  #: why faults have begun of which not all could be done
        self.begun = 0  #: how often one has

    def strike(self, name: str, nodes: Iterable[str], given: Mapping[str, Any], lasts: float) -> None:
        """Let a fault begin on nodes ("" stands for the registry), and end after ``lasts`` seconds."""
        fault = FAULTS[name]
        wanted = {each: parameter.default for each, parameter in fault.takes.items()} | dict(given)
        said = " ".join(f"{each}={value}" for each, value in wanted.items() if value != "")
        for node in nodes if fault.of_node else ("",):
            where = self._name(node)
            if fault.of_node and node not in self._cloud.nodes:
                self._note(f"{name} of {where} cannot be: it has crashed")
                continue
            try:
                fault.begins(self._cloud, node, wanted)
            except Struck as error:
                self._note(f"{name} of {where}: {error}")
                self.half.append(Struck(f"{name} of {where}: {error}"))
            except NetcommonError as error:
                self._note(f"{name} of {where} cannot be: {error}")
                self.impossible.append(error)
                continue
            self._note(f"{name} of {where} {said}".rstrip())
            self.begun += 1
            if fault.ends is not None:
                self._count += 1
                self._now[name, node] = self._count, wanted
                self._loop.after(lasts, partial(self._over, name, node, self._count))

    def end(self) -> None:
        """Let all of them end, the registry's first."""
        for name, node in sorted(self._now, key=lambda key: (FAULTS[key[0]].of_node, self._now[key][0])):
            self._over(name, node, self._now[name, node][0])

    def _over(self, name: str, node: str, number: int) -> None:
        ends = FAULTS[name].ends
        if (name, node) not in self._now or self._now[name, node][0] != number or ends is None:
            return
        del self._now[name, node]
        off = self._cloud.off.get(node)
        try:
            ends(self._cloud, node)
        except NetcommonError as error:
            self._note(f"{name} of {self._name(node)} cannot end: {error}")
            return
        self._note(f"{name} of {self._name(node)} is over")
        if off is not None and node in self._cloud.nodes:  # what does not go with the power is there after the boot
            for other, where in sorted(self._now):
                if where == node and FAULTS[other].stays and (rest := FAULTS[other].rest(off, self._now[other, node][1])) is not None:
                    FAULTS[other].begins(self._cloud, node, rest)

    def _name(self, node: str) -> str:
        machine = self._cloud.nodes.get(node) or self._cloud.off.get(node)
        return machine.name if machine is not None else node or "the registry"
