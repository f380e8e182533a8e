"""A file for another's daemon: a DHCP server's binding of one guest, for one."""

from __future__ import annotations

from netcommon.host.api.facts import FILE_MARK
from netcommon.host.api.requests import DeleteFile, Hangup, PutFile
from netcommon.operations.base import Operation, Owned
from runtime.errors import HostRefused
from runtime.paths import Paths
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import ClassVar

    from netcommon.effects.base import Effect
    from netcommon.host.api.facts import File
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

STATE = Paths().state
#: The variables of a template that may have the name of the NIC's device.
DEVICE = frozenset({"interface", "indev"})
MODE = 0o644  #: daemons that read it have given up their privileges


def shown(path: str) -> str:
    """A path below our own state as it is on most nodes."""
    return path if path.startswith("/") else f"{STATE}/{path}"


class Written(Operation, Protocol):
    """The parts of a file of ours that go by its folder and name, and by who is told of it."""

    @property
    def folder(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def reload(self) -> str: ...

    @property
    def path(self) -> str:
        """For people."""
        return shown(f"{self.folder}/{self.name}")

    def there(self, view: View) -> File | None:
        """The file as it is, None where there is none. Raises HostRefused for one that is not ours, and where it has no folder."""
        found = view.file(self.folder, self.name)
        if found is not None and not found.owner:
            raise HostRefused(f"{self.path} was not made by us", "remove it, or correct the settings")
        if found is None and not view.folder(self.folder):
            raise HostRefused(f"folder {shown(self.folder)} does not exist", "make it, or correct the settings")
        return found

    def shared(self) -> tuple[str, ...]:
        return (self.identity(),)

    def identity(self) -> str:
        return f"file {self.folder}/{self.name}"

    def place(self) -> str:
        return self.identity()

    def effects(self) -> Sequence[Effect]:
        if not self.reload:
            return ()
        from netcommon.effects.reload import Reload

        program, _, path = self.reload.partition(":")
        return (Reload(path, program),)


class NicFileFields(NamedTuple):
    """The fields of NicFile."""

    folder: str  #: absolute, or below our own state (netcommon.host.linux.files)
    name: str
    owner: str  #: the NIC's UUID
    text: str = ""  #: what it says, or
    template: str = ""  #: the template that makes that of
    variables: tuple[tuple[str, str], ...] = ()
    announce: bool = False  #: its reader watches for files closed after writing alone
    reload: str = ""  #: the pid file of the daemon that is told of a change, "PROGRAM:PATH"
    content: str = ""
    warning: str = ""  #: what its reader is not told that the operator may expect
    untold: tuple[str, ...] = ()  #: variables that our template has no place for: a warning, where a site's has none either


class NicFile(NicFileFields, Written):
    """A file with exactly this content, whose first line is our mark with the NIC's UUID. What bears no mark is not touched.

    It is shared: a NIC that has come up again on another device leaves two records with one file.
    """

    __slots__ = ()
    KIND = "file"
    REPAIRED = "files for DHCP servers"
    MIGRATION = "a DHCP server answers the guest on this node's tap only"
    CHOSEN = frozenset({"content"})
    BEFORE: ClassVar[frozenset[str]] = frozenset()

    def of_guest(self) -> bool:
        return True

    def about(self) -> str:
        return dict(self.variables).get("interface", "")

    def renamed(self, before: str, now: str) -> Operation:
        """A DHCP server may know the guest by its tap (netcommon.features.dhcp)."""
        given = tuple((name, now if name in DEVICE and value == before else value) for name, value in self.variables)
        made = self._replace(name=now if self.name == before else self.name, variables=given)
        return made._replace(content="") if made != self and self.template else made

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        """Raises HostRefused for a file that is not ours, SettingsInvalid for a template that is wrong."""
        self.there(view)
        if self.warning:
            warnings.append(self.warning)
        text = self.text
        if self.template:
            from netcommon.templates import render  # dear, and only some sites have such files

            source = view.template(self.template) if self.untold else ""
            if untold := [name for name in self.untold if name not in source]:
                warnings.append(f"{self.about()}: {self.path} has no place for the network's {', '.join(untold)}: the guest is not told")
            text = render(self.template, dict(self.variables), view.template)
        mark = f"{FILE_MARK}{self.owner} {self.reload}".rstrip()
        return [self._replace(content=f"{mark}\n{text}")]

    def apply(self) -> Sequence[Request]:
        return [PutFile(self.folder, self.name, self.content, MODE, self.announce)]

    def differs(self, view: View) -> str:
        there = view.file(self.folder, self.name)
        if there is None:
            return "the file is gone"
        if not there.owner:
            return "it is not our file any more"
        if there.content != self.content:
            return f"it is the file of NIC {there.owner}" if there.owner != self.owner else "it says something else"
        return "" if there.mode == MODE else f"its mode is {there.mode:04o}"

    def revert(self, view: View) -> Sequence[Request]:
        there = view.file(self.folder, self.name)
        return [DeleteFile(self.folder, self.name, self.owner)] if there is not None and there.owner == self.owner else []

    def sentence(self) -> str:
        return f"The file {self.name} in {self.folder} tells a daemon of the guest."

    def describe(self) -> str:
        if self.template and not self.content:
            return f"write {self.path} of {self.template}"
        lines = (self.content.partition("\n")[2] if self.content else self.text).splitlines()
        shown = "; ".join("".join(char if char.isprintable() else "?" for char in line) for line in lines[:4])
        return f"write {self.path}: {shown}{' ...' if len(lines) > 4 else ''}"

    def undo(self) -> str:
        return f"rm {self.path}"

    @classmethod
    def owned(cls, view: View) -> Iterable[Owned]:
        for file in view.files():
            link = view.link(file.name)
            program, _, pid_file = file.reload.partition(":")
            requests: list[Request] = [DeleteFile(file.folder, file.name, file.owner)]
            requests += [Hangup(pid_file, program)] if pid_file else []
            yield Owned(
                f"file {file.path}",
                f"file {shown(file.path)}",
                tuple(requests),
                owner=file.owner,
                device=link.name if link is not None and link.alias.startswith(file.owner + " ") else "",
                shared=(f"file {file.path}",),
            )
