"""The documents of ``netcommon registry ... --json``, as types: see pages.documents."""

from __future__ import annotations

from typing import Any, NamedTuple


class Registry(NamedTuple):
    """Hold what a registry has, each item as its HTTP interface gives it (docs/reference/registry-api.md)."""

    revision: str  #: EPOCH:REVISION of all of it
    items: tuple[Any, ...]


class RegistryChange(NamedTuple):
    """Say what a change has done, or with --dry-run would do."""

    revision: str  #: EPOCH:REVISION of what was changed; "" of a rehearsal
    done: bool  #: false: a rehearsal
    value: Any  #: what was changed, as it is then
    changes: tuple[Any, ...]  #: of a rehearsal: each key before and after


class RegistryPages(NamedTuple):
    """Say how a browser reaches the registry's pages.

    ``command`` lets it reach ``url`` by ssh. ``addresses``: those by TLS, for which the browser needs the certificate in the folder
    ``identity``.
    """

    command: str
    url: str
    addresses: tuple[str, ...]
    identity: str


class RegistryFile(NamedTuple):
    """Name a registry's file that was made."""

    path: str
    epoch: str  #: which begins with it; "" of a copy
    kept: str  #: the file that a restore has kept what stood there in; "" for none


class RegistryImport(NamedTuple):
    """Say what became of the lines of an export."""

    done: bool  #: false: a rehearsal
    made: int  #: lines
    there: int  #: lines whose object was so already
    refused: tuple[Any, ...]  #: lines, each with why


class RenamedCluster(NamedTuple):
    """Say by which name a Ganeti cluster was imported before, and how much of the registry had that one."""

    before: str
    nics: int
    networks: int
    nodes: int


class RegistryImportGaneti(NamedTuple):
    """Say what became of the configuration of a Ganeti cluster."""

    done: bool  #: false: a rehearsal
    cluster: str
    node: str  #: the cluster's master
    serial: int  #: of the configuration
    made: int  #: NICs and networks
    changed: int
    deleted: int
    refused: tuple[Any, ...]  #: NICs and networks that the registry does not take, each with why
    problems: tuple[str, ...]  #: what of the configuration cannot be in a registry
    renamed: tuple[RenamedCluster, ...]  #: by --take-over after gnt-cluster rename; several if an earlier one was not done to its end
    apart: tuple[str, ...]  #: nodes that have NICs of the cluster, and are of another one, or none


class RegistryCompact(NamedTuple):
    """Say what a compaction has done."""

    done: bool  #: false: a rehearsal
    before: int  #: bytes of the file
    after: int


class RegistryStatus(NamedTuple):
    """Say how a registry's service is."""

    program: str  #: its version
    epoch: str
    revision: str
    leader: bool  #: this service does what must happen by time
    networks: int
    nics: int
    nodes: int
    alive: int  #: nodes
    conflicts: int
    streams: int
    history: int  #: requests that are remembered
    unreadable: tuple[str, ...]  #: keys whose values cannot be read
    waiting: tuple[str, ...]  #: live nodes that have not reported since a restore: nothing is given out before
    held: int  #: seconds for which no option or quarantine ends yet, since the clock has jumped, or looked wrong at the start
    store: str  #: what keeps the registry: file or etcd
