"""A bundle of flows on the switch's socket: done, refused, or not answered, and nothing else."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from netcommon.host.api.requests import DeleteFlows, PutFlows
from netcommon.host.ovs import openflow_bundle, openflow_codec

FLOW = "priority=65010,arp,reg13=0x20000000/0xe0000000,arp_spa=10.0.0.5 actions=load:0x7->NXM_NX_REG13[29..31],resubmit(,0)"


def message(kind: int, body: bytes = b"", version: int = 5) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), 7) + body


HELLO, ERROR = message(0), message(1, struct.pack("!HH", 17, 8))
OPENED, COMMITTED = (message(33, struct.pack("!IHH", 1, kind, 3)) for kind in (1, 5))
ANSWERS: dict[str, tuple[bytes, object]] = {
    "done": (HELLO + OPENED + COMMITTED, True),
    "done, by an older hello": (message(0, version=6) + OPENED + COMMITTED, True),
    "told of something else first": (HELLO + message(12, bytes(40)) + OPENED + COMMITTED, True),
    "refused": (HELLO + OPENED + ERROR, False),
    "of another version": (HELLO + message(33, OPENED[8:], version=4), False),
    "hung up": (HELLO + OPENED, ConnectionError),
    "cut off": (HELLO + COMMITTED[:-1], ConnectionError),
    "a message shorter than its head": (struct.pack("!BBHI", 5, 33, 4, 7), ConnectionError),
    "silent": (b"", TimeoutError),
}


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("kind", ANSWERS)
def test_what_the_switch_answers(tmp_path: Path, kind: str, bytewise: bool) -> None:
    answer, expected = ANSWERS[kind]
    path, over = str(tmp_path / "ovs0.mgmt"), threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for part in [answer[at : at + 1] for at in range(len(answer))] if bytewise else [answer]:
                    connection.sendall(part)
                connection.recv(1 << 16)  # all of it: or the end would be a reset
                if kind == "silent":
                    over.wait(5)

        thread = threading.Thread(target=serve)
        thread.start()
        bodies = openflow_bundle.changes([PutFlows("ovs0", "tap0", 9, (FLOW,)), DeleteFlows("ovs0", 8)], {"tap0": 3})
        assert len(bodies) == 3
        try:
            if isinstance(expected, type):
                with pytest.raises(expected):
                    openflow_bundle.bundle(path, bodies, 0.2 if kind == "silent" else 5, time.monotonic)
            else:
                assert openflow_bundle.bundle(path, bodies, 5, time.monotonic) is expected
        finally:
            over.set()
            thread.join()


def test_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        openflow_bundle.bundle(str(tmp_path / "none"), [], 1, time.monotonic)


def test_a_port_whose_number_is_not_known() -> None:
    with pytest.raises(KeyError):
        openflow_bundle.changes([PutFlows("ovs0", "tap0", 9, (FLOW,))], {})
    with pytest.raises(openflow_codec.StrangeError):
        openflow_bundle.changes([PutFlows("ovs0", "tap0", 9, ("actions=NORMAL",))], {"tap0": 3})
