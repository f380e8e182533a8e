"""A file in the dhcp-optsdir of dnsmasq(8): what it tells the guests of one network, whichever of the NICs."""

from __future__ import annotations

from netcommon.host.api.facts import FILE_MARK
from netcommon.host.api.requests import DeleteFile, PutFile
from netcommon.operations.base import ABSENT, FINDINGS, OURS, Operation
from netcommon.operations.file import MODE, Written
from runtime.errors import HostRefused
from runtime.names import digest
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import File
    from netcommon.host.api.host import View
    from netcommon.host.api.requests import Request

#: So many hexadecimal digits of its lines' SHA-256 are in a file.
DIGITS = 16


class NetworkFileFields(NamedTuple):
    """The fields of NetworkFile."""

    folder: str  #: absolute
    name: str  #: the network's
    owner: str  #: the NIC's UUID
    lines: tuple[str, ...]
    reload: str = ""  #: the pid file of the daemon that is told of a change, "PROGRAM:PATH"
    content: str = ""
    found: str = ABSENT  #: OURS where a NIC of the network has written it already


class NetworkFile(NetworkFileFields, Written):
    """The file of a network is there. The first NIC that needs it writes it, and the last one that goes removes it.

    What it says is the last up's or change's to say, for all NICs of the network: so the lines of another NIC are no drift. Its mark names
    who wrote it, and its second line tells a change by hand.
    """

    __slots__ = ()
    KIND = "network-file"
    REPAIRED = "what DHCP servers tell the guests of a network"
    MIGRATION = "of the node: it says the same for all guests of the network"
    CHOSEN = frozenset({"content", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        """Raises HostRefused for a file that is not ours."""
        there = view.file(self.folder, self.name)
        if there is not None and not there.owner:
            raise HostRefused(f"{self.path} was not made by us", "remove it, or correct the settings")
        body = "".join(f"{line}\n" for line in self.lines)
        if there is not None and _unharmed(there) and there.reload == self.reload and _body(there) == body:
            return [self._replace(content=there.content, found=OURS)]
        mark = f"{FILE_MARK}{self.owner} {self.reload}".rstrip()
        return [self._replace(content=f"{mark}\n{_seal(body)}\n{body}", found=ABSENT)]

    def apply(self) -> Sequence[Request]:
        return [PutFile(self.folder, self.name, self.content, MODE)]

    def differs(self, view: View) -> str:
        there = view.file(self.folder, self.name)
        if there is None:
            return "the file is gone"
        if not there.owner:
            return "it is not our file any more"
        if not _unharmed(there):
            return "it was changed by hand"
        if there.content != self.content and there.owner == self.owner:
            return "it says something else"
        return "" if there.mode == MODE else f"its mode is {there.mode:04o}"

    def revert(self, view: View) -> Sequence[Request]:
        there = view.file(self.folder, self.name)
        return [DeleteFile(self.folder, self.name, there.owner)] if there is not None and there.owner else []

    def sentence(self) -> str:
        return f"The file {self.name} in {self.folder} says what dnsmasq tells the guests of the network."

    def describe(self) -> str:
        return f"write {self.path}: {'; '.join(self.lines)}"

    def undo(self) -> str:
        return f"rm {self.path}, with the last NIC of the network"


def _body(file: File) -> str:
    """Read what the file says below its first two lines."""
    return file.content.partition("\n")[2].partition("\n")[2]


def _unharmed(file: File) -> bool:
    """Tell whether the file is as one of us has written it."""
    return file.content.split("\n")[1:2] == [_seal(_body(file))]


def _seal(body: str) -> str:
    return f"# {digest(body).hex()[:DIGITS]}: whatever is changed by hand below is put back"
