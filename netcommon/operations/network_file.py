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

    What it says is the last up's or change's to say, for all NICs of the network: the lines of another NIC that were written later are no
    drift. Its mark names who wrote it, and its second line tells in which turn that was, and a change by hand.
    """

    __slots__ = ()
    KIND = "network-file"
    REPAIRED = "what DHCP servers tell the guests of a network"
    MIGRATION = "of the node: it says the same for all guests of the network"
    CHOSEN = frozenset({"content", "found"})
    BEFORE = frozenset({"found"})
    VALUES = (("found", FINDINGS),)

    def resolve(self, view: View, warnings: list[str]) -> Sequence[Operation]:
        """Raises HostRefused for a file that is not ours, and for a name that is a device's.

        One that is on record goes on saying what it said: today's lines are for an up or a change to say.
        """
        there = self.there(view)
        if self.content:
            return [self]
        if view.link(self.name) is not None:
            why = f"dnsmasq takes the network's name {self.name} for that of the device, and would tell every guest that asks there"
            raise HostRefused(why, "give [networks.UUID] the network's UUID, and the ranges too")
        body = "".join(f"{line}\n" for line in self.lines)
        if there is not None and _unharmed(there) and there.reload == self.reload and _body(there.content) == body:
            return [self._replace(content=there.content, found=OURS)]
        mark = f"{FILE_MARK}{self.owner} {self.reload}".rstrip()
        return [self._replace(content=f"{mark}\n{_seal(_turn(there.content) + 1 if there else 1, body)}\n{body}", found=ABSENT)]

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
        if _body(there.content) == _body(self.content):
            return "" if there.mode == MODE else f"its mode is {there.mode:04o}"
        ours, theirs = _turn(self.content), _turn(there.content)
        if there.owner == self.owner and theirs == ours:
            return "it says something else"
        return "it says what was said before" if theirs < ours else ""

    def put_back(self, view: View, made: Sequence[Operation]) -> Operation:
        """In a turn of its own, for others may have read meanwhile what the change that did not hold has said."""
        there = view.file(self.folder, self.name)
        if there is None or not any(isinstance(one, NetworkFile) and one.content == there.content for one in made):
            return self
        body = _body(self.content)
        return self._replace(content=f"{self.content.partition(chr(10))[0]}\n{_seal(_turn(there.content) + 1, body)}\n{body}")

    def revert(self, view: View) -> Sequence[Request]:
        there = view.file(self.folder, self.name)
        return [DeleteFile(self.folder, self.name, there.owner)] if there is not None and there.owner else []

    def sentence(self) -> str:
        return f"The file {self.name} in {self.folder} says what dnsmasq tells the guests of the network."

    def describe(self) -> str:
        return f"write {self.path}: {'; '.join(self.lines)}"

    def undo(self) -> str:
        return f"rm {self.path}, with the last NIC of the network"


def _body(content: str) -> str:
    """Read what a file says below its first two lines."""
    return content.partition("\n")[2].partition("\n")[2]


def _unharmed(file: File) -> bool:
    """Tell whether the file is as one of us has written it."""
    return file.content.split("\n")[1:2] == [_seal(_turn(file.content), _body(file.content))]


def _turn(content: str) -> int:
    """Read in which turn the file was written: of two NICs' words the later one counts. 0 where it does not say."""
    word = content.partition("\n")[2].partition("\n")[0].partition(":")[0].rpartition(" ")[2]
    return int(word) if word.isascii() and word.isdecimal() and len(word) < DIGITS else 0


def _seal(turn: int, body: str) -> str:
    return f"# {digest(f'{turn} {body}').hex()[:DIGITS]} {turn}: whatever is changed by hand below is put back"
