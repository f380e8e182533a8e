"""One rtnetlink socket (netlink(7)): requests with their answers, and dumps that are complete or not there at all."""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms
import errno
from struct import Struct, error

from netcommon.host.rtnetlink.attributes import (
    HEADER,
    NLM_F_ACK,
    NLM_F_ACK_TLVS,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_MULTI,
    NLMSG_DONE,
    NLMSG_ERROR,
    S32,
    MalformedError,
    attributes,
    message,
    messages,
    string,
)
from runtime.errors import HostRefused, TryAgain, escaped
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from netcommon.host.rtnetlink.attributes import Encoded

SOL_NETLINK = 270
NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK = 10, 11, 12
NLMSGERR_ATTR_MSG = 1
SO_RCVBUFFORCE = 33
SO_NETNS_COOKIE = 71
TIMEVAL = Struct("@ll")

#: Bytes asked for at once: twice what the kernel fills of a dump into one datagram, and little enough for malloc(3) to map none for it.
RECEIVE = 1 << 16
QUEUE = 4 << 20  #: bytes of answers the kernel may queue for us
BATCH_BYTES, BATCH_MESSAGES = 32768, 128  #: what we put in one send: its answers must fit the queue even of an unprivileged caller
MAX_ERRNO = 4095  #: linux/err.h
LAST = (1 << 32) - 1  #: the highest sequence number that a message can have
ANEW = 64  #: of so many times that a listing is known to be too long it is begun once
INTERRUPTED = 8  #: how often an interrupted dump is asked for anew


class Reply(NamedTuple):
    """The kernel's acknowledgement: 0 or an errno, and the reason where it gives one."""

    errno: int = 0
    text: str = ""


class _TooLongError(Exception):
    """A listing is longer than it may be."""


class Netlink:
    """Opened at the first request, in the network namespace the caller is in by then. Not for several threads at once."""

    PROTOCOL = socket.NETLINK_ROUTE
    NAME = "rtnetlink"
    OPTIONS: tuple[int, ...] = (NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK)  #: those of SOL_NETLINK that are set

    def __init__(self, timeout: float) -> None:
        """``timeout`` in seconds is how long the kernel may take to answer."""
        self.timeout = timeout
        self.requests = 0  #: messages sent, for tests and figures
        self.dumps = 0  #: dumps asked for, again ones included
        self._socket: socket.socket | None = None
        self._sequence = 0
        self._long: dict[Encoded, int] = {}  #: listings that were too long: how often that was asked

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()

    def cookie(self) -> int | None:
        """The network namespace's number (SO_NETNS_COOKIE, Linux 5.14), None where the kernel has none.

        Raises TryAgain or HostRefused where it cannot be asked: who takes another number for ours finds no record of ours.
        """
        try:
            return int.from_bytes(self._open().getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), "little")
        except OSError as problem:
            if problem.errno == errno.ENOPROTOOPT:
                return None
            raise _unanswered(problem, self.timeout, self.NAME) from problem

    def port(self) -> int:
        """The socket's own number, by which the kernel names whoever asked for a change. Raises OSError."""
        made = self._open()
        if not made.getsockname()[0]:
            made.bind((0, 0))
        return int(made.getsockname()[0])

    def ask(self, messages: Sequence[Encoded]) -> list[Reply]:
        """Sends requests for changes and returns their answers, in order; those that got none in time say ETIMEDOUT."""
        replies: list[Reply] = []
        while len(replies) < len(messages):
            replies += self._batch(messages[len(replies) :])
        return replies

    def get(self, request: Encoded) -> bytes | Reply:
        """The body of the one object asked for, or why there is none. Raises TryAgain."""
        sequence = self._send((request,), 0)
        for kind, flags, got, body in self._messages():
            if got != sequence:
                continue
            if kind == NLMSG_ERROR:
                return reply_of(flags, body)
            return body
        raise AssertionError("unreachable")  # pragma: no cover

    def get_each(self, requests: Sequence[Encoded]) -> list[bytes | Reply]:
        """As ``get``, for many objects. Raises TryAgain."""
        found: list[bytes | Reply] = []
        while len(found) < len(requests):
            asked = requests[len(found) : len(found) + BATCH_MESSAGES // 4]  # an answer of a kilobyte or two takes more of the queue
            last = self._send(asked, 0)
            answers: dict[int, bytes | Reply] = {}
            for kind, flags, got, body in self._messages():
                if last - len(asked) < got <= last:
                    answers[got] = reply_of(flags, body) if kind == NLMSG_ERROR else body
                    if len(answers) == len(asked):
                        break
            found += [answers[got] for got in sorted(answers)]
        return found

    def first(self, request: Encoded, wanted: Callable[[bytes], bool]) -> list[bytes] | Reply:
        """The bodies of the first objects of a dump, up to one that is not ``wanted``; the kernel is not waited for beyond, and the socket
        is closed then. Raises TryAgain.
        """
        self.dumps += 1
        sequence = self._send((request,), NLM_F_DUMP)
        found: list[bytes] = []
        for kind, flags, got, body in self._messages():
            if got != sequence:
                continue
            if flags & NLM_F_DUMP_INTR:
                raise TryAgain("the kernel's tables changed while they were read")
            if kind == NLMSG_ERROR:
                return reply_of(flags, body)
            if kind == NLMSG_DONE:
                failed = reply_of(flags, body, 4) if len(body) >= 4 else Reply()
                return failed if failed.errno else found
            if not wanted(body):
                break
            found.append(body)
        self.close()
        return found

    def dump(self, request: Encoded, needle: bytes = b"", at: int | None = None) -> list[bytes] | Reply:
        """The bodies of all objects (in whose bytes ``needle`` is, ``at`` that place if given), or the kernel's refusal.

        An interrupted dump is asked for again; raises TryAgain if that does not help: what is returned is complete.
        """
        return self._whole(request, needle, at)

    def listing(self, request: Encoded) -> list[bytes] | Reply:
        """As ``dump``, but what was received of it as it is, datagram by datagram: for ``search``, as often as one likes."""
        return self._whole(request, None)

    def long(self, request: Encoded) -> bool:
        """Tell whether a listing was too long for ``short`` before; now and then it is found out anew."""
        asked = self._long.get(request, 0)
        if asked:
            self._long[request] = (asked + 1) % ANEW
        return asked > 0

    def short(self, request: Encoded, most: int) -> list[bytes] | Reply | None:
        """As ``listing``, but None where it is longer than ``most`` bytes: it is given up there."""
        try:
            found = self._whole(request, None, most=most)
        except _TooLongError:
            self.close()  # the kernel goes on with a dump until it is read, or nobody is there to read it
            self._long[request] = 1
            return None
        self._long.pop(request, None)
        return found

    def _whole(self, request: Encoded, needle: bytes | None, at: int | None = None, most: int = 0) -> list[bytes] | Reply:
        for _ in range(INTERRUPTED):
            self.dumps += 1
            found, complete = self._dump(request, needle, at, most)
            if complete:
                return found
        raise TryAgain("the kernel's tables changed each time while they were read")

    def _dump(self, request: Encoded, needle: bytes | None, at: int | None, most: int) -> tuple[list[bytes] | Reply, bool]:
        """The bodies with ``needle``, or (None) all datagrams, of ``most`` bytes at the most; and whether they belong together."""
        sequence = self._send((request,), NLM_F_DUMP)
        found: list[bytes] = []
        datagrams: list[bytes] = []
        complete = True
        for kind, flags, got, body in self._messages(needle, datagrams if needle is None else None, at, most):
            if got != sequence:
                continue
            if flags & NLM_F_DUMP_INTR:
                complete = False
            if kind == NLMSG_ERROR:
                return reply_of(flags, body), True
            if kind == NLMSG_DONE:
                # The error of a dump that failed on the way stands here.
                failed = reply_of(flags, body, 4) if len(body) >= 4 else Reply()
                if failed.errno:
                    return failed, True
                break
            if needle is not None and (needle in body if at is None else body.startswith(needle, at)):
                found.append(body)
            if not flags & NLM_F_MULTI:
                break
        if needle is None:
            found = [data for data in datagrams if HEADER.unpack_from(data)[3] == sequence]
        return found, complete

    def _batch(self, asked: Sequence[Encoded]) -> list[Reply]:
        size = taken = 0
        for each in asked[:BATCH_MESSAGES]:
            size += 16 + len(each.body) + 3
            if taken and size > BATCH_BYTES:
                break
            taken += 1
        answers: dict[int, Reply] = {}
        lost = Reply(errno.ETIMEDOUT, f"the kernel did not answer in {self.timeout:g} s")
        try:
            last = self._send(asked[:taken], NLM_F_ACK)
            first = last - taken + 1
            for kind, flags, got, body in self._messages():
                if kind == NLMSG_ERROR and first <= got <= last:
                    answers[got] = reply_of(flags, body)
                    if len(answers) == taken:
                        break
        except (TryAgain, HostRefused) as problem:
            lost = Reply(errno.ETIMEDOUT, str(problem))
            first = self._sequence - taken + 1
        return [answers.get(first + position, lost) for position in range(taken)]

    def _send(self, messages: Sequence[Encoded], flags: int) -> int:
        """Sends them at once; returns the last one's sequence number, those before count down from it."""
        if self._sequence > LAST - len(messages):
            self._sequence = 0  # what was asked so long ago is answered, or will not be
        parts: list[bytes] = []
        for kind, own, body in messages:
            self._sequence += 1
            parts += (message(kind, own | flags, body, self._sequence), b"\0" * (-len(body) % 4))
        data = b"".join(parts)  # a table is hundreds of messages: what is added piece by piece is copied as often
        self.requests += len(messages)
        try:
            self._open().send(data)
        except OSError as problem:
            self.close()
            raise _unanswered(problem, self.timeout, self.NAME) from problem
        return self._sequence

    def _messages(
        self, needle: bytes | None = b"", kept: list[bytes] | None = None, at: int | None = None, most: int = 0
    ) -> Iterator[tuple[int, int, int, bytes]]:
        """Type, flags, sequence number and body of what comes in, without end: see ``messages``. Raises TryAgain and closes when nothing
        does. ``kept``: where each datagram goes, too; _TooLongError is raised when that is more than ``most`` bytes.
        """
        size = 0
        try:
            while True:
                data, sender = self._open().recvfrom(RECEIVE)
                if sender[0]:
                    continue  # another process may write to our port; the kernel's is 0
                if kept is not None and len(data) >= HEADER.size:
                    kept.append(data)
                    size += len(data)
                    if 0 < most < size:
                        raise _TooLongError
                yield from messages(data, needle, at)
        except OSError as problem:
            self.close()
            raise _unanswered(problem, self.timeout, self.NAME) from problem
        except MalformedError as problem:
            self.close()
            raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem

    @property
    def opened(self) -> int:
        """The socket's descriptor, -1 while none is open."""
        return self._socket.fileno() if self._socket is not None else -1

    def descriptor(self) -> int:
        """That of the socket, which is opened if it is not. Raises OSError."""
        return self._open().fileno()

    def _open(self) -> socket.socket:
        if self._socket is None:
            made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, self.PROTOCOL)
            try:
                try:
                    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, QUEUE)
                except PermissionError:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE)
                seconds = int(self.timeout)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(seconds, int((self.timeout - seconds) * 1e6) or 1))
                for option in self.OPTIONS:
                    made.setsockopt(SOL_NETLINK, option, 1)
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket


def _unanswered(problem: OSError, timeout: float, name: str) -> TryAgain | HostRefused:
    if problem.errno in (errno.EMFILE, errno.ENFILE):
        return TryAgain(f"{name}: {problem.strerror}")
    if problem.errno in (errno.EAGAIN, errno.ENOBUFS, errno.EINTR, errno.ENOMEM):
        why = f"did not answer in {timeout:g} s" if problem.errno == errno.EAGAIN else f"has no room: {problem.strerror}"
        return TryAgain(f"the kernel {why}")
    return HostRefused(f"{name}: {problem.strerror}")


def untold(what: str, reply: Reply) -> TryAgain | HostRefused:
    """The error for a question about ``what`` ("routes") that the kernel refused: trying again helps where it was short of something."""
    told = reply.text or errno.errorcode.get(reply.errno, str(reply.errno))
    if reply.errno in (errno.EAGAIN, errno.EBUSY, errno.ENOMEM, errno.ENOBUFS, errno.EINTR):
        return TryAgain(f"the kernel cannot list its {what} now: {told}")
    return HostRefused(f"the kernel does not list its {what}: {told}")


def reply_of(flags: int, body: bytes, told_at: int = 20) -> Reply:
    """Of a struct nlmsgerr: the errno, and the kernel's words, which NETLINK_EXT_ACK brings, from byte ``told_at``.

    With NETLINK_CAP_ACK the request's header alone stands between. Raises TryAgain.
    """
    try:
        code = -S32.unpack_from(body)[0]
        if not 0 <= code <= MAX_ERRNO:
            raise MalformedError("no error number")
        told = string(attributes(body, told_at).get(NLMSGERR_ATTR_MSG)) if flags & NLM_F_ACK_TLVS else ""
    except (error, MalformedError) as problem:
        raise TryAgain(f"the kernel's acknowledgement makes no sense: {problem}") from problem
    return Reply(code, told if told.isprintable() else escaped(told))
