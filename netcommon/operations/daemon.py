"""A daemon that runs once for the whole node, as long as any NIC needs it."""

from __future__ import annotations

from netcommon.host.api.requests import StartDaemon, StopDaemon
from netcommon.operations.base import Operation, Owned
from netcommon.operations.file import shown
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import ClassVar

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: The daemons that there are, each with its program and the Debian package that has it.
PROGRAMS = {"communication": ("dnsmasq", "dnsmasq-base")}


class NodeDaemonFields(NamedTuple):
    """The fields of NodeDaemon."""

    name: str
    options: tuple[str, ...]  #: "{folder}" stands for its folder in the node's state
    warning: str = ""  #: what the administrator should know where it runs
    program: str = ""


class NodeDaemon(NodeDaemonFields, Operation):
    """The daemon ``name`` runs. The first NIC that needs it starts it, the last one that goes ends it.

    With which options is the last up's to say, also for the NICs that were up before: so other options are no drift.
    """

    __slots__ = ()
    KIND = "daemon"
    REPAIRED = "the DHCP server of instance communication"
    MIGRATION = "of the node"
    CHOSEN = frozenset({"program"})
    BEFORE: ClassVar[frozenset[str]] = frozenset()

    def shared(self) -> tuple[str, ...]:
        return (self.identity(),)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        program, package = PROGRAMS[self.name]
        path = view.program(program)
        if not path:
            raise HostRefused(f"{program} is not installed, which {self.name} needs", f"apt install {package}")
        if self.warning:
            warnings.append(self.warning)
        return [self._replace(program=path)]

    def apply(self) -> Sequence[Request]:
        return [StartDaemon(self.name, self.program, self.options)]

    def differs(self, view: View) -> str:
        return "" if view.daemon(self.name) else "it does not run"

    def revert(self, view: View) -> Sequence[Request]:
        return [StopDaemon(self.name)]

    def identity(self) -> str:
        return f"daemon {self.name}"

    def place(self) -> str:
        return self.identity()

    def sentence(self) -> str:
        return f"The node runs the daemon {self.name}, which the NIC needs."

    def describe(self) -> str:
        words = (option.replace("{folder}", shown(self.name)) for option in self.options)
        return f"{self.program or _program(self.name)} {' '.join(words)}"

    def undo(self) -> str:
        return f"end the {_program(self.name)} of {self.name}, with the last NIC that needs it"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for name in PROGRAMS:
            daemon = view.daemon(name)
            if daemon is not None:
                text, identity = f"process {daemon.pid}, the {_program(name)} of {name}", f"daemon {name}"
                yield Owned(identity, text, (StopDaemon(name),), shared=(identity,))


def _program(name: str) -> str:
    return PROGRAMS[name][0] if name in PROGRAMS else "program"
