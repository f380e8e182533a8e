"""Tries the kernel's features in a network namespace of its own, in a process of its own: the host's network is not touched.

``python3 -m netcommon.doctor.probe`` prints a JSON object: feature -> "" if it works, else why not.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence

from netcommon.host.api.facts import AF_INET, PROTOCOL, Neighbour, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddNeighbour, AddRule
from runtime.paths import Paths

CLONE_NEWNET = 0x40000000  #: unshare(2)
TUNSETIFF = 0x400454CA  #: linux/if_tun.h
IFF_TAP_NO_PI = 0x1002


def run(timeout: float = 10.0) -> dict[str, str]:
    """What the probe found, from a process of its own; {} where it cannot run (no root, no pyroute2, no time)."""
    if os.geteuid() != 0:
        return {}
    places = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), *filter(None, sys.path)]
    environment = {"PYTHONPATH": os.pathsep.join(places), "PATH": os.defpath}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "netcommon.doctor.probe"], capture_output=True, timeout=timeout, check=True, env=environment, cwd="/"
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return {str(name): str(value) for name, value in found.items()}


def main() -> None:
    """Leaves the caller's network namespace for good, then tries everything."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    from pyroute2 import IPRoute

    from netcommon.host.linux.host import LinuxHost

    host = LinuxHost(Paths())
    with IPRoute() as route:

        def bridge() -> None:
            route.link("add", ifname="probe", kind="bridge")

        def vlan_filtering() -> None:
            index = route.link_lookup(ifname="probe")[0]
            route.link("set", index=index, kind="bridge", br_vlan_filtering=1)
            link = host.view().link_at(index)
            if link is None or not link.vlan_filtering:
                raise OSError(0, "the kernel drops it")

        def rule_protocol() -> None:
            rule = Rule(AF_INET, 500, "probe", 100, PROTOCOL)
            marked(host.execute([AddRule(rule)], stop=True), rule in host.view().rules(AF_INET))

        def neighbour_protocol() -> None:
            entry = Neighbour(AF_INET, "192.0.2.1", route.link_lookup(ifname="lo")[0], PROTOCOL)
            marked(host.execute([AddNeighbour(entry)], stop=True), entry in host.view().neighbours(AF_INET))

        tries = {each.__name__: tried(each) for each in (bridge, vlan_filtering, tun, rule_protocol, neighbour_protocol)}
    print(json.dumps(tries))


def marked(answers: Sequence[Answer], found: bool) -> None:
    """Raises OSError unless the request was carried out and the thing bears our mark."""
    if not answers[0].ok:
        raise OSError(answers[0].errno, answers[0].text)
    if not found:
        raise OSError(0, "the kernel drops it")


def tun() -> None:
    """Makes a tap, which goes with its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", b"probe-tap", IFF_TAP_NO_PI))
    finally:
        os.close(descriptor)


def tried(what: Callable[[], None]) -> str:
    """Why it does not work; "" if it does."""
    try:
        what()
    except Exception as error:  # whatever the kernel or pyroute2 says is the answer
        return str(getattr(error, "strerror", "") or (error.args[-1] if error.args else "") or type(error).__name__)
    return ""


if __name__ == "__main__":
    main()
