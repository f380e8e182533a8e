"""Load the settings of a node: /etc/netcommon/config.toml over the defaults (netcommon.settings.model).

What the file may hold, and the reading of it, is in netcommon.settings.parse, which is imported only where there is a file.
"""

from __future__ import annotations

import os

from netcommon.settings.model import Settings
from runtime.errors import SettingsInvalid
from runtime.modules import LOADING, allow
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.settings.parse import Effective
    from runtime.paths import Paths


def load(paths: Paths) -> Settings:
    """The settings of this node; what they name of the site's extensions may be loaded from now on.

    Raises SettingsInvalid, which lists every error of the file, one a line.
    """
    with LOADING:  # of threads that read it, the last one says which may be loaded
        found = _load(paths)
        allow(found.extensions, paths.extensions)
    return found


def _load(paths: Paths) -> Settings:
    descriptor = _open(paths.config)
    if descriptor < 0:
        return Settings()
    from netcommon.settings import cache  # where there is a file

    status = os.fstat(descriptor)
    known = cache.identity(status)
    found = cache.kept(paths.state, known)
    if found is not None:
        os.close(descriptor)
        return found
    from netcommon.settings import parse  # dear, and once for each change of the file

    found = parse.read(descriptor, paths.config).settings
    cache.keep(paths.state, known, found, status)
    return found


def explain(paths: Paths) -> list[Effective]:
    """Every effective setting with its source, in the schema's order. Raises SettingsInvalid as ``load`` does."""
    from netcommon.settings import parse

    descriptor = _open(paths.config)
    return parse.effective(parse.Loaded() if descriptor < 0 else parse.read(descriptor, paths.config))


def _open(path: str) -> int:
    """A descriptor of the file, -1 where there is none. Does not block on what is no regular file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        for each in (path, os.path.dirname(path)):  # an agent may not see where its folder leads, as a hook does
            if os.path.islink(each) and not os.path.exists(each):
                raise SettingsInvalid(f"{each}: a symbolic link to nothing") from None
        return -1
    except OSError as error:
        raise SettingsInvalid(f"{path}: cannot be read: {error.strerror}") from None
