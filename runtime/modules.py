"""Modules that are loaded by name when they are needed. importlib would cost a hook a third of a millisecond."""

from __future__ import annotations

import sys
from _thread import RLock  # by threading it would be a module more for each hook

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

#: The site's own modules that this process may load (netcommon.extensions): name -> the folder that it lies in.
EXTENSIONS: dict[str, str] = {}

#: Held by the thread that loads one of them, or reads which they are: the last that has read it counts.
LOADING = RLock()


def load(name: str) -> ModuleType:
    """The module of that full name, imported if need be. Raises ImportError."""
    __import__(name)
    return sys.modules[name]


def allow(extensions: Iterable[str], folder: str) -> None:
    """From now on these modules of the site may be loaded, from ``folder``, and no others. Nothing is read yet.

    To be called with LOADING held since before it was read which they are.
    """
    names = tuple(extensions)
    EXTENSIONS.update((name, folder) for name in names)  # none is missing for an instant: another thread may be at work
    for name in set(EXTENSIONS).difference(names):
        del EXTENSIONS[name]
