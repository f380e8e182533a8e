"""The rtnetlink socket against a kernel that interrupts, drops, delays and talks nonsense."""

from __future__ import annotations

import errno
import os
from struct import pack
from typing import Any

import pytest

from netcommon.host.api.requests import SetLink
from netcommon.host.rtnetlink import encode
from netcommon.host.rtnetlink.attributes import HEADER, RUN, Encoded, search
from netcommon.host.rtnetlink.read import KernelView
from netcommon.host.rtnetlink.socket import ANEW, BATCH_BYTES, BATCH_MESSAGES, INTERRUPTED, LAST, Netlink, Reply
from runtime.errors import HostRefused, TryAgain

KERNEL, STRANGER = (0, 0), (4711, 0)
LINK = bytes(16) + pack("=HH8s", 12, 3, b"tap0")
DONE, ERROR, NEWLINK = 3, 2, 16
MULTI, INTERRUPT, TLVS = 2, 0x10, 0x200


class Kernel:
    """In a socket's place: each send is answered by what ``script`` says to it, a list of (sender, bytes) or an errno."""

    def __init__(self, script: Any) -> None:
        self.script = script
        self.sent: list[bytes] = []
        self.queue: list[Any] = []
        self.closed = 0

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        self.queue += self.script(len(self.sent), sequences(data))

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        said = self.queue.pop(0) if self.queue else errno.EAGAIN
        if isinstance(said, int):
            raise OSError(said, os.strerror(said))
        sender, data = said
        return data, sender

    def close(self) -> None:
        self.closed += 1
        self.queue = []


def sequences(data: bytes) -> list[int]:
    """The sequence numbers of what was sent."""
    found, offset = [], 0
    while offset < len(data):
        length, _, _, sequence, _ = HEADER.unpack_from(data, offset)
        found.append(sequence)
        offset += (length + 3) & ~3
    return found


def told(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return HEADER.pack(16 + len(body), kind, flags, sequence, 0) + body


def ack(sequence: int, number: int = 0, why: str = "") -> bytes:
    text = why.encode() + b"\0" if why else b""
    more = pack("=HH", 4 + len(text), 1) + text if why else b""
    return told(ERROR, TLVS if why else 0, sequence, pack("=i", -number) + bytes(16) + more)


class Client(Netlink):
    """A Netlink whose socket is a Kernel, new after each loss."""

    def __init__(self, script: Any) -> None:
        super().__init__(0.5)
        self.kernel = Kernel(script)

    def _open(self) -> Any:
        self._socket = self.kernel  # type: ignore[assignment]
        return self.kernel


ASK = [Encoded(19, 0, b"x" * 16), Encoded(19, 0, b"y" * 16)]
QUESTION = encode.dump_links()


def test_answers_are_told_apart() -> None:
    """By their numbers, whatever order they come in; another's messages do not count, nor do late ones."""

    def script(turn: int, numbers: list[int]) -> list[Any]:
        forged = (STRANGER, ack(numbers[0], errno.EPERM))
        late = (KERNEL, ack(numbers[0] - 1, errno.EPERM))
        return [forged, late, (KERNEL, ack(numbers[1], errno.ENODEV, "why")), (KERNEL, ack(numbers[0]))]

    assert Client(script).ask(ASK) == [Reply(), Reply(errno.ENODEV, "why")]


@pytest.mark.parametrize("lost", [errno.EAGAIN, errno.ENOBUFS])
def test_an_answer_is_lost(lost: int) -> None:
    """What was answered counts; of the rest nothing is known. The socket is not used again."""
    client = Client(lambda turn, numbers: [(KERNEL, ack(numbers[0])), lost])
    first, second = client.ask(ASK)
    assert (first, second.errno, client.kernel.closed) == (Reply(), errno.ETIMEDOUT, 1)
    assert second.text


def test_batches_are_bounded() -> None:
    """In number and in bytes; each message is answered."""
    client = Client(lambda turn, numbers: [(KERNEL, ack(number, number % 3)) for number in numbers])
    small = client.ask([Encoded(19, 0, bytes(16))] * (2 * BATCH_MESSAGES + 1))
    assert len(small) == 2 * BATCH_MESSAGES + 1 == len(set(enumerate(small)))
    assert [reply.errno for reply in small] == [number % 3 for number in range(1, len(small) + 1)]
    assert [len(sequences(sent)) for sent in client.kernel.sent] == [BATCH_MESSAGES, BATCH_MESSAGES, 1]
    client.kernel.sent.clear()
    assert len(client.ask([Encoded(19, 0, bytes(BATCH_BYTES // 3))] * 7)) == 7
    assert max(len(sent) for sent in client.kernel.sent) <= BATCH_BYTES + 100
    client.kernel.sent.clear()
    assert len(client.ask([Encoded(19, 0, bytes(2 * BATCH_BYTES))] * 2)) == 2


@pytest.mark.parametrize("before", [LAST - 3, LAST - 2, LAST - 1, LAST])
def test_sequence_numbers_begin_anew(before: int) -> None:
    """A socket is kept as long as the process lives, and each message has one."""
    client = Client(lambda turn, numbers: [(KERNEL, ack(number, number % 3)) for number in numbers])
    client._sequence = before
    assert [client.ask(ASK) for _ in range(3)] and client.kernel.closed == 0
    asked = [number for sent in client.kernel.sent for number in sequences(sent)]
    assert len(asked) == 3 * len(ASK) == len({*asked}) and all(1 <= number <= LAST for number in asked) and asked[-1] < LAST
    assert [reply.errno for reply in client.ask(ASK)] == [number % 3 for number in sequences(client.kernel.sent[-1])]


def dumped(sequence: int, *flags: int, end: int = 0) -> list[Any]:
    """A dump of links, one message a flag."""
    links = [(KERNEL, told(NEWLINK, MULTI | flag, sequence, LINK)) for flag in flags]
    return [*links, (KERNEL, told(DONE, MULTI | end, sequence, bytes(4)))]


@pytest.mark.parametrize("where", ["first", "last", "end"])
def test_an_interrupted_dump_is_taken_again(where: str) -> None:
    """The mark may be on any of its messages. What the broken one held is not returned."""

    def script(turn: int, numbers: list[int]) -> list[Any]:
        if turn > 2:
            return dumped(numbers[0], 0)
        broken = [INTERRUPT * (where == "first"), 0, INTERRUPT * (where == "last")]
        return dumped(numbers[0], *broken, end=INTERRUPT * (where == "end"))

    client = Client(script)
    assert client.dump(QUESTION) == [LINK]
    assert (client.dumps, len(client.kernel.sent)) == (3, 3)


def test_a_dump_that_is_interrupted_each_time() -> None:
    client = Client(lambda turn, numbers: dumped(numbers[0], 0, end=INTERRUPT))
    with pytest.raises(TryAgain):
        client.dump(QUESTION)
    assert client.dumps == INTERRUPTED
    with pytest.raises(TryAgain):
        KernelView(client).links()


BODIES = [b"\x02\x20aaaa", b"\x02\x00bbbb", b"\x02\x20cabc", b"\x0a\x00aabb"]


@pytest.mark.parametrize(
    ("needle", "at", "found"),
    [
        (b"", None, [0, 1, 2, 3]),
        (b"aa", None, [0, 3]),
        (b"c", None, [2]),
        (b"cabc", None, [2]),
        (b"none", None, []),
        (b"b\x02", None, []),  # where one message follows the other is nothing
        (b"\0", 1, [1, 3]),
        (b"\x02\x00", 0, [1]),
        (b"aa", 3, [0]),
        (b"aa", 0, []),
        (b"bb", 6, []),  # beyond the end
    ],
)
def test_those_with_a_needle_in_them(needle: bytes, at: int | None, found: list[int]) -> None:
    """However the kernel spreads them over what is received at once."""
    for split in range(len(BODIES) + 1):

        def script(turn: int, numbers: list[int], split: int = split) -> list[Any]:
            parts = [told(NEWLINK, MULTI | 0x20, numbers[0], body) + bytes(-len(body) % 4) for body in BODIES]
            parts.append(told(DONE, MULTI, numbers[0], bytes(4)))
            return [(KERNEL, b"".join(part)) for part in (parts[:split], parts[split:]) if part]

        listed = Client(script).listing(QUESTION)
        assert isinstance(listed, list) and search(listed, needle, at) == [BODIES[number] for number in found]
        assert at is not None or Client(script).dump(QUESTION, needle) == [BODIES[number] for number in found]


@pytest.mark.parametrize("needle", [(b"needle", None), (b"\x07", 2)])
@pytest.mark.parametrize("many", [RUN - 1, RUN, 3 * RUN + 5])
@pytest.mark.parametrize("where", [0, 1, RUN - 1, RUN, 2 * RUN + 3])
def test_one_among_many_alike_is_found(where: int, many: int, needle: tuple[bytes, int | None]) -> None:
    """Those are passed over by the run; what is of another shape, has the needle or says something is not."""
    where %= many
    for changed in ({"body": b"\x02\x00\x07needle!"}, {"body": b"\x02\x00\x07needle!!!!!"}, {"flags": MULTI | INTERRUPT}, {"error": True}):

        def script(turn: int, numbers: list[int], changed: dict[str, Any] = changed) -> list[Any]:
            parts = [told(NEWLINK, MULTI, numbers[0], b"\x02\x00\x00without.") + bytes(1) for _ in range(many)]
            if "body" in changed:
                body = changed["body"]
                parts[where] = told(NEWLINK, MULTI, numbers[0], body) + bytes(-len(body) % 4)
            elif turn == 1 and "flags" in changed:
                parts[where] = told(NEWLINK, changed["flags"], numbers[0], b"\x02\x00\x00without.") + bytes(1)
            elif turn == 1:
                parts[where:] = [ack(numbers[0], errno.EINVAL)]
            return [(KERNEL, b"".join([*parts, told(DONE, MULTI, numbers[0], bytes(4))]))]

        client, other = Client(script), Client(script)
        listed, found = client.listing(QUESTION), other.dump(QUESTION, needle[0])
        assert client.dumps == other.dumps == (2 if "flags" in changed else 1)
        if "error" in changed:
            assert listed == found and isinstance(found, Reply) and found.errno == errno.EINVAL
        else:
            expected = [changed["body"]] if "body" in changed else []
            assert isinstance(listed, list) and search(listed, *needle) == expected and found == expected


def test_a_listing_holds_nothing_of_another_answer() -> None:
    """What an earlier question was answered may still come in."""

    def script(turn: int, numbers: list[int]) -> list[Any]:
        late = [(KERNEL, told(NEWLINK, MULTI, numbers[0] - 1, b"late")), (KERNEL, b"short")]
        return [*late, *dumped(numbers[0], 0)]

    assert Client(script).listing(QUESTION) == [data for _sender, data in dumped(1, 0)]


def test_a_listing_that_is_too_long_is_given_up_and_not_begun_again_at_once() -> None:
    """The kernel goes on with it as long as anybody reads: the socket is closed."""
    client = Client(lambda _turn, numbers: dumped(numbers[0], 0))
    size = sum(len(data) for _sender, data in dumped(1, 0))
    assert client.short(QUESTION, size) == [data for _sender, data in dumped(1, 0)] and not client.long(QUESTION)
    assert client.short(QUESTION, size - 1) is None and client.kernel.closed == 1
    assert [client.long(QUESTION) for _time in range(ANEW + 1)].count(False) == 2, "once in so many times it is found out anew"
    assert not client.long(Encoded(18, 0, b"another"))
    assert client.short(QUESTION, size) is not None and not client.long(QUESTION)


@pytest.mark.parametrize("how", ["enough", "end", "refused", "failed", "interrupted"])
def test_the_first_ones_of_a_dump(how: str) -> None:
    def script(turn: int, numbers: list[int]) -> list[Any]:
        bodies = [told(NEWLINK, MULTI | INTERRUPT * (how == "interrupted"), numbers[0], body) for body in (b"yes1", b"yes2")]
        last = {"enough": told(NEWLINK, MULTI, numbers[0], b"no  "), "refused": ack(numbers[0], errno.EPERM)}
        code = pack("=i", -errno.EBUSY if how == "failed" else 0)
        return [(KERNEL, b"".join([*bodies, last.get(how, told(DONE, MULTI, numbers[0], code))]))]

    client = Client(script)
    if how == "interrupted":
        with pytest.raises(TryAgain):
            client.first(QUESTION, lambda body: body.startswith(b"yes"))
        return
    found = client.first(QUESTION, lambda body: body.startswith(b"yes"))
    assert found == {"refused": Reply(errno.EPERM), "failed": Reply(errno.EBUSY)}.get(how, [b"yes1", b"yes2"])
    assert client.kernel.closed == (how == "enough")


def test_many_questions_at_once() -> None:
    """Each answer where its question stands, whatever its order, and whatever comes in between."""

    def script(turn: int, numbers: list[int]) -> list[Any]:
        said = [ack(number, errno.ENETUNREACH) if number % 3 == 0 else told(NEWLINK, 0, number, b"%4d" % number) for number in numbers]
        return [(KERNEL, told(NEWLINK, 0, numbers[0] - 1, b"late")), (STRANGER, said[0]), *((KERNEL, each) for each in reversed(said))]

    client = Client(script)
    found = client.get_each([QUESTION] * 100)
    assert found == [Reply(errno.ENETUNREACH) if number % 3 == 0 else b"%4d" % number for number in range(1, 101)]
    assert client.get_each([]) == []
    with pytest.raises(TryAgain):
        Client(lambda _turn, numbers: [(KERNEL, ack(numbers[0], 1))]).get_each([QUESTION] * 2)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_one_without_the_needle_says_that_the_dump_is_broken(where: int) -> None:
    def script(turn: int, numbers: list[int]) -> list[Any]:
        flags = [MULTI | INTERRUPT * (turn == 1 and number == where) for number in range(3)]
        return [(KERNEL, told(NEWLINK, flag, numbers[0], b"xxxx")) for flag in flags] + [(KERNEL, told(DONE, MULTI, numbers[0], bytes(4)))]

    client = Client(script)
    assert client.dump(QUESTION, b"needle") == [] and client.dumps == 2


@pytest.mark.parametrize("end", [errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM])
def test_a_dump_that_does_not_end(end: int) -> None:
    client = Client(lambda turn, numbers: [*dumped(numbers[0], 0, 0)[:-1], end])
    with pytest.raises(TryAgain):
        client.dump(QUESTION)
    assert client.kernel.closed == 1


def test_a_dump_that_fails_on_the_way() -> None:
    """The end of it holds an errno, with words."""
    text = pack("=HH8s", 12, 1, b"no more")
    body = pack("=i", -errno.EINVAL) + text
    client = Client(lambda turn, numbers: [*dumped(numbers[0], 0)[:-1], (KERNEL, told(DONE, MULTI | TLVS, numbers[0], body))])
    assert client.dump(QUESTION) == Reply(errno.EINVAL, "no more")
    with pytest.raises(HostRefused, match="no more"):
        KernelView(client).links()


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN, errno.ENOMEM])
def test_a_dump_is_refused_for_now(number: int) -> None:
    client = Client(lambda turn, numbers: [(KERNEL, ack(numbers[0], number))])
    with pytest.raises(TryAgain):
        KernelView(client).links()


def test_one_link() -> None:
    client = Client(lambda turn, numbers: [(KERNEL, told(NEWLINK, 0, numbers[0], LINK))])
    found = KernelView(client).link("tap0")
    assert found is not None and found.name == "tap0"
    assert KernelView(client).link("alias0") is None, "an alternative name of it"
    client = Client(lambda turn, numbers: [(KERNEL, ack(numbers[0], errno.EPERM, "not you"))])
    with pytest.raises(HostRefused, match="not you"):
        KernelView(client).link("tap0")


NONSENSE = {
    "too long": HEADER.pack(200, NEWLINK, 0, 1, 0) + LINK,
    "too short": HEADER.pack(3, NEWLINK, 0, 1, 0) + LINK,
    "no code": HEADER.pack(18, ERROR, 0, 1, 0) + b"xx\0\0",
    "no name": told(NEWLINK, 0, 1, bytes(8)),
    "attribute beyond": told(NEWLINK, 0, 1, bytes(16) + pack("=HH", 90, 3)),
    "attribute of nothing": told(NEWLINK, 0, 1, bytes(16) + pack("=HH", 0, 3)),
    "number of three bytes": told(NEWLINK, 0, 1, bytes(16) + pack("=HH3sx", 7, 4, b"abc")),
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense(data: bytes) -> None:
    """A view raises TryAgain and nothing else."""
    with pytest.raises(TryAgain):
        KernelView(Client(lambda turn, numbers: [(KERNEL, data)])).link_at(9)


def test_the_socket_cannot_be_written_to() -> None:
    client = Client(lambda turn, numbers: [])

    def refuse(data: bytes) -> None:
        raise OSError(errno.ENOBUFS, "full")

    client.kernel.send = refuse  # type: ignore[method-assign]
    assert [reply.errno for reply in client.ask([encode.encode(SetLink(9))])] == [errno.ETIMEDOUT]
    with pytest.raises(TryAgain):
        client.dump(QUESTION)
