"""A switch that does not listen yet, or no more."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from pathlib import Path

import pytest

from netcommon.host.api.requests import PutFlows
from netcommon.host.ovs import ofctl
from netcommon.host.ovs.jsonrpc import Deadline
from netcommon.host.ovs.ofctl import OpenFlow
from tests.unit.netcommon.host.ovs.test_openflow_bundle import COMMITTED, FLOW, HELLO, OPENED

PUT = PutFlows("ovs0", "tap0", 9, (FLOW,))


def switch(folder: Path) -> OpenFlow:
    return OpenFlow(str(folder), Deadline(5, time.monotonic), time.monotonic, lambda bridge, names: {"tap0": 3}, lambda seconds: True)


def listening(listener: socket.socket) -> None:
    """Listens from now on and carries out what each caller asks for, until nobody calls for a second; ovs-ofctl(8) may be one."""
    listener.listen()
    listener.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(HELLO + OPENED + COMMITTED)
                connection.recv(1 << 16)


@pytest.mark.parametrize("all_at_once", [False, True])
def test_a_switch_that_listens_soon(tmp_path: Path, all_at_once: bool) -> None:
    """Its socket is there before anybody listens at it: connect(2) is refused in between, and the flows come all the same."""
    asked = switch(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "ovs0.mgmt"))
        thread = threading.Thread(target=listening, args=(listener,))
        threading.Timer(0.4, thread.start).start()
        try:
            answer = asked.execute_all([PUT])[0] if all_at_once else asked.execute(PUT)
        finally:
            thread.join()
    assert answer.ok, answer


def test_a_socket_that_a_killed_switch_left(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "ovs0.mgmt"))
    began = time.monotonic()
    answer = switch(tmp_path).execute(PUT)
    assert answer.errno == errno.EAGAIN
    assert time.monotonic() - began >= ofctl.LISTENS_WITHIN
