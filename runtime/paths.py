"""Where things lie on a node. Tests and simulated nodes use ``Paths.under(root)``."""

from __future__ import annotations

from runtime.typed import NamedTuple


class Paths(NamedTuple):
    """Absolute paths, without a trailing slash."""

    state: str = "/run/netcommon"
    etc: str = "/etc/netcommon"
    ganeti_run: str = "/var/run/ganeti"
    ganeti_etc: str = "/etc/ganeti"
    ganeti_lib: str = "/usr/lib/ganeti"
    ovsdb: str = "/var/run/openvswitch/db.sock"
    ovs_kept: str = "/etc/openvswitch/conf.db"  #: the database on disk, while its server is stopped too
    iproute2: tuple[str, ...] = ("/usr/share/iproute2", "/usr/lib/iproute2", "/etc/iproute2")
    proc: str = "/proc"
    log: str = "/dev/log"
    xen_etc: str = "/etc/xen"
    journal: str = "/run/systemd/journal/socket"
    lib: str = "/var/lib/netcommon"

    @classmethod
    def under(cls, root: str) -> Paths:
        """The same layout below the folder ``root``."""
        made = [tuple(root + part for part in value) if isinstance(value, tuple) else root + value for value in cls()]
        return cls._make(made)

    @property
    def config(self) -> str:
        return self.etc + "/config.toml"

    @property
    def definitions(self) -> str:
        return self.etc + "/nics.d"

    @property
    def wanted(self) -> str:
        return self.lib + "/wanted"

    @property
    def templates(self) -> str:
        return self.etc + "/templates"

    @property
    def extensions(self) -> str:
        return self.etc + "/extensions"

    @property
    def kvm_run(self) -> str:
        return self.ganeti_run + "/kvm-hypervisor"

    @property
    def xen_run(self) -> str:
        return self.ganeti_run + "/xen-hypervisor"
