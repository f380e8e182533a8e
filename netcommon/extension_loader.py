"""Loads the site's own modes, features and operations: modules in /etc/netcommon/extensions, by the names that the settings give.

Hooks run without site-packages (python3 -S) and do not look for entry points of packages: reading all packages' metadata would cost a
hook more than its work. A node whose settings name no extension loads nothing of this. See docs/extending.md.
"""

from __future__ import annotations

import os
import sys

from runtime.errors import NetcommonError, SettingsInvalid, escaped
from runtime.modules import EXTENSIONS, LOADING
from runtime.modules import load as load_module
from runtime.trust import distrust_tree
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

#: The package that the site's modules are loaded into: so none of them can be taken for a module of Python's or of ours, nor those for it.
PACKAGE = "netcommon.extensions"


def load(name: str) -> ModuleType:
    """The extension ``name``. Raises SettingsInvalid where the settings do not name it, and where it cannot be used.

    Nothing of it is run before every file in its folder was found to be root's alone to write. Once loaded it stays as it is for as long
    as the process lives. For every thread: whoever asks while another one loads it gets it when it is whole.
    """
    folder = EXTENSIONS.get(name)
    if folder is None:
        raise SettingsInvalid(f"the extension {name} is not in the settings any more: put the table [extensions.{name}] back")
    while True:
        if _begun(name, folder):
            try:
                return load_module(f"{PACKAGE}.{name}")  # which waits for the thread that is at it, as each import does
            except KeyError:
                pass  # it has failed there: here it is said why
        with LOADING:
            if not _begun(name, folder):
                return _loaded(name, folder)


def _begun(name: str, folder: str) -> bool:
    """Tell whether some thread has loaded the extension ``name`` of this folder, or is at it."""
    found = sys.modules.get(f"{PACKAGE}.{name}")
    return found is not None and os.path.dirname(found.__file__ or "") in (folder, f"{folder}/{name}")


def _loaded(name: str, folder: str) -> ModuleType:
    """Load the extension ``name``. Raises SettingsInvalid where it cannot be used."""
    full = f"{PACKAGE}.{name}"
    if reason := distrust_tree(folder):
        raise SettingsInvalid(f"the extension {name} is not used: {reason}")
    sys.modules.pop(full, None)
    load_module(PACKAGE).__path__ = [folder]
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the folder is the site's: nothing is put into it
    load_module("netcommon.moved_names").keep()
    try:
        return load_module(full)
    except NetcommonError:
        raise
    except ModuleNotFoundError as error:
        if error.name != full:
            raise SettingsInvalid(f"the extension {name} cannot be loaded: {error}") from None
        raise SettingsInvalid(f"the extension {name} is not there: put {name}.py into {folder}, or take [extensions.{name}] out") from None
    except Exception as error:  # whatever its author did, the caller is told where
        raise SettingsInvalid(f"the extension {name} cannot be loaded: {failure(error)}") from None
    finally:
        sys.dont_write_bytecode = writes


def operations(name: str) -> tuple[Any, ...]:
    """The kinds of operations that the extension ``name`` adds: the classes in its OPERATIONS. Raises SettingsInvalid as ``load`` does."""
    found = getattr(load(name), "OPERATIONS", ())
    if not isinstance(found, tuple):
        raise SettingsInvalid(f"the extension {name}: OPERATIONS is no tuple of classes")
    for each in found:
        kind = getattr(each, "KIND", None)
        if not (isinstance(each, type) and isinstance(kind, str) and kind.startswith(f"{name}/")):
            raise SettingsInvalid(f"the extension {name}: {escaped(repr(each))} in OPERATIONS has no KIND of the form {name}/NAME")
    return found


def failure(error: BaseException) -> str:
    """What went wrong in an extension, and where: file and line of the innermost call."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{place}"
