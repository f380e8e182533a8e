"""Which files are our own doors, in whichever way a site or our install has put them in place."""

from __future__ import annotations

import os
import shlex

#: A line that our install writes into each wrapper and folder of ours.
MARKER = "# netcommon-door: installed by netcommon install, removed by netcommon install --uninstall"

#: Beside the doors that hand over to the agent: those that do the work themselves.
COLD = "cold"

#: A wrapper that only hands over to a door is smaller than this (bytes).
SMALL = 4096

#: So many scripts, each of which only starts the next, are followed to a door.
MOST = 8


def is_door(path: str, hooks: str) -> bool:
    """Whether the file at ``path`` is one of the doors in the folder ``hooks`` or its cold/, or does nothing but start one.

    A symbolic link to one, a hard link, a bind mount or a copy of one, a wrapper of our install, or a site's wrapper of a
    single ``exec``.
    """
    try:
        status = os.stat(path)
    except OSError:
        return False
    if _among(path, hooks):
        return True
    same_size = []
    for name in executables(hooks):
        try:
            door = os.stat(name)
        except OSError:
            continue
        if door.st_size == status.st_size:
            same_size.append(name)
    content = _content(path)
    if any(_content(name) == content for name in same_size) and content:
        return True
    return is_marked(content) or _starts_door(content, hooks)


def starts_installed(path: str, hooks: str) -> bool:
    """Tell if the script at ``path`` only starts a door that our install, or a site, has put in place under another name.

    Such as ``exec /usr/lib/ganeti/kvm-ifup "$@"``; also by way of another such script.
    """
    for _ in range(MOST):
        path = _started(_content(path))
        if not path or is_door(path, hooks):
            return bool(path)
    return False


def is_marked(content: bytes) -> bool:
    """Tell whether this file began as one that our install wrote: there the marker is on one of the first two lines."""
    return MARKER.encode() in content[:SMALL].splitlines()[:2]


def _among(path: str, hooks: str) -> bool:
    folder = os.path.realpath(hooks)
    return os.path.dirname(os.path.realpath(path)) in (folder, f"{folder}/{COLD}")


def executables(hooks: str) -> list[str]:
    """The paths of our doors, those in cold/ too."""
    found = []
    for folder in (hooks, f"{hooks}/{COLD}"):
        try:
            found += [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name != COLD]
        except OSError:
            continue
    return found


def _content(path: str) -> bytes:
    """The file's bytes; b"" of one that is larger than a door ever is, or cannot be read."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            data = stream.read((1 << 16) + 1)
    except OSError:
        return b""
    return data if len(data) <= 1 << 16 else b""


def _starts_door(content: bytes, hooks: str) -> bool:
    """Tell whether a shell script's only command is to start a door of ours: ``exec .../hooks/kvm-ifup "$@"``, then at most an exit."""
    program = _started(content)
    return bool(program) and _among(program, hooks)


def _started(content: bytes) -> str:
    """The path of the program that is a shell script's only command; "" where the script does anything else but to exit then.

    Not where it names a device itself: then it is about that NIC, whichever one it was called for.
    """
    if not content.startswith(b"#!") or len(content) > SMALL:
        return ""
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith("#") and line.split()[0] != "set"]
    if len(lines) != 1:
        return ""
    try:
        commands = _commands(lines[0])
    except ValueError:
        return ""
    called = [word for word in commands[0] if word != "exec" and "=" not in word]
    program = called[0] if called else ""
    if len(called) > 1 and called[1][:1].isalpha() and "$" not in called[1]:
        return ""
    if any(words and words[0] not in ("exit", "true", ":") for words in commands[1:]):
        return ""
    return program if program.startswith("/") else ""


def _commands(line: str) -> list[list[str]]:
    """The words of each of a line's commands: "a b || c; d" has three. Raises ValueError for quotes that do not close."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if not word.strip(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands
