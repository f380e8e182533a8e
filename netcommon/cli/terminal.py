"""A terminal that a program draws on again and again (termios(3), ECMA-48): taken over, and given back as it was whatever happens."""

from __future__ import annotations

import os
import select
import signal
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Protocol

#: The alternate screen, without a cursor and without wrapping; and back.
TAKE, GIVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, TO_END_OF_LINE, TO_END = "\x1b[H", "\x1b[K", "\x1b[J"

#: The size of a terminal that does not know its own: columns and lines.
FALLBACK = 80, 24

#: What keys send, by the names that are used here.
KEYS = {
    "q": "quit", "Q": "quit", "\x03": "quit", "s": "sort", " ": "down", "b": "up",
    "\x1b[A": "back", "\x1b[B": "on", "\x1b[5~": "up", "\x1b[6~": "down", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOA": "back", "\x1bOB": "on", "\x1bOH": "home", "\x1bOF": "end", "g": "home", "G": "end", "r": "sort back",
}  # fmt: skip


class Screen(Protocol):
    """What is drawn on. Tests have one of their own."""

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        ...

    def draw(self, lines: Sequence[str]) -> None:
        """Shows these lines and nothing else."""
        ...

    def keys(self, seconds: float) -> list[str]:
        """What was pressed, by the names of KEYS, waiting for so long at most; "resized" where the terminal has another size."""
        ...


class Terminal:
    """A terminal, by its descriptors, within ``with``. SIGTERM and SIGHUP end the block by SystemExit: it is given back then too."""

    def __init__(self, reads: int, writes: int, encoding: str = "ascii") -> None:
        self._input, self._output, self._encoding = reads, writes, encoding
        self._before: list[Any] = []
        self._handlers: dict[int, object] = {}
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = -1

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(self._input)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda number, frame: None)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        tty.setcbreak(self._input)
        attributes = termios.tcgetattr(self._input)
        attributes[3] &= ~termios.ISIG  # Ctrl-C is a key here, and Ctrl-Z would leave the screen taken
        termios.tcsetattr(self._input, termios.TCSANOW, attributes)
        self._write(TAKE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._write(GIVE)
        except OSError:
            pass  # the terminal itself has gone
        try:
            termios.tcsetattr(self._input, termios.TCSANOW, self._before)
        except termios.error:
            pass
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # it is what signal() gave
        os.close(self._reader)
        os.close(self._writer)

    def size(self) -> tuple[int, int]:
        try:
            columns, lines = os.get_terminal_size(self._output)
        except OSError:
            return FALLBACK
        return (columns, lines) if columns and lines else FALLBACK

    def draw(self, lines: Sequence[str]) -> None:
        self._write(HOME + "\n".join(line + TO_END_OF_LINE for line in lines) + TO_END)

    def keys(self, seconds: float) -> list[str]:
        ready, _, _ = select.select([self._input, self._reader], [], [], max(seconds, 0.0))
        if self._reader in ready:
            try:
                os.read(self._reader, 4096)
            except BlockingIOError:
                pass
        if self._input not in ready:
            return ["resized"] if ready else []
        data = os.read(self._input, 256)
        return ["quit"] if not data else pressed(data.decode("ascii", "replace"))

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            data = data[os.write(self._output, data) :]


def pressed(text: str) -> list[str]:
    """The keys in what a terminal sent; what means nothing here is passed over."""
    found, longest = [], max(map(len, KEYS))
    while text:
        for length in range(min(longest, len(text)), 0, -1):
            if text[:length] in KEYS:
                found.append(KEYS[text[:length]])
                break
        else:
            length = 1
        text = text[length:]
    return found


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
