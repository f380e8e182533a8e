"""Where the demonstration takes place: a node and the world outside, in the namespaces that examples/demo made."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from examples.demolib.plans import TABLE, TABLE_NUMBER, WORLD, WORLD6
from tests.support import syscalls
from tests.support.netns import PRIVATE, Namespace, run, sysctl
from tests.support.node import Node, fresh
from tests.support.ovs import OpenVswitch


class Place(contextlib.ExitStack):
    """The node (which the calling thread is in), the world outside, and what the hooks told the journal."""

    def __init__(self) -> None:
        super().__init__()
        private_mounts()
        # The namespaces are there already; what the tests' node adds is a private /etc, /run and /sys.
        os.environ[PRIVATE] = "1"
        self.node: Node = self.enter_context(fresh())
        Path("/run/demo").mkdir()
        _private_devices(Path("/run/dev"))
        socket.sethostname("node1")
        self.journal: list[str] = []
        self.enter_context(_journal(self.journal))
        # Set, not assumed: a new network namespace inherits the machine's IPv4 settings.
        for name in ("all", "default"):
            sysctl(f"net/ipv4/conf/{name}/rp_filter", "0")
        self.node.forwarding(ipv6=True)
        self.outside: Namespace = self.node.outside("eth1", "10.99.1.9/24")
        self._bridge()
        self.ovs: OpenVswitch = self.enter_context(OpenVswitch.started())
        self._switch()
        self._routed()

    def _bridge(self) -> None:
        """br0 with the uplink eth1."""
        self.node.bridge("br0", "eth1")
        self.node.address("br0", "10.99.1.1/24")
        for address in (f"{WORLD}/32", f"{WORLD6}/128"):
            self.outside.run("ip", "address", "add", address, "dev", "lo")

    def _switch(self) -> None:
        """ovs0 with the uplink eth2 and an interface of the node itself, both in VLAN 10."""
        self.node.wire("eth2", self.outside, "eth1")
        self.outside.run("ip", "address", "add", "10.99.2.9/24", "dev", "eth1")
        self.ovs.bridge("ovs0")
        self.ovs.vsctl("add-port", "ovs0", "eth2", "tag=10")
        self.ovs.vsctl("add-port", "ovs0", "vlan10", "tag=10", "--", "set", "Interface", "vlan10", "type=internal")
        run("ip", "link", "set", "vlan10", "up")
        self.node.address("vlan10", "10.99.2.1/24")

    def _routed(self) -> None:
        """eth3 for routed guests: what comes in by it, and what the node itself sends, looks last in their table."""
        self.node.wire("eth3", self.outside, "eth2")
        self.node.address("eth3", "10.99.3.1/24", "fd99:3::1/64")
        for address in ("10.99.3.9/24", "fd99:3::9/64"):
            self.outside.run("ip", "address", "add", address, "dev", "eth2", *(("nodad",) if ":" in address else ()))
        tables = Path("/etc/iproute2/rt_tables.d")
        tables.mkdir(parents=True, exist_ok=True)
        (tables / "demo.conf").write_text(f"{TABLE_NUMBER}\t{TABLE}\n")
        for family, subnet, gateway in (("-4", "10.99.30.0/24", "10.99.3.1"), ("-6", "fd99:30::/64", "fd99:3::1")):
            for number, device in enumerate(("eth3", "lo")):
                run("ip", family, "rule", "add", "iif", device, "lookup", TABLE, "pref", str(33000 + number))
            run("ip", family, "route", "add", "default", "via", gateway[:-1] + "9", "dev", "eth3", "table", TABLE)
            self.outside.run("ip", family, "route", "add", subnet, "via", gateway)
        self.outside.run("ip", "route", "add", "10.99.4.0/24", "via", "10.99.3.1")

    def script(self, source: Path, folder: str, name: str) -> None:
        """Installs a site's own script in the node's /etc/netcommon/``folder``, as ``name``."""
        target = Path("/etc/netcommon") / folder
        target.mkdir(mode=0o755, parents=True, exist_ok=True)
        shutil.copyfile(source, target / name)
        (target / name).chmod(0o755)


def private_mounts() -> None:
    """What is mounted here stays here, whatever the machine shares (mount_namespaces(7)).

    unshare(1) cannot see to it where the root is a folder (chroot(2)) and not a mount. setns(2) into the mount namespace that one is
    in leads to its true root; from there it can be done, and then one goes back.
    """
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    syscalls.setns(namespace, syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.close(namespace)


def _private_devices(new: Path) -> None:
    """A /dev with the usual devices, a tun and room for /dev/log: the machine's own is neither read from nor added to."""
    new.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=0755", "dev", str(new))
    (new / "net").mkdir()
    for name in ("null", "zero", "full", "random", "urandom", "tty", "net/tun"):
        if Path("/dev", name).exists():
            (new / name).touch()
            run("mount", "--bind", f"/dev/{name}", str(new / name))
    if not (new / "net/tun").exists():
        os.mknod(new / "net/tun", 0o600 | stat.S_IFCHR, os.makedev(10, 200))  # Documentation/admin-guide/devices.txt
    (new / "shm").mkdir(mode=0o1777)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (new / name).symlink_to(target)
    run("mount", "--move", str(new), "/dev")


@contextlib.contextmanager
def _journal(lines: list[str]) -> Iterator[None]:
    """Listens on /dev/log, as the journal would, and keeps what is said (syslog(3), RFC 3164)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("/dev/log")

        def listen() -> None:
            while message := listener.recv(65536):
                text = message.decode("utf-8", "replace").partition(">")[2].rstrip("\0\n")
                # ovs-vsctl, with which the node was built, speaks here too
                lines.extend([text] if " netcommon[" in text else [])

        threading.Thread(target=listen, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RD)
