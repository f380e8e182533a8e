"""The service nftables: transactions and questions over an nfnetlink socket (netlink(7), NETLINK_NETFILTER). No nft(8), no libnftables."""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms
import errno
import os

from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.nftables import Drop, NftChain, NftTable, Put
from netcommon.host.nftables import encode as nfencode
from netcommon.host.rtnetlink.attributes import NLM_F_ACK, NLMSG_ERROR, MalformedError
from netcommon.host.rtnetlink.socket import NETLINK_CAP_ACK, NETLINK_EXT_ACK, Netlink, Reply, reply_of
from runtime.errors import HostRefused, TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.nftables import Step
    from netcommon.host.api.requests import NftChange
    from netcommon.host.rtnetlink.attributes import Encoded

#: What a kernel without nf_tables, or without one of its families, says.
NO_NFTABLES = frozenset({errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EINVAL})
SO_SNDBUFFORCE = 32
ROOM = 4 << 20  #: bytes
LONG = 2 << 10  #: bytes of messages, without their headers: what every socket sends at once, whatever net.core.wmem_default is
WHOLE = -1  #: the place of a failure that is none of one message


class Nfnetlink(Netlink):
    """A socket to the kernel's packet filter."""

    PROTOCOL = 12  #: NETLINK_NETFILTER
    NAME = "nfnetlink"
    OPTIONS = (NETLINK_EXT_ACK, NETLINK_CAP_ACK)

    def _make_room(self) -> None:
        """Let a long transaction be sent at once, as it must be."""
        try:
            self._open().setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, ROOM)
        except PermissionError:
            pass  # what there is will do for small ones

    def transact(self, messages: Sequence[Encoded]) -> list[tuple[int, Reply]]:
        """All of them or none; what failed, each with the message's place, or WHOLE. Raises TryAgain or HostRefused."""
        if sum([len(each.body) for each in messages]) > LONG:
            self._make_room()
        last = messages[-1]
        framed = [*messages[:-1], last._replace(flags=last.flags | NLM_F_ACK)]
        end = self._send([nfencode.bracket(nfencode.BATCH_BEGIN), *framed, nfencode.bracket(nfencode.BATCH_END)], 0)
        begin = end - len(messages) - 1
        failures: list[tuple[int, Reply]] = []
        for kind, flags, got, body in self._messages():
            if kind != NLMSG_ERROR or not begin <= got < end:
                continue
            told = reply_of(flags, body)
            if told.errno:
                failures.append((WHOLE if got == begin else got - begin - 1, told))
            if got in (begin, end - 1):
                return failures
        raise AssertionError("unreachable")  # pragma: no cover


#: A change of more steps than one NIC's is of a whole table, if it begins with one. The messages of those of the last ones are kept that
#: have MOST steps together: the spoof guard has 19 tables of 213 steps, 1.8 MB.
LARGE, MOST = 40, 5000


class Nftables:
    """Carries NftChange out (netcommon.host.api.host.Service)."""

    def __init__(self, timeout: float) -> None:
        self.netlink = Nfnetlink(timeout)
        self.removed = False  #: whether something was removed: the kernel finishes that when the socket is closed, and takes its time
        self._kept: list[tuple[list[Step], list[tuple[Encoded, int]]]] = []

    def close(self) -> None:
        self.netlink.close()

    def execute(self, request: NftChange) -> Answer:
        """One transaction. What is to be dropped and is gone is left out, and the rest tried again."""
        todo, woken, known = list(request.steps), False, False
        while todo:
            try:
                if not known:
                    todo, known = self._present(todo), True
                failures = self._try(todo)
            except TryAgain as problem:
                return Answer(errno.ETIMEDOUT, f"{request.what}: {problem}")
            except HostRefused as problem:
                number = problem.__cause__.errno if isinstance(problem.__cause__, OSError) else None
                instead = f"; {request.otherwise}" if no_such_socket(problem) else ""
                return Answer(number or errno.EPROTONOSUPPORT, f"{request.what}: {problem}{instead}")
            hard = [(step, reply) for step, reply in failures if not (isinstance(step, Drop) and reply.errno == errno.ENOENT)]
            if hard and not woken and hard[0][1].errno == errno.EINVAL and isinstance(todo[0], Put) and isinstance(todo[0].thing, NftTable):
                woken = True
                if self.wake(todo[0].thing):
                    continue
            if hard:
                step, reply = hard[0]
                return refused(request, reply, step is None)
            if not failures:
                break
            gone = {id(step) for step, _ in failures}
            todo = [step for step in todo if id(step) not in gone]
        return DONE

    def _present(self, todo: list[Step]) -> list[Step]:
        """Leave out the chains that a change drops right behind the table that it begins with, where they are not there.

        A transaction that fails over one is undone after a grace period of the kernel's (synchronize_rcu() in nf_tables_abort()), ten
        milliseconds and more; a question takes a hundredth of that. Raises TryAgain or HostRefused.
        """
        place, first = 1, todo[0]
        if not (isinstance(first, Put) and isinstance(first.thing, NftTable)):
            return todo
        there: list[Step] = [first]
        while place < len(todo) and isinstance(step := todo[place], Drop) and isinstance(step.thing, NftChain):
            there += [] if self._lacks(step.thing) else [step]
            place += 1
        return [*there, *todo[place:]]

    def _lacks(self, chain: NftChain) -> bool:
        answer = self.netlink.get(nfencode.get_chain(chain.family, chain.table, chain.name))
        return isinstance(answer, Reply) and answer.errno == errno.ENOENT

    def wake(self, table: NftTable) -> bool:
        """End a table's being dormant: until then the kernel lets none of its base chains be made anew. Tells whether it was."""
        from netcommon.host.nftables import decode as nfdecode

        try:
            there = self.netlink.get(nfencode.get_table(table.family, table.name))
            dormant = isinstance(there, bytes) and nfdecode.table(there).dormant
            return dormant and not self.netlink.transact([nfencode.woken(table)])
        except (TryAgain, HostRefused, MalformedError):
            return False  # the change itself says what is wrong

    def _try(self, todo: Sequence[Step]) -> list[tuple[Step | None, Reply]]:
        pairs = self._encoded(todo)
        failures = self.netlink.transact([message for message, _ in pairs])
        self.removed = self.removed or (not failures and any(isinstance(step, Drop) for step in todo))
        return [(None if place == WHOLE else todo[pairs[place][1]], reply) for place, reply in failures]

    def _encoded(self, todo: Sequence[Step]) -> list[tuple[Encoded, int]]:
        """The messages. Those of a whole table, the same each time, are kept: they take longer to make than to carry out.

        What is done for many NICs together is as large, and never the same again.
        """
        if not (LARGE <= len(todo) <= MOST and isinstance(todo[0], Put) and isinstance(todo[0].thing, NftTable)):
            return nfencode.steps(todo)
        for known, pairs in self._kept:
            if known == todo and all(map(_alike, known, todo)):
                return pairs
        pairs = nfencode.steps(todo)
        self._kept.append(([*todo], pairs))
        while sum(len(known) for known, _pairs in self._kept) > MOST:
            del self._kept[0]
        return pairs


def _alike(one: Step, other: Step) -> bool:
    """Tell whether equal steps are the same: named tuples of one content are equal, whatever their class."""
    return one is other or (type(one) is type(other) and type(one[0]) is type(other[0]))


def no_such_socket(problem: HostRefused) -> bool:
    """Whether a kernel without nf_tables says it: any other failure tells nothing of what there is."""
    return isinstance(problem.__cause__, OSError) and problem.__cause__.errno in NO_NFTABLES


def refused(request: NftChange, reply: Reply, whole: bool = True) -> Answer:
    """The answer to a transaction that failed, at its very beginning (``whole``) or at a step of it.

    Without nf_tables the kernel takes no transaction at all; one that it begins, it has nf_tables for, but not all that is asked.
    """
    text = reply.text or os.strerror(reply.errno)
    if reply.errno in (errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT):
        why = "this kernel has no nf_tables" if whole else "nf_tables of this kernel does not support it"
        text = f"{why} ({text}){': modprobe nf_tables' if whole else ''}; {request.otherwise}"
        if not whole:  # the kernel has nf_tables, so there may be something to be undone
            return Answer(errno.EINVAL, f"{request.what}: {text}")
    return Answer(reply.errno, f"{request.what}: {text}")
