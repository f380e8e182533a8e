"""What resolve sees of the host on a node whose taps bear no alias (the setting tap_alias is off): the records stand in for our mark."""

from __future__ import annotations

from runtime.errors import RecordTooNew
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node


class Recorded:
    """A view on which a device that is on record bears its NIC's mark."""

    def __init__(self, view: View, node: Node) -> None:
        self._view, self._node = view, node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def link(self, name: str) -> Link | None:
        return self._marked(self._view.link(name))

    def link_at(self, index: int) -> Link | None:
        return self._marked(self._view.link_at(index))

    def _marked(self, link: Link | None) -> Link | None:
        if link is None or link.alias:
            return link
        try:
            record = self._node.store.by_device(link.name)
        except RecordTooNew:  # which device it was made for cannot be told: it is that NIC's, and no other NIC's affair
            return link._replace(alias=f"{self._node.store.key_of(link.name).partition('.')[0]} of a newer version")
        if record is None or (record.ifindex, record.boot) != (link.index, self._node.identity.boot):
            return link
        return link._replace(alias=f"{record.uuid} {record.nic.label}")
