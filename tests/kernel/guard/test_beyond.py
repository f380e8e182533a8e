"""What goes past any guard on a tap, seen to happen: docs/spoof-guard.md must say so. One that fails is a limit that has gone."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct

import pytest

from tests.kernel.guard import paths
from tests.kernel.guard.limits import GUARD
from tests.kernel.guard.networks import ETH_P_ALL
from tests.support.attacks import GROUPS, KINDS, SETTINGS
from tests.support.attacks_base import OWN4, kind, raw
from tests.support.attacks_ip4 import ip4, plain
from tests.support.bootstrap import ROOT

GUARDED = SETTINGS[0]
NEEDS_CSUM = 1  #: VIRTIO_NET_HDR_F_NEEDS_CSUM (virtio 1.2, 5.1.6)
START, OFFSET = 24, 4  #: where the sum begins, and where from there it is written: over the second half of an IPv4 source


@pytest.mark.parametrize("phrase", ["ETH_P_ALL", "checksum offload"])
def test_it_is_documented(phrase: str) -> None:
    assert phrase in (ROOT / GUARD).read_text()


@pytest.mark.parametrize("network", ["bridged", "routed"], indirect=True)
def test_a_socket_for_all_protocols(network: paths.Network) -> None:
    """On the tap itself it gets frames before any hook: so do tcpdump and lldpd."""
    network.up(GUARDED)
    lldp = next(kind for kind in KINDS if kind.name == "LLDP")
    frame = raw(lldp, GROUPS[1]._replace(number=1))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as listener:
        listener.bind(("tap0", ETH_P_ALL))
        listener.settimeout(5)
        assert network.seen({("LLDP", "nearest bridge"): frame})["LLDP", "nearest bridge"] == frozenset()
        assert frame in iter(lambda: listener.recv(2048), b"")


@pytest.mark.parametrize("network", ["bridged"], indirect=True)
def test_checksum_offload(network: paths.Network) -> None:
    """The kernel writes the checksum that a guest asks for in its virtio-net header wherever the guest says, and after the guard."""
    network.up(GUARDED)
    frame = raw(kind("harmless", ip4(OWN4, plain())), GROUPS[0]._replace(number=1))
    os.write(network.tap.descriptor, struct.pack("=BBHHHH", NEEDS_CSUM, 0, 0, 0, START, OFFSET) + frame)
    path = network.paths["peer"]
    assert isinstance(path, paths.TapPath)
    got = path.tap.receive(lambda arrived: arrived[18:20] == frame[18:20] and arrived[12:14] == frame[12:14])
    assert got is not None and got[:28] == frame[:28] and got[30:] == frame[30:]
    assert ipaddress.IPv4Address(got[26:30]) != ipaddress.IPv4Address(OWN4)
