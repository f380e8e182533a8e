"""Change the settings of the registry as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model import keys
from netregistry.model.codec import read_fields, write
from netregistry.model.history import Settings
from netregistry.request import Done, matched

if TYPE_CHECKING:
    from netregistry.draft import Draft
    from netregistry.request import Part


def set_(draft: Draft, part: Part) -> Done:
    """Change some of the settings."""
    matched(draft, keys.SETTINGS, part.match)
    found: Settings = draft.get(keys.SETTINGS) or Settings()
    found = found._replace(**read_fields(Settings, part.body, Settings._fields))
    draft.put(keys.SETTINGS, found)
    return Done(200, keys.SETTINGS, write(found))
