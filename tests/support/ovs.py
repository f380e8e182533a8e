"""Open vSwitch for one test: ovsdb-server and ovs-vswitchd of its own, userspace datapath, below the node's own /run.

The calling thread must be in a ``node.fresh()`` node: /run is then a tmpfs of the test's own, so /var/run/openvswitch is too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.netns import run, slowness, wait_until, waited

RUN = "/var/run/openvswitch"
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
SOCKET = f"{RUN}/db.sock"


class OpenVswitch:
    """A running pair of daemons."""

    def __init__(self, datapath: str = "netdev") -> None:
        self.datapath = datapath
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    @contextlib.contextmanager
    def started(cls, datapath: str = "netdev") -> Iterator[OpenVswitch]:
        """Starts both daemons and stops them at the end. ``datapath``: "netdev", or "system" where the kernel has openvswitch."""
        made = cls(datapath)
        try:
            made.start_database()
            made.start_switch()
            yield made
        finally:
            made.stop()

    def start_database(self) -> None:
        """ovsdb-server over its socket, with an empty database the first time."""
        os.makedirs(RUN, exist_ok=True)
        database = f"{RUN}/conf.db"
        if not os.path.exists(database):
            run("ovsdb-tool", "create", database, SCHEMA)
        self._start("ovsdb-server", database, f"--remote=punix:{SOCKET}", f"--unixctl={RUN}/ovsdb.ctl")
        wait_until(_listens, 10, "ovsdb-server's socket")
        run("ovs-vsctl", "--no-wait", "init")

    def start_switch(self) -> None:
        """ovs-vswitchd; returns when it has taken the configuration."""
        self._start("ovs-vswitchd", f"unix:{SOCKET}", f"--unixctl={RUN}/vswitchd.ctl", "--disable-system-route")
        self.vsctl("--timeout=60", "set", "Open_vSwitch", ".", "external_ids:started=yes")

    def _start(self, name: str, *arguments: str) -> None:
        binary = next(path for folder in ("/usr/sbin", "/usr/bin") if os.path.exists(path := f"{folder}/{name}"))
        with open(f"{RUN}/{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(
                [binary, *arguments, "-vconsole:warn", "-vsyslog:off"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )

    def vsctl(self, *arguments: str) -> str:
        """ovs-vsctl, the independent view. Raises AssertionError."""
        return run("ovs-vsctl", *(() if arguments[0].startswith("--timeout") else ("--timeout=20",)), *arguments).strip()

    def bridge(self, name: str = "ovs0", *ports: str) -> None:
        """A bridge with ``ports`` (existing devices), its own interface up."""
        self.vsctl("add-br", name, "--", "set", "Bridge", name, f"datapath_type={self.datapath}")
        for port in ports:
            self.vsctl("add-port", name, port)
        run("ip", "link", "set", name, "up")

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """The rows of a table as dictionaries of OVSDB's own JSON values (RFC 7047, 5.1), without their order."""
        return rows(table, columns)

    def freeze(self, name: str = "ovs-vswitchd") -> None:
        """SIGSTOP: a daemon that is there and does not answer."""
        self.daemons[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str = "ovs-vswitchd") -> None:
        """SIGCONT."""
        self.daemons[name].send_signal(signal.SIGCONT)

    def kill(self, name: str = "ovs-vswitchd") -> None:
        """SIGKILL, as a crash; the database stays. Start again with start_switch or start_database."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait(30)
        if name == "ovsdb-server" and os.path.exists(SOCKET):
            os.unlink(SOCKET)

    def waited(self) -> float:
        """Give the seconds for which the daemons that run now have waited for a processor."""
        return sum(waited(daemon.pid) for daemon in self.daemons.values())

    def stop(self) -> None:
        """Ends both, the switch first."""
        for name in ("ovs-vswitchd", "ovsdb-server"):
            if name in self.daemons:
                self.kill(name)


def _listens() -> bool:
    """Whether the database takes connections: its socket is there a moment before."""
    with socket.socket(socket.AF_UNIX) as made:
        try:
            made.connect(SOCKET)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def rows(table: str, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
    """See OpenVswitch.rows; for the database of this node, whoever started it."""
    return tables({table: columns})[table]


def tables(wanted: Mapping[str, Sequence[str]]) -> dict[str, list[dict[str, Any]]]:
    """Give the rows of tables, with these columns or all of them, as one transaction sees them, by the database's own protocol.

    RFC 7047, 4.1.3 and 5.2.2. Raises AssertionError where the database does not answer, or refuses.
    """
    asked = [{"op": "select", "table": name, "where": [], **({"columns": list(wanted[name])} if wanted[name] else {})} for name in wanted]
    answer = _answered({"method": "transact", "params": ["Open_vSwitch", *asked], "id": 0})
    assert answer["error"] is None and len(answer["result"]) == len(asked), answer
    assert all("rows" in each for each in answer["result"]), answer
    found = {name: each["rows"] for name, each in zip(wanted, answer["result"], strict=True)}
    for row in (row for name in wanted if not wanted[name] for row in found[name]):
        del row["_version"]  # of the row as it is now: it counts transactions
    return {name: sorted(each, key=lambda row: json.dumps(row.get("_uuid"))) for name, each in found.items()}


def _answered(request: dict[str, Any], seconds: float = 20) -> dict[str, Any]:
    """Ask the database; give its answer, which is all that it says to who asks once."""
    said = b""
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(seconds * slowness())
        try:
            made.connect(SOCKET)
            made.sendall(json.dumps(request).encode())
            while True:
                more = made.recv(1 << 18)
                assert more, f"the database has hung up after {said!r}"
                said += more
                with contextlib.suppress(ValueError):  # there is more to come
                    found: dict[str, Any] = json.loads(said)
                    return found
        except OSError as error:
            raise AssertionError(f"the database: {error}") from error


def settled(seconds: float = 5) -> bool:
    """Waits until ovs-vswitchd has taken in all that clients asked for (next_cfg, ovs-vswitchd.conf.db(5)); False: it did not.

    It takes a port's removal in after the client that removed it has its answer, and sets its own devices' MTU then.
    """
    limit = time.monotonic() + seconds * slowness()
    while any(row["cur_cfg"] != row["next_cfg"] for row in rows("Open_vSwitch", ("cur_cfg", "next_cfg"))):
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True
