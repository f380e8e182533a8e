"""Consoles of guests at their endpoints, as examples/endpoints has them: sockets of a real QEMU, a real kernel, a client elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netcommon.lifecycle.context import Clock, open_node
from netcommon.lifecycle.underlay import hold
from netcommon.log import recording
from netcommon.settings.model import Settings
from runtime import underlay
from runtime.paths import Paths
from tests.support.bootstrap import ROOT
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.node_underlay import EPOCH, PREFIX, address, endpoint, give, join, said
from tests.support.registry import NODES

EXAMPLES = ROOT / "examples/endpoints"
CONSOLES = str(EXAMPLES / "consoles")
VNC = "/run/vnc/{instance}.vnc"
BANNER = b"RFB 003.008\n"  #: what a VNC server says first (RFC 6143, 7.1.1)


@contextmanager
def process(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end."""
    made = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        yield made
    finally:
        made.kill()
        made.wait()


@contextmanager
def qemu(instance: str, *vnc: str) -> Iterator[None]:
    """Run a QEMU that stands still, with the sockets that Ganeti gives it; ``vnc``: where it listens for VNC besides."""
    os.makedirs("/run/vnc", exist_ok=True)
    serial = f"/run/{instance}.serial"
    argv = ["qemu-system-x86_64", "-nodefaults", "-machine", "q35,accel=tcg", "-m", "32", "-S", "-display", "none"]
    argv += ["-vnc", *(vnc or (f"unix:{VNC.format(instance=instance)}",)), "-serial", f"unix:{serial},server,nowait"]
    with process(*argv):
        wait_until(lambda: os.path.exists(serial), 30, "QEMU is there")
        yield


def held() -> None:
    """Make what is known of the underlay."""
    node = open_node(Paths(), Settings(), Clock())
    try:
        assert hold(node, recording()[0]).problem == ""
    finally:
        node.store.close()
        node.host.close()


def greeting(outside: Namespace, where: str, port: int = 5900) -> bytes:
    """Give what a client elsewhere is told first; nothing where nobody answers."""
    try:
        with outside.entered(), socket.create_connection((where, port), 5) as client:
            return client.recv(len(BANNER), socket.MSG_WAITALL)
    except OSError:
        return b""


@pytest.fixture
def outside(node: Node) -> Namespace:
    """Give the site beside a node, whose routers send the node's prefix to it. The loopback is up."""
    run("ip", "link", "set", "lo", "up")
    found = node.outside("up0", "fd00:f::1/64")
    node.address("up0", "fd00:f::2/64")
    found.run("ip", "-6", "route", "add", PREFIX, "via", "fd00:f::2")
    return found


def test_a_guests_screen_is_at_its_endpoint(node: Node, outside: Namespace) -> None:
    """Serve each guest its own; one that comes is served, and one that goes is not any more."""
    give(Paths(), 0)
    held()
    with qemu("web0"), qemu("web1"), process(CONSOLES, "--socket", VNC):
        wait_until(lambda: greeting(outside, address(0)) == BANNER, 20, "the guest's screen is there")
        assert greeting(outside, address(1)) == b""
        give(Paths(), 0, 1, generation=2)
        held()
        wait_until(lambda: greeting(outside, address(1)) == BANNER, 20, "another guest's is, too")
        give(Paths(), 1, generation=3)
        held()
        wait_until(lambda: greeting(outside, address(0)) == b"", 20, "of a guest that has gone there is none")
        assert greeting(outside, address(1)) == BANNER


def test_nobody_is_served_at_an_address_that_is_retired(node: Node, outside: Namespace) -> None:
    """It is there until it is forgotten, and no name leads to it any more; its guest may have come back to another one."""
    join(Paths())
    again = endpoint(1, instance="web0", name="web0.console.example")
    for generation, endpoints in enumerate(([endpoint(0)], [endpoint(0, state="retired", name=""), again]), 1):
        underlay.write(Paths(), underlay.underlay_of(NODES[0], f"{EPOCH}:{generation}", said(*endpoints, generation=generation)))
    held()
    with qemu("web0"), process(CONSOLES, "--socket", VNC):
        wait_until(lambda: greeting(outside, address(1)) == BANNER, 20, "the guest's screen is there")
        assert greeting(outside, address(0)) == b""


def test_it_may_be_there_before_the_address_and_before_the_guest(node: Node, outside: Namespace) -> None:
    """In whatever order they start."""
    with process(CONSOLES, "--socket", VNC):
        give(Paths(), 0)
        held()
        with qemu("web0"):
            wait_until(lambda: greeting(outside, address(0)) == BANNER, 20, "the guest's screen is there")


def test_a_port_that_is_taken_is_served_as_soon_as_it_is_free(node: Node, outside: Namespace, tmp_path: Path) -> None:
    """As by the consoles before, which are just ending. It is said once."""
    give(Paths(), 0)
    held()
    errors = tmp_path / "errors"
    other = socket.create_server((address(0), 5900), family=socket.AF_INET6)
    with qemu("web0"), other, errors.open("wb") as file:
        made = subprocess.Popen([CONSOLES, "--socket", VNC], stdin=subprocess.DEVNULL, stderr=file)
        try:
            wait_until(lambda: b"in use" in errors.read_bytes(), 20, "it has found the port taken")
            last = os.stat(Paths().lib + "/underlay.json").st_mtime_ns
            other.close()
            wait_until(lambda: greeting(outside, address(0)) == BANNER, 20, "the guest's screen is there")
            assert os.stat(Paths().lib + "/underlay.json").st_mtime_ns == last and errors.read_bytes().count(b"in use") == 1
        finally:
            made.kill()
            made.wait()


def test_of_two_guests_of_one_name_none_is_anothers(node: Node, outside: Namespace) -> None:
    """A socket is found by the name alone, so it is to be said whose it is."""
    join(Paths())
    two = [endpoint(0), endpoint(1, instance="web0", cluster="gnt.example.com")]
    underlay.write(Paths(), underlay.underlay_of(NODES[0], f"{EPOCH}:1", said(*two, endpoint(2))))
    held()
    with qemu("web0"), qemu("web2"):
        with process(CONSOLES, "--socket", VNC):
            wait_until(lambda: greeting(outside, address(2)) == BANNER, 20, "a guest whose name is its own is served")
            assert greeting(outside, address(0)) == greeting(outside, address(1)) == b""
        with process(CONSOLES, "--socket", VNC, "--cluster", "gnt.example.com"):
            wait_until(lambda: greeting(outside, address(1)) == BANNER, 20, "a cluster's guests are served")
            assert greeting(outside, address(0)) == greeting(outside, address(2)) == b""


@pytest.mark.parametrize("said", ["[::]:77", ":77"], ids=["::", "0.0.0.0"])
def test_a_vnc_bind_address_of_all_is_at_the_endpoint_too(node: Node, outside: Namespace, said: str) -> None:
    """On the port that Ganeti has given the guest, and on all other addresses of the node. ``said``: what Ganeti makes of it for QEMU."""
    give(Paths(), 0)
    held()
    with qemu("web0", said):
        wait_until(lambda: greeting(outside, address(0), 5977) == BANNER, 20, "QEMU itself answers")
        assert greeting(outside, "fd00:f::2", 5977) == BANNER


def test_the_socket_units_of_a_guest(node: Node, tmp_path: Path) -> None:
    """The script says where to listen, and systemd takes what it says; a guest that has come back keeps what it has by then."""
    folder, called = tmp_path / "units", tmp_path / "called"
    stub = tmp_path / "bin/systemctl"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$*" >>{called}\n')
    stub.chmod(0o755)

    def told(context: str, number: int, kind: str = "console") -> None:
        said = {"INSTANCE": "web0", "NETCOMMON_ENDPOINT_KIND": kind, "NETCOMMON_ENDPOINT_ADDRESS": address(number)}
        environ = {"PATH": f"{stub.parent}:{os.environ['PATH']}", "SYSTEMD_RUN": str(folder), "NETCOMMON_CONTEXT": context, **said}
        subprocess.run([EXAMPLES / "endpoint.d/60-console", address(number), context], env=environ, check=True)

    told("endpoint-up", 0)
    told("endpoint-up", 5, "exporter")
    told("endpoint-change", 0)
    part = folder / "console@web0.socket.d/endpoint.conf"
    assert part.read_text() == f"[Socket]\nListenStream=\nListenStream=[{address(0)}]:5900\n"
    assert called.read_text().splitlines() == ["daemon-reload", "--no-block restart console@web0.socket"]
    for unit in ("console@.socket", "console@.service", "consoles.service"):
        text = (EXAMPLES / unit).read_text().replace("/usr/lib/systemd/systemd-socket-proxyd", "/bin/true")
        name = unit.replace("@.", "@web0.")
        (folder / name).write_text(text.replace("/usr/local/lib/netcommon-endpoints/consoles", "/bin/true"))
    units = [str(folder / name) for name in ("console@web0.socket", "console@web0.service", "consoles.service")]
    assert run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units) == ""
    told("endpoint-up", 1)
    told("endpoint-down", 0)
    assert address(1) in part.read_text()
    called.unlink()
    told("endpoint-down", 1)
    assert not part.parent.exists() and called.read_text().splitlines() == ["--no-block stop console@web0.socket", "daemon-reload"]
    told("endpoint-down", 1)
