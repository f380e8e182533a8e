"""The script that stood at /etc/qemu-ifup before our install: where it lies now, and how it is started under the name it had."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from netcommon.install.manifest import SAVED
from netcommon.scripts.door_files import is_marked

#: How many links a path may lead through, as for the kernel (path_resolution(7)).
LINKS = 40

#: Runs the file {0} as if it were the program, with the name that comes first among the arguments.
PYTHON = """import os, sys
del sys.argv[0]
if sys.path[:1] == ['']:
    sys.path[0] = os.path.dirname(os.path.realpath({0}))
__file__ = sys.argv[0]
exec(compile(open({0}, 'rb').read(), __file__, 'exec'))
"""


def find(saved: str) -> str:
    """Return the file that is started by what our install keeps as ``saved``; "" where there is none.

    Follow links by hand: one of them may lead to a name where a door of ours stands now, and what stood there is beside it.
    """
    path = saved
    for _ in range(LINKS):
        folder = os.path.realpath(os.path.dirname(path))
        path = os.path.join(folder, os.path.basename(path))
        try:
            path = os.path.join(folder, os.readlink(path))
        except OSError:
            if not is_marked(_head(path)):
                return path if os.path.isfile(path) else ""
            path += SAVED
    return ""


def command(path: str, name: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the program, and its command line, that start the file at ``path`` under ``name``.

    A binary takes any name. The kernel tells a script's interpreter where the script lies, and a script believes that to be its name:
    so a shell and Python are told both. A script of another language is called as it lies; a script of bash that asks where it lies,
    too, since it compares that with its name.
    """
    head = _head(path)
    words = os.fsdecode(head.partition(b"\n")[0][2:]).split(None, 1) if head.startswith(b"#!") and os.access(path, os.X_OK) else []
    interpreter, option = (*words, "", "")[:2]
    option = option.strip()
    called = os.path.basename(interpreter)
    if called == "env":
        called, options = option, ""
    else:
        options = option
    for language, known, program in LANGUAGES:
        if re.fullmatch(language, called) and re.fullmatch(known, options) and b"BASH_SOURCE" not in head:
            return interpreter, [interpreter, *([option] if option else []), "-c", program(path), name, *arguments]
    return path, [name, *arguments]


def _shell(path: str) -> str:
    return ". '" + path.replace("'", "'\\''") + "'"


def _python(path: str) -> str:
    return PYTHON.format(repr(path))


#: Interpreters by name, the options that they may have in a script's first line, and the program that runs a file for them.
LANGUAGES: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("sh|dash|bash|ash|ksh|mksh", "(-[efuvx]+)?", _shell),
    ("python[0-9.]*", "(-[BEIOPSsu]+)?", _python),
)


def _head(path: str) -> bytes:
    """Return the beginning of a file, b"" of what cannot be read: the whole of any script that somebody has written."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            return stream.read(1 << 16)
    except OSError:
        return b""
