"""Take an answer of HTTP/1.1 apart as it comes (RFC 9112): status, headers, and a body whose length is said or which is in chunks."""

from __future__ import annotations

import http.client
import re

LONGEST_HEAD = 1 << 16  #: bytes of status and headers, and of what says how long a chunk is
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: |$)")


class Received:
    """One answer. ``status``: 0 until the head has come; ``whole``: nothing more belongs to it; ``headers``: by name, in small letters."""

    def __init__(self) -> None:
        self.status, self.whole = 0, False
        self.headers: dict[str, str] = {}
        self._waiting = b""
        self._left: int | None = None  # of a body, or of a chunk and the line's end behind it; None: a chunk begins
        self._chunked = self._last = False  # the body is in chunks; this one is the last

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; give what of the body is among them. Raises http.client.HTTPException for what is no answer."""
        self._waiting += data
        if not self.status and not self._head():
            return b""
        found = self._chunks() if self._chunked else self._some()
        if self.whole and self._waiting:
            raise http.client.HTTPException("more than the answer has come")
        return found

    def _head(self) -> bool:
        head, mark, rest = self._waiting.partition(b"\r\n\r\n")
        if not mark:
            _bounded(head)
            return False
        lines = head.split(b"\r\n")
        matched = _STATUS.match(lines[0])
        if matched is None:
            raise http.client.BadStatusLine(lines[0][:80].decode("latin-1"))
        for line in lines[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length", "")
        if not self._chunked:
            if not (length.isascii() and length.isdecimal() and len(length) < 16):
                raise http.client.HTTPException("the answer does not say how long it is")
            self._left = int(length)
        self.status, self._waiting = int(matched[1]), rest
        return True

    def _some(self) -> bytes:
        """Give what there is of a body whose length is known."""
        left = self._left or 0
        found, self._waiting = self._waiting[:left], self._waiting[left:]
        self._left = left - len(found)
        self.whole = self._left == 0
        return found

    def _chunks(self) -> bytes:
        """Give what there is of chunks (section 7.1). Those that a service sends begin and end with lines, and are mostly whole."""
        found = []
        while self._waiting and not self.whole:
            if self._left is None:
                size, mark, rest = self._waiting.partition(b"\r\n")
                if not mark:
                    _bounded(size)
                    break
                self._waiting, self._left = rest, _size(size) + 2
                self._last = self._left == 2  # a service of ours sends no trailers: an empty line ends it
            part, self._waiting = self._waiting[: self._left], self._waiting[self._left :]
            before, self._left = self._left, self._left - len(part)
            found.append(part[: max(before - 2, 0)])
            if self._left == 0:
                self._left, self.whole = None, self._last
        return b"".join(found)


def _size(line: bytes) -> int:
    text = line.partition(b";")[0].strip()
    if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", text):
        raise http.client.HTTPException("a chunk does not say how long it is")
    return int(text, 16)


def _bounded(waiting: bytes) -> None:
    if len(waiting) > LONGEST_HEAD:
        raise http.client.LineTooLong("answer")
