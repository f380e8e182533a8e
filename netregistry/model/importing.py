"""Define who imports a Ganeti cluster: which master, and how far it has come."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from netregistry.model import kinds
from netregistry.model.codec import Between

Serial = Annotated[int, Between(0, (1 << 62))]  #: of a Ganeti configuration: every change of it counts


class Import(NamedTuple):
    """The latest import of one cluster. It fences: nothing is imported of an older configuration, nor of another master's."""

    uuid: kinds.Uuid  #: of the cluster, by Ganeti
    master: kinds.Uuid  #: the node that is its master, by Ganeti
    node: kinds.Name  #: that node's name
    serial: Serial  #: of the configuration that was imported
    since: Serial  #: of the first one that this master has imported
    time: kinds.Time = 0.0


class Seen(NamedTuple):
    """Another master that a node has seen in a configuration, before it became the master itself; the latest serial of that one's."""

    master: kinds.Uuid
    serial: Serial


class Reading(NamedTuple):
    """Name the configuration of which an importer asks. ``seen``: another master, the one before; null where its node has known none."""

    uuid: kinds.Uuid
    master: kinds.Uuid
    node: kinds.Name
    serial: Serial
    seen: Seen | None = None
