"""Modules that are loaded by name when they are needed. importlib would cost a hook a third of a millisecond."""

from __future__ import annotations

import sys

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def load(name: str) -> ModuleType:
    """The module of that full name, imported if need be. Raises ImportError."""
    __import__(name)
    return sys.modules[name]
