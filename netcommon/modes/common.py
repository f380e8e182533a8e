"""What several modes share."""

from __future__ import annotations

from netcommon.operations.link import ALIAS, ALIAS_LIMIT, LinkSetting
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.nic import Nic


def alias(nic: Nic) -> LinkSetting:
    """The mark on the device: the UUID first, so that it survives being cut; instance and index for the reader."""
    text = f"{nic.uuid} {nic.label}".encode()[:ALIAS_LIMIT].decode(errors="ignore")
    return LinkSetting(nic.interface, ALIAS, text)
