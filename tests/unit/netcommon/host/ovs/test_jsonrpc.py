"""OVSDB's client where the machine has no socket to give."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.ovs import jsonrpc
from netcommon.host.ovs.jsonrpc import JsonRpc, Lost


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMFILE, errno.ENOBUFS])
def test_no_socket(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It is said as what it is, and nothing was sent: whoever called may try again."""

    class Sockets:
        AF_UNIX = SOCK_STREAM = 1

        @staticmethod
        def socket(*_arguments: int) -> None:
            raise OSError(number, "refused by the test")

    monkeypatch.setattr(jsonrpc, "socket", Sockets)
    with pytest.raises(Lost, match=r"no socket for OVSDB.*refused by the test") as caught:
        JsonRpc("/run/db.sock", lambda: 0.0).call("echo", [], 1.0)
    assert not caught.value.sent
