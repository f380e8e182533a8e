"""A node announces its prefix by BIRD, and by FRR, as docs/underlay.md has it: both from Debian, run by hand in a namespace."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from runtime.paths import Paths
from tests.kernel.test_endpoints import held
from tests.support.bootstrap import ROOT, unpacked
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.node_underlay import PREFIX, address, give

PAGE = ROOT / "docs/underlay.md"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SITE = "fd12:3456:789a::/48"  #: in the page
TESTED = "fd00:1:2::/48"  #: in this test

#: What the other end is: a router that takes the prefixes, and has its kernel route them.
ROUTER = """
log stderr all;
router id 192.0.2.1;
protocol device {}
protocol kernel { ipv6 { export all; import none; }; }
protocol bgp node {
    local as 65000;
    neighbor fe80::2%eth0 as 65010;
    ipv6 { import all; export none; };
}
"""


def configuration(heading: str) -> str:
    """Give the block of text below a heading of the page, for this test's site."""
    _, _, rest = PAGE.read_text().partition(f"### {heading}\n")
    (block,) = re.findall(r"\n```\n(.*?)\n```\n", rest.partition("\n### ")[0], re.S)
    return str(block).replace(SITE, TESTED) + "\n"


class Routers:
    """Programs that run until the end."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder

    def start(self, name: str, *argv: str, paths: tuple[str, ...] = ()) -> None:
        """Run a program in the calling thread's namespace; ``paths``: of its libraries."""
        with open(self._folder / f"{name}.log", "ab") as log:
            environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}
            made = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self._stack.callback(made.wait)
        self._stack.callback(made.kill)

    def bird(self, name: str, text: str) -> None:
        """Run BIRD."""
        file = self._folder / f"{name}.conf"
        file.write_text(text)
        libraries = (str(unpacked("libssh-gcrypt-4") / LIBRARIES),)
        bird = str(unpacked("bird2") / "usr/sbin/bird")
        self.start(name, bird, "-f", "-c", str(file), "-s", str(self._folder / f"{name}.ctl"), paths=libraries)

    def frr(self, text: str) -> None:
        """Run zebra and bgpd of FRR. They look for a group and for their models at one place alone."""
        frr = unpacked("frr")
        group = self._folder / "group"
        group.write_text(f"{Path('/etc/group').read_text()}frrvty:x:65530:root\n")
        file = self._folder / "frr.conf"
        file.write_text(text)
        self._mounted("--bind", str(group), "/etc/group")
        self._mounted("-t", "overlay", "overlay", "-o", f"lowerdir={frr}/usr/share:/usr/share", "/usr/share")
        libraries = (str(frr / LIBRARIES / "frr"), str(unpacked("libyang2") / LIBRARIES))
        place = self._folder / "frr"
        place.mkdir()
        common = ("-u", "root", "-g", "root", "-f", str(file), "-P", "0", "-z", f"{place}/zserv.api", "--vty_socket", str(place))
        for name in ("zebra", "bgpd"):
            more = ("--log", "stdout", "-i", f"{place}/{name}.pid")
            self.start(name, str(frr / "usr/lib/frr" / name), *common, *more, paths=libraries)
            if name == "zebra":
                wait_until((place / "zserv.api").exists, 20, f"zebra is there: {self.logs()}")

    def has_told_all(self) -> bool:
        """Tell whether bgpd, where it runs, has sent all of a session's beginning."""
        vty = self._folder / "frr/bgpd.vty"
        if not vty.exists():
            return True
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(vty))
            asking.sendall(b"show bgp ipv6 neighbors fe80::1\0")
            said = b""
            while b"\0" not in said and (more := asking.recv(4096)):
                said += more
        return b"End-of-RIB send: IPv6 Unicast" in said

    def _mounted(self, *argv: str) -> None:
        run("mount", *argv)
        self._stack.callback(run, "umount", argv[-1])

    def logs(self) -> str:
        """Give what all of them have said."""
        return "\n".join(each.read_text() for each in sorted(self._folder.glob("*.log")))


@contextmanager
def routers(folder: Path) -> Iterator[Routers]:
    """See Routers."""
    with ExitStack() as stack:
        yield Routers(stack, folder)


@pytest.fixture
def outside(node: Node) -> Namespace:
    """Give a router beside the node; both have link-local addresses alone between them."""
    run("ip", "link", "set", "lo", "up")
    node.forwarding(ipv6=True)
    found = node.outside("up0")
    run("ip", "-6", "address", "add", "fe80::2/64", "dev", "up0", "nodad")
    found.run("ip", "-6", "address", "add", "fe80::1/64", "dev", "eth0", "nodad")
    found.run("ip", "link", "set", "lo", "up")
    found.run("ip", "-6", "address", "add", "fd00:f::1/128", "dev", "lo")
    run("ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "up0")
    return found


def routed(outside: Namespace) -> list[str]:
    """Give the prefixes that the router sends to the node."""
    shown = outside.run("ip", "-6", "route", "show", "via", "fe80::2").splitlines()
    return [line.split()[0] for line in shown]


def answers(outside: Namespace, where: str) -> bool:
    """Tell whether an endpoint answers somebody beyond the router."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as served:
        served.bind((where, 5900))
        served.listen()
        with outside.entered(), socket.create_connection((where, 5900), 5, ("fd00:f::1", 0)) as client:
            there, _peer = served.accept()
            with there:
                there.sendall(b"here")
                return client.recv(4) == b"here"


def by_bird(made: Routers) -> None:
    made.bird("node", configuration("BIRD"))


def by_frr(made: Routers) -> None:
    made.frr(configuration("FRR"))


@pytest.mark.parametrize("begin", [by_bird, by_frr], ids=["bird", "frr"])
def test_a_node_announces_its_prefix_and_nothing_else(
    node: Node, outside: Namespace, tmp_path: Path, begin: Callable[[Routers], None]
) -> None:
    """As long as it has one: before and after its routing daemon starts, and until it is taken back."""
    run("ip", "-6", "route", "add", "unreachable", "fd00:1:2:9::/64", "proto", "static")
    run("ip", "-6", "route", "add", "unreachable", "2001:db8:9::/48", "proto", "174")
    give(Paths(), 0)
    held()
    with routers(tmp_path) as made:
        with outside.entered():
            made.bird("router", ROUTER)
        begin(made)
        try:
            wait_until(lambda: routed(outside) == [PREFIX], 60, "the router has the node's prefix")
            assert answers(outside, address(0))
            give(Paths(), 0, 1, generation=2)
            held()
            assert answers(outside, address(1)), "another endpoint is no news to the site's routers"
            ping = ("ping", "-6", "-c", "1", "-W", "2", "-I", "fd00:f::1")
            assert "nreachable" in outside.run(*ping, "fd00:1:2:7::1:99", check=False)
            # FRR 8.4 never sends a withdrawal that falls between the first update of a session and its End-of-RIB
            wait_until(made.has_told_all, 30, "the session has begun")
            Path(Paths().lib, "underlay.json").unlink()
            held()
            wait_until(lambda: routed(outside) == [], 30, "it is taken back")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{made.logs()}") from None
